"""A run that trains a LoRA adapter, through real functions: it learns, and leaves a model and an adapter to load."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from tests.e2e.stack import Stack
from tests.e2e.weights import TOLERANCE, checkpoint_folder, largest_difference, read_weights
from tests.e2e.workspace import Workspace

STEPS = 12
LORA = {"model.lora_rank": 8, "model.lora_alpha": 16, "actor.optim.lr": 2e-2, "trainer.total_training_steps": STEPS}
KL = {"actor.use_kl_loss": True, "actor.kl_loss_coef": 0.01}


@pytest.fixture(scope="module")
def trained(stack: Stack, workspace: Workspace) -> str:
    """A run with a reference, so that this is seen to be what lies under the adapter."""
    return stack.api.succeed(workspace.config(LORA | KL | {"trainer.save_freq": 6}))


@pytest.fixture(scope="module")
def checkpoint(stack: Stack, trained: str) -> Path:
    return checkpoint_folder(stack.api, trained, STEPS)


def metrics(stack: Stack, run: str, name: str) -> list[float]:
    return [line["metrics"][name] for line in stack.api.history(run, "step")]


def test_it_learns(stack: Stack, trained: str) -> None:
    rewards = metrics(stack, trained, "critic/score/mean")
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]) + 0.2


def test_engine_and_learner_are_the_same_policy_and_the_reference_is_what_it_began_from(
    stack: Stack, trained: str
) -> None:
    assert max(metrics(stack, trained, "training/rollout_logprobs_diff_max")) < 1e-3
    kl = metrics(stack, trained, "actor/kl_loss")
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[-1] > 1e-3


def test_a_version_is_an_adapter_of_weights_that_stay(checkpoint: Path, workspace: Workspace) -> None:
    head: dict[str, Any] = json.loads((checkpoint / "MANIFEST.json").read_text())
    policy = head["policy"]
    assert policy["version"] == STEPS
    assert policy["adapter"]["num_bytes"] < policy["weights"]["num_bytes"]
    assert head["reference"]["weights"] == policy["weights"]
    assert head["reference"]["adapter"] is None
    base = load_file(checkpoint / "policy.weights.safetensors")
    assert largest_difference(base, read_weights(workspace.model)) == 0
    moments = load_file(checkpoint / "learner_state.safetensors")
    assert all(".lora_" in name for name in moments)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_the_checkpoint_loads_as_a_model_and_as_an_adapter(checkpoint: Path, workspace: Workspace) -> None:
    merged = AutoModelForCausalLM.from_pretrained(checkpoint / "huggingface")
    base = AutoModelForCausalLM.from_pretrained(workspace.model)
    token_ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        before = base(token_ids).logits
        after = merged(token_ids).logits
        adapted = PeftModel.from_pretrained(base, str(checkpoint / "lora_adapter"))(token_ids).logits
    torch.testing.assert_close(adapted, after, atol=1e-4, rtol=1e-4)
    assert float((after - before).abs().max()) > 0.1


def test_a_new_run_goes_on_from_the_adapter(stack: Stack, workspace: Workspace, trained: str, checkpoint: Path) -> None:
    half = checkpoint_folder(stack.api, trained, 6)
    resumed = {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(half)}
    run = stack.api.succeed(workspace.config(LORA | KL | resumed))
    found = read_weights(checkpoint_folder(stack.api, run, STEPS))
    assert largest_difference(found, read_weights(checkpoint)) <= TOLERANCE


@pytest.mark.slow
def test_with_a_critic_recomputed_layers_change_nothing_and_bfloat16_little(stack: Stack, workspace: Workspace) -> None:
    ppo = LORA | KL | {"algorithm.adv_estimator": "gae", "trainer.total_training_steps": 3}
    ways = ({}, {"model.enable_gradient_checkpointing": True}, {"model.dtype": "bfloat16"})
    plain, recomputed, rounded = (stack.api.succeed(workspace.config(ppo | way)) for way in ways)
    for name in ("actor/grad_norm", "actor/kl_loss", "critic/grad_norm", "critic/vf_loss"):
        expected = metrics(stack, plain, name)
        assert metrics(stack, recomputed, name) == pytest.approx(expected, rel=1e-5, abs=1e-7), name
        # Tokens are those of the same policy at the first step only.
        assert metrics(stack, rounded, name)[0] == pytest.approx(expected[0], rel=0.1, abs=1e-2), name
    assert metrics(stack, rounded, "actor/grad_norm") != metrics(stack, plain, "actor/grad_norm")
