"""Reward models: a tiny random classifier of a folder, against transformers itself."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
)

from functions.reward.model_reward import score_by_model
from functions.reward.outcome import CompletionText, Rewarded
from functions.reward.reward_model import RewardModel, load_reward_model
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput, RewardFailed
from shared.contracts.policy import ModelRef
from shared.contracts.prompt import Prompt
from shared.contracts.reward import ModelReward

DEMO = Path(__file__).resolve().parents[4] / "scripts/demo/model"
VOCABULARY = 32
TEXTS = ["1", "12+3=15#15", "7#7", "123+456=579#579", "4#4", "9"]


def save_tokenizer(folder: Path, **config: Any) -> None:
    shutil.copy(DEMO / "tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text("{}")


def tiny(pad_token_id: int | None, num_labels: int = 1) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        pad_token_id=pad_token_id,
        num_labels=num_labels,
    )


@pytest.fixture(params=[None, 0], ids=["no padding token", "padding token"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    torch.manual_seed(0)
    LlamaForSequenceClassification(tiny(request.param)).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    return tmp_path


async def compute(function: Callable[..., Any], *arguments: object) -> Any:
    return function(*arguments)


def asked_for(texts: list[str], **prompt: Any) -> list[tuple[Prompt, CompletionText]]:
    row = Prompt(**{"row_uid": "a", "token_ids": (1,), "text": "1+2:"} | prompt)
    return [(row, CompletionText(SampleId("a", sample), text, (1,))) for sample, text in enumerate(texts)]


async def rewards(folder: Path, asked: list[tuple[Prompt, CompletionText]], **options: Any) -> list[float]:
    reward = ModelReward(model=ModelRef(path=str(folder)), **options)
    outcomes, failures = await score_by_model(asked, reward, str(folder), compute, threads=1)
    assert not failures
    found = [outcomes[completion.id] for _, completion in asked]
    return [outcome.reward for outcome in found if isinstance(outcome, Rewarded)]


def by_transformers(folder: Path, sequences: list[list[int]], side: str) -> list[float]:
    """The same sequences in one padded batch, on either side, or each by itself."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    if side == "alone":
        return [model(torch.tensor([ids])).logits.item() for ids in sequences]
    # A token that none of the texts has.
    model.config.pad_token_id = padding = model.config.pad_token_id or VOCABULARY - 1
    length = max(map(len, sequences))
    fill = [[padding] * (length - len(ids)) for ids in sequences]
    rows = [ids + pad if side == "right" else pad + ids for ids, pad in zip(sequences, fill, strict=True)]
    ids = torch.tensor(rows)
    mask = (ids != padding).long()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return list(model(ids, attention_mask=mask, position_ids=positions).logits[:, 0].tolist())


@pytest.mark.parametrize("side", ["alone", "right", "left"])
@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
async def test_the_reward_is_the_logit_that_transformers_gives(folder: Path, side: str, batch_tokens: int) -> None:
    model = RewardModel(str(folder))
    sequences = model.token_ids(asked_for(TEXTS))
    assert VOCABULARY - 1 not in set().union(*sequences)
    expected = by_transformers(folder, sequences, side)
    assert len(set(expected)) == len(TEXTS)
    assert await rewards(folder, asked_for(TEXTS), batch_tokens=batch_tokens) == pytest.approx(expected, abs=1e-5)


async def test_a_vocabulary_without_a_free_token_needs_no_padding(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = tiny(None)
    LlamaForSequenceClassification(config).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    sequences = [list(range(VOCABULARY)), [1, 2, 3]]
    found = RewardModel(str(tmp_path)).score(sequences, batch_tokens=4096, threads=1)
    assert found == pytest.approx(by_transformers(tmp_path, sequences, "alone"), abs=1e-5)


async def test_a_chat_is_scored_as_the_template_writes_it(folder: Path) -> None:
    template = "{% for m in messages %}{{ m['role'][0] == 'u' and '+' or '=' }}{{ m['content'] }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    load_reward_model.cache_clear()
    chat = asked_for(["3"], messages=({"role": "user", "content": "12"},))
    model = RewardModel(str(folder))
    assert model.token_ids(chat) == [model.tokenizer.encode("+12=3")]
    assert model.token_ids(asked_for(["3"])) == [model.tokenizer.encode("1+2:3")]


async def test_a_text_that_is_too_long_fails_its_row_and_is_not_cut(folder: Path) -> None:
    asked = asked_for(["1"]) + asked_for(["2", "2" * 40], row_uid="b")
    reward = ModelReward(model=ModelRef(path=str(folder)), max_tokens=20)
    asked = [
        (prompt, CompletionText(SampleId(prompt.row_uid, c.id.sample), c.text, c.token_ids)) for prompt, c in asked
    ]
    outcomes, failures = await score_by_model(asked, reward, str(folder), compute, threads=1)
    assert list(failures) == ["b"]
    assert "row b, sample 1: it has 4" in failures["b"].message
    assert SampleId("a", 0) in outcomes


async def test_a_logit_that_is_no_number_is_a_failure(tmp_path: Path) -> None:
    model = LlamaForSequenceClassification(tiny(0))
    torch.nn.init.constant_(model.score.weight, float("nan"))
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    reward = ModelReward(model=ModelRef(path=str(tmp_path)))
    outcomes, failures = await score_by_model(asked_for(["1"]), reward, str(tmp_path), compute, threads=1)
    assert outcomes == {}
    assert "its logit is nan" in failures["a"].message


async def test_what_is_no_reward_model_is_refused(tmp_path: Path) -> None:
    LlamaForSequenceClassification(tiny(0, num_labels=3)).save_pretrained(tmp_path / "three")
    LlamaForCausalLM(tiny(0)).save_pretrained(tmp_path / "policy")
    config = (tmp_path / "policy" / "config.json").read_text()
    (tmp_path / "policy" / "config.json").write_text(config.replace("{", '{"num_labels": 1, ', 1))
    for name, reason in (("three", "3 labels"), ("policy", r"no weights for score\.weight")):
        save_tokenizer(tmp_path / name)
        with pytest.raises(InvalidInput, match=reason):
            await rewards(tmp_path / name, asked_for(["1"]))


async def test_without_torch_the_failure_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "functions.reward.reward_model")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RewardFailed, match=r"pip install 'rlhfless\[functions\]'"):
        await rewards(tmp_path, asked_for(["1"]))
