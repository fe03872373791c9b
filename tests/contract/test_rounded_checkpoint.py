"""A run in bfloat16 that goes on from its checkpoint, elsewhere: the versions of one that never stopped."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from controller.runs.checkpoints import MODEL_FOLDER, STATE_FILE, WEIGHTS_FILE, SavedRun, write_checkpoint
from controller.runs.manifest import Manifest
from controller.runs.resumption import import_checkpoint, read_checkpoint
from shared.contracts.learner import AlgorithmConfig
from shared.contracts.training_pass import TrainingPass
from tests.contract.test_one_policy import ALGORITHM, World

PASSES = TrainingPass(dtype="bfloat16")
IN_BFLOAT16: AlgorithmConfig = ALGORITHM.model_copy(update={"compute": PASSES})


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


async def begin(world: World) -> Manifest:
    """A run's first head."""
    policy = await world.init(dtype="bfloat16")
    return Manifest(step=0, data_cursor=0, policy=policy, state=None, reference=policy, run_seed=7)


async def after_step(world: World, head: Manifest) -> Manifest:
    """The head that a step from this one ends with."""
    assert head.reference is not None
    await world.sample(head.policy, temperature=1.0, step=head.step)
    frozen = await world.reference(head.reference, temperature=1.0, step=head.step, compute=PASSES)
    made = await world.update(
        head.policy, frozen, temperature=1.0, step=head.step, state=head.state, algorithm=IN_BFLOAT16
    )
    outputs = made.outputs
    return head.model_copy(update={"step": head.step + 1, "policy": outputs.policy, "state": outputs.state})


async def checkpoint(world: World, head: Manifest, root: Path) -> Path:
    """Where the head was written."""
    written = await write_checkpoint(
        head,
        world.context.blobs,
        root=root,
        model_folder=Path(world.model.path),
        saved_run=SavedRun(run="run-1", config={}, digests={}, total_steps=9),
        history=b"",
        fence=1,
    )
    return Path(written.folder)


async def test_a_run_that_goes_on_elsewhere_makes_the_versions_of_one_that_never_stopped(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    world, other = World(tmp_path / "here", executor), World(tmp_path / "there", executor)
    first = await after_step(world, await begin(world))
    folder = await checkpoint(world, first, tmp_path / "checkpoints")
    expected = await after_step(world, await after_step(world, first))

    own = SimpleNamespace(model=SimpleNamespace(path=None))
    prepared: Any = SimpleNamespace(model=other.model, config=SimpleNamespace(critic=own, reference=own))
    head = await import_checkpoint(read_checkpoint(folder), "run-1", prepared, other.context.blobs)
    assert (head.policy.dtype, head.policy.digest) == ("bfloat16", first.policy.digest)
    going_on = await after_step(other, await after_step(other, head))
    assert going_on.state is not None
    assert expected.state is not None
    assert (going_on.policy.digest, going_on.state.sha256) == (expected.policy.digest, expected.state.sha256)


async def test_what_is_exported_is_the_trained_weights_rounded_once(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    world = World(tmp_path, executor)
    head = await after_step(world, await begin(world))
    folder = await checkpoint(world, head, tmp_path / "checkpoints")
    exported = folder / MODEL_FOLDER / WEIGHTS_FILE
    assert hashlib.sha256(exported.read_bytes()).hexdigest() == head.policy.digest
    model = AutoModelForCausalLM.from_pretrained(folder / MODEL_FOLDER)
    assert model.dtype == torch.bfloat16
    trained, state = load_file(exported), load_file(folder / STATE_FILE)
    for name, tensor in trained.items():
        assert torch.equal(model.state_dict()[name], tensor)
        assert torch.equal(state[f"weight.{name}"].to(torch.bfloat16), tensor)
