"""The bigger examples run as their configs say, for two steps."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cli.local_paths import resolve_document
from scripts.examples.gsm8k.make_data import INSTRUCTION
from scripts.local_stack import REPOSITORY
from shared.modeling.tokenizer import Tokenizer
from tests.e2e.api import Json
from tests.e2e.stack import Stack, running_stack
from tests.e2e.weights import checkpoint_folder
from tests.e2e.workspace import Workspace
from tests.fakes.hub_cache import DATASET_COMMIT, DATASET_ID, MODEL_COMMIT, MODEL_ID, make_hub_cache

EXAMPLES = REPOSITORY / "scripts" / "examples"
PATIENCE_S = 1800.0
MODEL_SETTING = "RLHFLESS_TEST_SMOLLM2"
"""A folder that `make_model` has made; unset, it is made here, which takes the package from where pip finds it."""


def example(file: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A config file with values at dotted keys replaced."""
    document, _ = resolve_document(yaml.safe_load(file.read_text()), file.parent)
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        part = document
        for step in section.split("."):
            part = part.setdefault(step, {})
        part[name] = value
    return document


def two_steps(stack: Stack, config: Mapping[str, Any]) -> tuple[str, list[Json]]:
    """Run it to its end; returns its id and the lines of its two steps."""
    run = stack.api.start(config)
    stack.api.wait(run, "succeeded", timeout_s=PATIENCE_S)
    steps = stack.api.history(run, "step")
    assert [line["step"] for line in steps] == [0, 1]
    for line in steps:
        assert line["metrics"]["training/rollout_logprobs_diff_max"] < 1e-2
    return run, steps


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the converted model."""
    if folder := os.environ.get(MODEL_SETTING):
        return Path(folder)
    for package in ("gguf", "accelerate"):
        pytest.importorskip(package, reason="the extra `examples` is not installed")
    from scripts.examples.smollm2.make_model import NotMade, make_model

    folder = tmp_path_factory.mktemp("smollm2") / "model"
    try:
        make_model(folder)
    except NotMade as error:
        pytest.skip(f"{error}; or set {MODEL_SETTING} to a folder that make_model has made")
    return folder


@pytest.mark.slow
def test_smollm2_reads_digits_one_by_one_and_ends_at_its_own_token(smollm2: Path) -> None:
    tokenizer = Tokenizer.load(smollm2)
    tokens = [tokenizer.decode([id]) for id in tokenizer.encode("Steps:\n\n12 apples")]
    assert tokens == ["Steps", ":", "\n\n", "1", "2", " apples"]
    assert [tokenizer.decode([id], skip_special_tokens=False) for id in tokenizer.eos_token_ids] == ["<|im_end|>"]


@pytest.mark.slow
def test_smollm2_learns_for_two_steps_on_reasoning_gym(smollm2: Path, tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym", reason="the extra `examples` is not installed")
    from scripts.examples.smollm2.make_data import make_data

    make_data(tmp_path)
    config = example(
        EXAMPLES / "smollm2" / "reasoning_gym.yaml",
        {
            "model.path": str(smollm2),
            "data.train_files": str(tmp_path / "train.jsonl"),
            "data.val_files": None,
            "trainer.total_training_steps": 2,
        },
    )
    settings = {"RLHFLESS_ROOTS": f"{REPOSITORY}:{tmp_path}:{smollm2}"}
    with running_stack(Workspace(root=tmp_path), tmp_path / "state", settings) as stack:
        _, steps = two_steps(stack, config)
    for line in steps:
        # Right answers among wrong ones: there is something to learn from.
        assert 0 < line["metrics"]["critic/rewards/mean"] < 1
        assert line["metrics"]["actor/grad_norm"] > 0


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings that allow a hub and leave nothing of it but its cache."""
    home = tmp_path_factory.mktemp("hub")
    make_hub_cache(home)
    return {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def hub_stack(hub: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that may use the hub."""
    root = tmp_path_factory.mktemp("hub-stack")
    with running_stack(Workspace(root=root), root / "state", hub | {"RLHFLESS_ALLOW_HUB": "1"}) as stack:
        yield stack


# Of the example; a random model's logits need no more tokens, and the test's time is short.
SHORT = {
    "data.train_batch_size": 4,
    "data.max_response_length": 16,
    "rollout.n": 4,
    "trainer.total_epochs": None,
    "trainer.total_training_steps": 2,
}


def test_gsm8k_runs_from_the_hubs_cache_without_a_network(
    hub: dict[str, str], hub_stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = hub_stack.state_dir.parent / "data"
    made = subprocess.run(
        [sys.executable, "-m", "scripts.examples.gsm8k.make_data", str(data)],
        cwd=REPOSITORY,
        env=os.environ | hub,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    files = {"data.train_files": str(data / "train.parquet"), "data.val_files": str(data / "test.parquet")}
    config = example(EXAMPLES / "gsm8k" / "qwen2.5-0.5b.yaml", SHORT | files)
    run, steps = two_steps(hub_stack, config)
    record = hub_stack.api.run(run)
    assert record["config"]["model"]["path"] == f"{MODEL_ID}@{MODEL_COMMIT}"
    # The whole conversation, byte by byte, and none cut: the template was the model's own.
    assert steps[0]["metrics"]["prompt_length/min"] > len(INSTRUCTION) + len("You are Qwen, created by Alibaba Cloud.")
    exported = checkpoint_folder(hub_stack.api, run, 2) / "huggingface"
    assert json.loads((exported / "generation_config.json").read_text())["eos_token_id"] == [258, 256]
    assert "You are Qwen" in (exported / "chat_template.jinja").read_text()


def test_rows_are_read_off_a_hub_dataset(hub_stack: Stack) -> None:
    on_hub = "hf://datasets/openai/gsm8k/main"
    files = {"data.train_files": f"{on_hub}/train-*.parquet", "data.val_files": f"{on_hub}/test-*.parquet"}
    config = example(EXAMPLES / "gsm8k" / "qwen2.5-0.5b.yaml", SHORT | files)
    checked = hub_stack.api.request("POST", "/v1/runs", params={"dry_run": True}, json=config).json()
    assert (checked["num_rows"], checked["num_heldout_rows"]) == (8, 2)
    pinned = f"hf://datasets/{DATASET_ID}@{DATASET_COMMIT}/main/train-00000-of-00001.parquet"
    assert checked["config"]["data"]["train_files"] == [pinned]
    assert "8 rows of train-00000-of-00001.parquet: prompt from 'question'" in " ".join(checked["notes"])


def test_what_is_neither_in_the_cache_nor_to_be_fetched_is_refused(hub_stack: Stack) -> None:
    changes = {
        "model.path": "Qwen/Qwen3-0.6B",
        "data.train_files": "hf://datasets/openai/gsm9k/main/*.parquet",
        "data.val_files": "hf://datasets/openai/gsm8k/main/*.csv",
    }
    config = example(EXAMPLES / "gsm8k" / "qwen2.5-0.5b.yaml", SHORT | changes)
    answer = hub_stack.api.request("POST", "/v1/runs", json=config)
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["problems"]] == list(changes)
