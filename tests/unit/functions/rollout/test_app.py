"""The rollout stage: from a call by reference to completions in the store."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from functions.rollout.app import RolloutHandler
from functions.rollout.policy_engine import PolicyEngine
from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput, MissingBlob
from shared.contracts.policy import ModelRef, PolicyRef
from shared.contracts.prompt import PromptBatch
from shared.contracts.rollout import RolloutInputs
from shared.service.handler import CallContext
from shared.service.settings import FunctionSettings
from shared.store.memory import memory_store
from tests.unit.functions.rollout.batch_world import BatchWorld, expected_tokens
from tests.unit.functions.rollout.fake_engine import FakeEngine


async def nothing() -> None:
    """Leases do not expire in these tests."""


class Stage:
    """The handler, its engines, and calls for it."""

    def __init__(self, folder: Path) -> None:
        self.world = BatchWorld(memory_store(lambda: 0.0), nothing)
        self.models: list[str] = []
        self.engines: list[FakeEngine] = []
        self.make_engine: Callable[[], FakeEngine] = FakeEngine
        (folder / "models/tiny").mkdir(parents=True)
        (folder / "models/tiny/config.json").write_text("{}")
        (folder / "models/link").symlink_to(folder / "models/tiny")
        (folder / "token").write_text("a-token-of-enough-characters")
        self.models_folder = folder / "models"
        self.handler = RolloutHandler(
            FunctionSettings.from_environment(
                {
                    "RLHFLESS_STAGES": "rollout",
                    "RLHFLESS_TOKEN_FILE": str(folder / "token"),
                    "RLHFLESS_ROOTS": str(self.models_folder),
                }
            ),
            PolicyEngine(self._make),
        )

    def _make(self, model: str, dtype: torch.dtype) -> FakeEngine:
        self.models.append(model)
        self.engines.append(self.make_engine())
        return self.engines[-1]

    async def call(self, model: str = "link", **fields: Any) -> tuple[StageCall[RolloutInputs], CallContext]:
        context = self.world.context()
        prompts = PromptBatch(prompts=tuple(self.world.prompts().values()))
        ref = await context.blobs.put("run-1", 3, "prompts", prompts.model_dump_json().encode())
        weights = await context.blobs.put("run-1", 3, "policy", b"weights")
        policy = PolicyRef(version=3, model=ModelRef(path=str(self.models_folder / model)), weights=weights)
        call = self.world.call(prompts=ref).model_copy(update={"policy": policy, **fields})
        return call, context


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_a_call_samples_its_batch_with_the_policy_it_names(stage: Stage) -> None:
    await stage.world.put()
    call, context = await stage.call()
    outcome = await stage.handler.handle(call, context)
    assert (outcome.status, outcome.outputs.num_completions) == ("done", len(stage.world.ids))
    assert (outcome.policy_version, outcome.weights_digest) == (3, call.policy.digest)
    # Loaded from where the checked path leads, not from what it was called.
    assert stage.models == [str(stage.models_folder.resolve() / "tiny")]
    assert stage.engines[0].weights == b"weights"
    for id, completion in (await stage.world.completions()).items():
        assert completion.token_ids.tolist() == expected_tokens(id)
        assert completion.weights_digest == call.policy.digest
    assert context.watch.load_s > 0
    assert context.watch.compute_s > 0
    await stage.handler.close()


async def test_a_profile_call_measures_and_touches_no_work(stage: Stage) -> None:
    await stage.world.put()
    call, context = await stage.call()
    key = call.key.model_copy(update={"operation": "profile"})
    outcome = await stage.handler.handle(call.model_copy(update={"key": key}), context)
    assert (outcome.status, outcome.outputs.num_completions) == ("done", 0)
    assert outcome.outputs.decode
    assert outcome.weights_digest == call.policy.digest
    assert await stage.world.num_left() == stage.world.num_rows
    assert await stage.world.completions() == {}


async def test_a_profile_without_prompts_is_bad_input(stage: Stage) -> None:
    call, context = await stage.call()
    none = await context.blobs.put("run-1", 3, "prompts", PromptBatch(prompts=()).model_dump_json().encode())
    changes = {
        "key": call.key.model_copy(update={"operation": "profile"}),
        "inputs": call.inputs.model_copy(update={"prompts": none}),
    }
    with pytest.raises(InvalidInput, match="there are none"):
        await stage.handler.handle(call.model_copy(update=changes), context)


async def test_a_call_without_a_policy_is_bad_input(stage: Stage) -> None:
    call, context = await stage.call(policy=None)
    with pytest.raises(InvalidInput, match=r"^policy:"):
        await stage.handler.handle(call, context)


async def test_a_model_outside_the_roots_is_not_touched(stage: Stage) -> None:
    call, context = await stage.call(model="../elsewhere")
    with pytest.raises(InvalidInput, match="outside the configured roots"):
        await stage.handler.handle(call, context)
    assert stage.models == []


@pytest.mark.parametrize("missing", ["prompts", "policy"])
async def test_a_missing_blob_is_named(stage: Stage, missing: str) -> None:
    await stage.world.put()
    call, context = await stage.call()
    other = await stage.call()
    keep = {call.inputs.prompts.id, call.policy.weights.id}
    gone = call.inputs.prompts.id if missing == "prompts" else call.policy.weights.id
    await context.blobs.purge("run-1", before_step=9, keep=keep - {gone})
    with pytest.raises(MissingBlob, match=gone):
        await stage.handler.handle(call, context)
    # Once it is there, the same replica serves the call.
    await stage.handler.handle(*other)


async def test_after_a_defect_the_engine_is_not_trusted(stage: Stage) -> None:
    class Broken(FakeEngine):
        def step(self) -> Any:
            raise ZeroDivisionError("the device is lost")

    stage.make_engine = Broken
    await stage.world.put()
    call, context = await stage.call()
    with pytest.raises(ZeroDivisionError):
        await stage.handler.handle(call, context)
    stage.make_engine = FakeEngine
    await stage.handler.handle(*await stage.call())
    assert len(stage.engines) == 2


async def test_after_a_typed_error_it_is(stage: Stage) -> None:
    await stage.world.put()
    call, context = await stage.call()
    one_row_short = PromptBatch(prompts=tuple(stage.world.prompts().values())[1:])
    ref = await context.blobs.put("run-1", 3, "prompts", one_row_short.model_dump_json().encode())
    bad = call.model_copy(update={"inputs": call.inputs.model_copy(update={"prompts": ref})})
    with pytest.raises(InvalidInput, match="row-0"):
        await stage.handler.handle(bad, context)
    await stage.handler.handle(call, replace(context, owner="next"))
    assert len(stage.engines) == 1
