"""A run that stops and one that does not: the same order, learning rates, tokens, metrics and weights."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from scripts.local_stack import REPOSITORY
from tests.e2e.in_process import Finished, Parts
from tests.e2e.stack import Stack, running_stack
from tests.e2e.waiting import wait_until
from tests.e2e.weights import TOLERANCE, checkpoint_folder, largest_difference, read_weights
from tests.e2e.workspace import Workspace

TOTAL, STOPPED_AFTER = 10, 6
AT_AN_EPOCHS_END, OVER_AN_EPOCHS_END = 4, 3
"""Rows of a step, of 8: six steps end with an epoch, or in the middle of one, and later steps run over its end."""


def config_of(workspace: Workspace, batch_size: int = 4, **changes: Any) -> dict[str, Any]:
    """Ten steps, each with a learning rate of its own."""
    return workspace.config(
        {
            "data.train_batch_size": batch_size,
            "actor.optim.lr_scheduler_type": "linear",
            "trainer.total_training_steps": TOTAL,
            **{name.replace("__", "."): value for name, value in changes.items()},
        }
    )


def measured(lines: list[Mapping[str, Any]]) -> list[dict[str, float]]:
    """A step's metrics without what depends on the machine."""
    of_the_machine = ("timing_s/", "perf/mfu", "schedule/")
    return [
        {name: value for name, value in line["metrics"].items() if not name.startswith(of_the_machine)}
        for line in lines
    ]


def assert_same_metrics(found: list[Mapping[str, Any]], expected: list[Mapping[str, Any]]) -> None:
    """Also the learning rates, and the rewards and lengths of what was sampled."""
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    assert {"actor/lr", "critic/score/mean", "response_length/mean"} <= expected[0]["metrics"].keys()
    assert len({line["metrics"]["actor/lr"] for line in expected}) > 1
    for one, other in zip(measured(found), measured(expected), strict=True):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("batch_size", [OVER_AN_EPOCHS_END, pytest.param(AT_AN_EPOCHS_END, marks=pytest.mark.slow)])
def test_a_killed_controllers_run_goes_on_as_if_nothing_had_happened(
    stack: Stack, workspace: Workspace, state_dir: Path, batch_size: int
) -> None:
    config = config_of(workspace, batch_size)
    whole = stack.api.succeed(config)
    with running_stack(workspace, state_dir) as killed:
        run = killed.api.start(config)
        wait_until(lambda: len(killed.api.steps(run)) >= STOPPED_AFTER, what="six steps")
        killed.kill()
    with running_stack(workspace, state_dir) as last:
        assert last.api.run(run)["state"] == "running", "as the killed one left it"
        assert len(last.api.steps(run)) < TOTAL, "it was killed on the way"
        last.api.wait(run, "succeeded")
        assert_same_metrics(last.api.history(run, "step"), stack.api.history(whole, "step"))
        found = read_weights(checkpoint_folder(last.api, run, TOTAL))
        assert largest_difference(found, read_weights(checkpoint_folder(stack.api, whole, TOTAL))) <= TOLERANCE
        again = last.api.request("POST", f"/v1/runs/{run}/resume")
        assert again.status_code == 409
        assert "would do nothing" in again.json()["message"]
        tracked = (state_dir / "checkpoints" / "rlhfless" / run / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in tracked] == list(range(1, TOTAL + 1))


@pytest.mark.asyncio(loop_scope="package")
@pytest.mark.parametrize("batch_size", [AT_AN_EPOCHS_END, pytest.param(OVER_AN_EPOCHS_END, marks=pytest.mark.slow)])
async def test_a_run_on_another_redis_goes_on_from_a_checkpoint_folder(
    parts: Parts, stack: Stack, workspace: Workspace, batch_size: int
) -> None:
    folder = str(workspace.root / f"checkpoints-{batch_size}")
    kept = {"trainer__default_local_dir": folder, "trainer__save_freq": STOPPED_AFTER}
    whole = await parts.run(config_of(workspace, batch_size, **kept))
    checkpoint = whole.head.checkpoints[0].folder
    going_on = {"trainer__resume_mode": "resume_path", "trainer__resume_from_path": checkpoint}
    config = config_of(workspace, batch_size, **going_on)
    here = await parts.run(config)
    assert here.tokens() == {(kind, step): ids for (kind, step), ids in whole.tokens().items() if step >= STOPPED_AFTER}
    assert here.tokens().keys() == {("train", step) for step in range(STOPPED_AFTER, TOTAL)}

    run = await asyncio.to_thread(stack.api.succeed, config)
    there = read_weights(checkpoint_folder(stack.api, run, TOTAL))
    for finished in (there, here.weights()):
        assert largest_difference(finished, whole.weights()) <= TOLERANCE
    for lines in (stack.api.history(run, "step"), steps_of(here)):
        assert_same_metrics(lines, steps_of(whole)[STOPPED_AFTER:])
    refused = stack.api.request("POST", "/v1/runs", json=config_of(workspace, batch_size, **going_on, rollout__n=2))
    assert refused.status_code == 422
    assert {problem["field"] for problem in refused.json()["problems"]} == {"rollout.n"}


def steps_of(finished: Finished) -> list[Mapping[str, Any]]:
    return [line for line in finished.history if line["kind"] == "step"]


def test_an_exported_checkpoint_is_a_model(stack: Stack, workspace: Workspace, tmp_path: Path) -> None:
    run = stack.api.succeed(workspace.config())
    target = tmp_path / "model"
    command = [sys.executable, "-m", "controller.cli", "--url", stack.url, "export", run, str(target)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(target) in done.stdout
    model = AutoModelForCausalLM.from_pretrained(target)
    token_ids = AutoTokenizer.from_pretrained(target)("3+3=", return_tensors="pt").input_ids
    with torch.no_grad():
        assert torch.isfinite(model(token_ids).logits).all()
    for name, values in read_weights(checkpoint_folder(stack.api, run, 2)).items():
        assert torch.equal(model.get_parameter(name), torch.from_numpy(values))
    again = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "is not empty" in again.stderr
