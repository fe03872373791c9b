"""A hub's cache as downloads leave it: ``blobs`` by digest, ``snapshots`` of links to them, ``refs`` to commits."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pyarrow import Table, parquet
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

MODEL_ID = "Qwen/Qwen2.5-0.5B-Instruct"
DATASET_ID = "openai/gsm8k"
MODEL_COMMIT = "7ae557604adf67be50417f59c2c2f167def9a775"
DATASET_COMMIT = "e53f048856ff4f594e959d75785d2c2d37b678ee"
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = """\
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QUESTIONS = [
    {
        "question": f"Ada has {number} apples and buys 1,{number}00 more. How many has she?",
        "answer": f"She has {number} + 1{number}00 = <<{number}+1{number}00=1{number}0{number}>>1{number}0{number}.\n"
        f"#### 1,{number}0{number}",
    }
    for number in range(1, 9)
]


def make_hub_cache(home: Path) -> None:
    """Write ``home/hub``, as ``HF_HOME=home`` finds it: a small Qwen2 and a few rows, under the real names."""
    scratch = home / "scratch"
    make_model(scratch / "model")
    (scratch / "data" / "main").mkdir(parents=True)
    for split, rows in (("train", QUESTIONS), ("test", QUESTIONS[:2])):
        write_rows(rows, scratch / "data" / "main" / f"{split}-00000-of-00001.parquet")
    (scratch / "data" / "README.md").write_text("# GSM8K\n")
    download(scratch / "model", home / "hub" / f"models--{MODEL_ID.replace('/', '--')}", MODEL_COMMIT)
    download(scratch / "data", home / "hub" / f"datasets--{DATASET_ID.replace('/', '--')}", DATASET_COMMIT)


def download(files: Path, repository: Path, commit: str) -> None:
    """Put a folder's files where a download of the repository would put them."""
    for file in sorted(path for path in files.rglob("*") if path.is_file()):
        name = file.relative_to(files)
        blob = repository / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        link = repository / "snapshots" / commit / name
        for folder in (blob.parent, link.parent):
            folder.mkdir(parents=True, exist_ok=True)
        file.rename(blob)
        link.symlink_to(Path(*[".."] * (len(name.parts) + 1), "blobs", blob.name))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)


def write_rows(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Write a parquet file."""
    parquet.write_table(Table.from_pylist(list(rows)), file)


def make_model(folder: Path) -> None:
    """Random weights of a Qwen2, its tokens single bytes, with the special tokens and the template of the real one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = Tokenizer(BPE(vocab={token: id for id, token in enumerate(alphabet)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fast,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer) + 5,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.eos_token_id, tokenizer.pad_token_id], pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
