"""The calculator's example runs as its config says, for two steps."""

from pathlib import Path

import pytest
import torch
import yaml

from controller.cli.local_paths import resolve_document
from scripts.examples.calculator.make_data import make_data
from scripts.examples.calculator.make_model import make_untrained
from scripts.local_stack import REPOSITORY
from tests.e2e.stack import running_stack
from tests.e2e.workspace import Workspace

CONFIG = REPOSITORY / "scripts" / "examples" / "calculator" / "calculator.yaml"


@pytest.mark.slow
def test_a_model_calls_the_calculator_for_two_steps(tmp_path: Path) -> None:
    torch.manual_seed(0)
    make_untrained(tmp_path / "model", hidden_size=32, num_layers=2)
    make_data(tmp_path / "data")
    config, _ = resolve_document(yaml.safe_load(CONFIG.read_text()), CONFIG.parent)
    config["model"]["path"] = str(tmp_path / "model")
    config["data"] |= {"train_files": str(tmp_path / "data/train.jsonl"), "val_files": None}
    del config["rollout"]["val_kwargs"]
    config["actor"]["optim"]["lr_warmup_steps"] = 0
    # No answer is right yet, and groups of equal rewards are to be trained all the same.
    config["algorithm"]["filter_groups"] = False
    config["trainer"] |= {"total_training_steps": 2, "test_freq": 0}
    with running_stack(Workspace(root=tmp_path), tmp_path / "state") as stack:
        run = stack.api.succeed(config)
        steps = [line["metrics"] for line in stack.api.history(run, "step")]
    assert len(steps) == 2
    for metrics in steps:
        # An untrained model closes a tag by chance, and what it then asks is no arithmetic.
        assert 1 < metrics["num_turns/mean"] <= 3
        assert metrics["tool_call_counts/mean"] == pytest.approx(metrics["num_turns/mean"] - 1)
        assert 0 < metrics["tool_error_counts/mean"] <= metrics["tool_call_counts/mean"]
        assert metrics["training/rollout_logprobs_diff_max"] < 1e-4
