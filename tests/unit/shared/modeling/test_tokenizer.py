"""The tokenizer without transformers gives what transformers' AutoTokenizer gives."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Regex, models, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.decoders import Fuse
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from shared.contracts.errors import InvalidInput
from shared.modeling.errors import UnknownModel
from shared.modeling.tokenizer import Tokenizer

TEMPLATE = """\
{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == 'system' and not loop.first %}
        {{- raise_exception('system comes first') }}
    {%- endif %}
    {%- if message.role == 'tool' %}{% continue %}{% endif %}
{{ '<' + message.role + '>' }}{% generation %}{{ message.content | tojson }}{% endgeneration %}{{ eos_token }}
{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}
"""
MESSAGES = [
    {"role": "system", "content": "be brief", "tool_calls": None},
    {"role": "user", "content": '1<2 & "é"?'},
    {"role": "tool", "content": "left out"},
]


def _save(folder: Path, *, bos: bool = False, template: str | None = TEMPLATE, **config: object) -> Path:
    """A character-level tokenizer over printable ASCII, as a Hugging Face folder."""
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "<turn>", *map(chr, range(32, 127)), "\n"]
    vocab = {token: index for index, token in enumerate(tokens)}
    fast = FastTokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast.decoder = Fuse()
    if bos:
        fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast.enable_truncation(8)
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"} | config
    PreTrainedTokenizerFast(tokenizer_object=fast, chat_template=template, **roles).save_pretrained(folder)
    return folder


@pytest.fixture(params=[False, True], ids=["plain", "with BOS"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return _save(tmp_path, bos=request.param)


def test_encode_and_decode_agree_with_transformers(folder: Path) -> None:
    ours, theirs = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    for text in ("966+358:", "", "a long line, over the truncation length\n", "</s> inside", "unknown é"):
        ids = ours.encode(text)
        assert ids == theirs(text, truncation=False).input_ids
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)
    assert ours.vocab_size == len(theirs)
    assert ours.pad_token_id == theirs.pad_token_id
    assert ours.eos_token_ids == (theirs.eos_token_id,)


@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_chat_template_agrees_with_transformers(folder: Path, add_generation_prompt: bool) -> None:
    ours, theirs = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    expected = theirs.apply_chat_template(
        MESSAGES, add_generation_prompt=add_generation_prompt, return_dict=False, truncation=False
    )
    assert ours.apply_chat_template(MESSAGES, add_generation_prompt) == expected
    assert expected.count(theirs.bos_token_id) == 1


def test_a_template_in_the_tokenizer_config(tmp_path: Path) -> None:
    file = _save(tmp_path, template=None) / "tokenizer_config.json"
    with pytest.raises(InvalidInput, match="no chat template"):
        Tokenizer.load(tmp_path).apply_chat_template(MESSAGES)
    for template in ("hi", [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "hi"}]):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
        tokenizer = Tokenizer.load(tmp_path)
        assert tokenizer.decode(tokenizer.apply_chat_template(MESSAGES)) == "hi"


def test_a_template_is_told_more_as_transformers_tells_it(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% if enable_thinking is defined and not enable_thinking %}<turn>{% endif %}a"
    folder = _save(tmp_path, template=template)
    ours, theirs = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    for variables in ({}, {"enable_thinking": False}, {"enable_thinking": True}, {"bos_token": "<unk>"}):
        expected = theirs.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False, **variables)
        assert ours.apply_chat_template(MESSAGES, variables=variables) == expected


def test_a_template_that_refuses_the_messages(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(_save(tmp_path))
    with pytest.raises(InvalidInput, match="system comes first"):
        tokenizer.apply_chat_template([MESSAGES[1], MESSAGES[0]])


def test_a_template_cannot_leave_the_sandbox(tmp_path: Path) -> None:
    escape = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(InvalidInput, match="unsafe"):
        Tokenizer.load(_save(tmp_path, template=escape)).apply_chat_template(MESSAGES)
    with pytest.raises(InvalidInput):
        Tokenizer.load(_save(tmp_path, template="{{ messages.append(1) }}")).apply_chat_template(MESSAGES)


@pytest.mark.parametrize(("configured", "expected"), [(4, (2, 4)), ([2, 4], (2, 4)), ([4, 3, 4], (2, 4, 3))])
def test_every_configured_eos_counts(tmp_path: Path, configured: object, expected: tuple[int, ...]) -> None:
    (_save(tmp_path) / "generation_config.json").write_text(json.dumps({"eos_token_id": configured}))
    assert Tokenizer.load(tmp_path).eos_token_ids == expected


def test_eos_of_the_model_config_counts_without_a_generation_config(tmp_path: Path) -> None:
    (_save(tmp_path) / "config.json").write_text(json.dumps({"eos_token_id": 4}))
    assert Tokenizer.load(tmp_path).eos_token_ids == (2, 4)


def test_padding_falls_back_to_eos(tmp_path: Path) -> None:
    assert Tokenizer.load(_save(tmp_path, pad_token=None)).pad_token_id == 2


def test_special_tokens_may_be_objects(tmp_path: Path) -> None:
    file = _save(tmp_path) / "tokenizer_config.json"
    spelled = {"eos_token": {"content": "<turn>", "special": True}}
    file.write_text(json.dumps(json.loads(file.read_text()) | spelled))
    assert Tokenizer.load(tmp_path).eos_token_ids == (4,)


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    first, second = Tokenizer.load(_save(tmp_path / "a")), Tokenizer.load(_save(tmp_path / "b"))
    assert first.fingerprint == second.fingerprint
    assert Tokenizer.load(_save(tmp_path / "c", bos=True)).fingerprint != first.fingerprint


def test_folders_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match=r"no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UnknownModel, match="cannot be read"):
        Tokenizer.load(tmp_path)
    (_save(tmp_path) / "tokenizer_config.json").write_text("{broken")
    with pytest.raises(UnknownModel, match="not valid JSON"):
        Tokenizer.load(tmp_path)


def test_neither_torch_nor_transformers_is_imported() -> None:
    code = "import sys, shared.modeling.tokenizer; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])
