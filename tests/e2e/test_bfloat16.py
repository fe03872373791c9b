"""A run in bfloat16 through real functions: what it publishes is rounded, what it goes on from is not."""

import pytest
from safetensors.torch import load_file
from torch import bfloat16, equal

from tests.e2e.stack import Stack
from tests.e2e.weights import checkpoint_folder
from tests.e2e.workspace import Workspace

IN_BFLOAT16 = {
    "model.dtype": "bfloat16",
    "rollout.dtype": "bfloat16",
    "algorithm.adv_estimator": "gae",
    "actor.use_kl_loss": True,
}
"""With every stage that reads a version or is told of one."""


@pytest.mark.slow
def test_a_run_in_bfloat16_goes_on_from_float32(stack: Stack, workspace: Workspace) -> None:
    config = workspace.config({**IN_BFLOAT16, "trainer.save_freq": 1, "trainer.total_training_steps": 3})
    whole = stack.api.succeed(config)
    for line in stack.api.history(whole, "step"):
        assert 1e-6 < line["metrics"]["training/rollout_logprobs_diff_mean"] < 0.05
        assert line["metrics"]["actor/grad_norm"] > 0
    folder = checkpoint_folder(stack.api, whole, 1)
    exported, state = (
        load_file(folder / "huggingface/model.safetensors"),
        load_file(folder / "learner_state.safetensors"),
    )
    for name, tensor in exported.items():
        assert tensor.dtype == bfloat16
        assert equal(state[f"weight.{name}"].to(bfloat16), tensor)

    going_on = {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(folder)}
    run = stack.api.succeed(workspace.config({**IN_BFLOAT16, **going_on, "trainer.total_training_steps": 3}))
    assert [line["step"] for line in stack.api.history(run, "step")] == [1, 2]
    refused = stack.api.request(
        "POST", "/v1/runs", json=workspace.config({**IN_BFLOAT16, **going_on, "rollout.dtype": "float32"})
    )
    assert refused.status_code == 422
    assert {problem["field"] for problem in refused.json()["problems"]} == {"rollout.dtype"}


def test_a_dtype_that_nothing_computes_in_is_refused(stack: Stack, workspace: Workspace) -> None:
    refused = stack.api.request("POST", "/v1/runs", json=workspace.config({"rollout.dtype": "float16"}))
    assert refused.status_code == 422
    [problem] = refused.json()["problems"]
    assert problem["field"] == "rollout.dtype"
    assert "float32" in problem["suggestion"]
