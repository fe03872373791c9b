"""A run from its start to its checkpoint, through real functions, and what it leaves behind: nothing that runs."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.manifest_folder import read_manifests
from scripts.local_stack import REPOSITORY
from tests.e2e.stack import Stack
from tests.e2e.waiting import wait_until
from tests.e2e.weights import checkpoint_folder, largest_difference, read_weights
from tests.e2e.workspace import Workspace

RELEASED_S = 10.0
"""Less than a function's window: they are let go, and do not only time out."""
PARTS = ("busy_s", "idle_s", "cold_s", "draining_s")


@pytest.fixture(scope="module")
def trained(stack: Stack, workspace: Workspace) -> str:
    """A run of three steps, evaluated before and after."""
    evaluated = {"data.val_files": str(workspace.root / "heldout.jsonl"), "trainer.total_training_steps": 3}
    return stack.api.succeed(workspace.config(evaluated))


@pytest.fixture(scope="module")
def checkpoint(stack: Stack, trained: str) -> Path:
    """The run's last checkpoint."""
    return checkpoint_folder(stack.api, trained, 3)


def test_it_goes_through_its_states_and_leaves_a_line_for_each_thing_done(stack: Stack, trained: str) -> None:
    states = [event["data"]["state"] for event in stack.api.events(trained) if event["kind"] == "state"]
    assert states == ["queued", "running", "succeeded"]
    told = [f"{line['kind']} {line['step']}" for line in stack.api.history(trained)]
    assert told == ["init 0", "eval 0", "step 0", "step 1", "step 2", "eval 3", "checkpoint 3"]
    record = stack.api.run(trained)
    assert record["info"]["error"] is None
    assert record["info"]["started_at"] <= record["info"]["finished_at"]


def test_every_step_trains_its_whole_batch_on_logprobs_that_engine_and_learner_agree_on(
    stack: Stack, trained: str
) -> None:
    for line in stack.api.history(trained, "step"):
        metrics = line["metrics"]
        num_tokens = 16 * (metrics["prompt_length/mean"] + metrics["response_length/mean"])
        assert metrics["perf/total_num_tokens"] == pytest.approx(num_tokens)
        assert metrics["actor/grad_norm"] > 0
        assert metrics["critic/advantages/min"] < 0 < metrics["critic/advantages/max"]
        assert metrics["training/rollout_logprobs_diff_max"] < 1e-4


def test_its_outcome_sums_it_up(stack: Stack, trained: str, checkpoint: Path) -> None:
    outcome = stack.api.get(f"/v1/runs/{trained}/summary")
    before, after = stack.api.history(trained, "eval")
    assert (outcome["accuracy_before"], outcome["accuracy_after"]) == (before["accuracy"], after["accuracy"])
    assert (before["num_rows"], before["num_samples"]) == (4, 1)
    assert outcome["steps"] == 3
    assert outcome["checkpoint"] == str(checkpoint)
    assert set(outcome["ledger"]) == {"init", "eval", "train"}


def test_the_ledgers_parts_add_up_to_the_held_time_and_evaluation_has_its_own_line(stack: Stack, trained: str) -> None:
    cpus = {name: function.resources.num_cpus for name, function in manifests().items()}
    purposes = {"init": "init", "eval": "eval", "step": "train"}
    busy: dict[tuple[str, str], float] = {}
    for line in stack.api.history(trained):
        for function, cost in line.get("ledger", {}).items():
            assert cost["purpose"] == purposes[line["kind"]]
            assert sum(cost[part] for part in PARTS) * cpus[function] == pytest.approx(cost["cpu_seconds"])
            busy[line["kind"], function] = busy.get((line["kind"], function), 0.0) + cost["busy_s"]
    for stage in ("rollout", "reward"):
        assert busy["eval", stage] > 0
        assert busy["step", stage] > 0
    assert busy["init", "learner"] > 0
    assert busy["step", "learner"] > 0
    assert busy["eval", "learner"] == 0


def test_the_checkpoint_is_the_heads_policy_and_loads_as_a_hugging_face_model(
    stack: Stack, workspace: Workspace, checkpoint: Path
) -> None:
    head = json.loads((checkpoint / "MANIFEST.json").read_text())
    weights = head["policy"]["weights"]
    exported = (checkpoint / "huggingface" / "model.safetensors").read_bytes()
    assert head["policy"]["version"] == 3
    assert hashlib.sha256(exported).hexdigest() == weights["sha256"]
    assert (stack.state_dir / "blobs" / weights["id"]).read_bytes() == exported
    assert largest_difference(read_weights(checkpoint), read_weights(workspace.model)) > 1e-4

    model = AutoModelForCausalLM.from_pretrained(checkpoint / "huggingface")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint / "huggingface")
    token_ids = tokenizer("3+3=", return_tensors="pt").input_ids
    with torch.no_grad():
        assert torch.isfinite(model(token_ids).logits).all()
    for name, values in read_weights(checkpoint).items():
        assert torch.equal(model.get_parameter(name), torch.from_numpy(values))


def test_the_checkpoint_can_be_downloaded(stack: Stack, trained: str, checkpoint: Path) -> None:
    answer = stack.api.request("GET", f"/v1/runs/{trained}/checkpoints/3/download")
    assert answer.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        downloaded = {file.name: archive.extractfile(file).read() for file in archive.getmembers() if file.isfile()}
    lying = {
        f"{checkpoint.name}/{path.relative_to(checkpoint)}": path.read_bytes()
        for path in checkpoint.rglob("*")
        if path.is_file()
    }
    assert downloaded == lying
    assert f"{checkpoint.name}/learner_state.safetensors" in lying


def test_the_same_run_again_comes_to_the_same_weights(
    stack: Stack, workspace: Workspace, trained: str, checkpoint: Path
) -> None:
    again = stack.api.succeed(workspace.config({"trainer.total_training_steps": 3}))
    assert largest_difference(read_weights(checkpoint_folder(stack.api, again, 3)), read_weights(checkpoint)) == 0


def test_when_it_has_ended_no_replica_is_held(stack: Stack, trained: str) -> None:
    wait_until(lambda: not stack.replicas(), timeout_s=RELEASED_S, what="the replicas to end")
    assert {function["num_replicas"] for function in stack.api.functions().values()} == {0}
    metrics = stack.api.request("GET", "/metrics").text
    assert 'rlhfless_runs{state="succeeded"}' in metrics


def manifests() -> dict[str, FunctionManifest]:
    """The functions as they are deployed."""
    return read_manifests(REPOSITORY / "deploy" / "base" / "functions")
