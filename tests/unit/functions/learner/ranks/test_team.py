"""Two ranks in two processes: what they make is what one process makes, whatever happened to them before."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from functions.learner.errors import RankLost
from functions.learner.ranks.team import RankTeam
from functions.learner.rows import TrainRow
from functions.learner.update import UpdateResult
from functions.learner.updater import InThisProcess
from shared.codec.lora_adapter import encode_adapter
from shared.contracts.batch import BatchPart
from shared.contracts.call import CallKey, StageCall
from shared.contracts.learner import (
    AdvantagesInputs,
    AlgorithmConfig,
    LearnerInputs,
    OptimConfig,
    UpdateInputs,
)
from shared.contracts.lora import LoraConfig
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.stage import Purpose, Stage
from shared.service.handler import CallContext
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs
from shared.training.errors import NonFiniteGradient
from shared.training.lora import attach_adapter, initial_adapter
from shared.training.model_in_training import Trained
from shared.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state_to_blob
from shared.training.optimizer_config import OptimizerConfig
from shared.training.progress import UpdateProgress
from shared.training.time_budget import UNLIMITED, Budget
from tests.unit.functions.learner.builders import ragged_rows, tiny_model
from tests.unit.functions.learner.learner import Passes

# Processes start, import and end.
pytestmark = pytest.mark.slow

REF = BlobRef(id="run-1/000000/prompts-a", num_bytes=1, sha256="0" * 64)
PART = BatchPart(prompts=REF, row_uids=("a",), scores=(REF,))
ALGORITHM = AlgorithmConfig(ppo_epochs=2, ppo_mini_batch_size=2, max_token_len=12)
ROWS = ragged_rows()


class World:
    """A team of two, and calls on a model that a folder has the architecture of."""

    def __init__(self, folder: Path, executor: ThreadPoolExecutor) -> None:
        tiny_model(tie_word_embeddings=True).save_pretrained(folder)
        self.path = str(folder)
        self.policy = PolicyRef(version=0, model=ModelRef(path=self.path), weights=REF)
        self.team = RankTeam(2, instance="learner-1", environment=dict(os.environ))
        self.context = CallContext(
            store=memory_store(lambda: 0.0),
            blobs=MemoryBlobs(),
            owner="learner-1/a",
            instance="learner-1",
            deadline_at=time.time() + 600,
            stop=StopFlag(),
            watch=Stopwatch(),
            executor=executor,
        )

    def call(self, operation: UpdateInputs | AdvantagesInputs, step: int = 0) -> StageCall[LearnerInputs]:
        return StageCall[LearnerInputs](
            key=CallKey(run="run-1", purpose=Purpose.TRAIN, step=step, stage=Stage.LEARNER),
            fence=0,
            policy=self.policy,
            deadline_at=self.context.deadline_at,
            inputs=LearnerInputs(operation=operation),
        )

    async def update(
        self,
        trained: Trained,
        *,
        by_team: bool = True,
        step: int = 0,
        rows: list[TrainRow] = ROWS,
        budget: Budget = UNLIMITED,
        progress: UpdateProgress | None = None,
    ) -> UpdateResult:
        inputs = UpdateInputs(
            parts=(PART,),
            num_samples=3,
            state=None,
            temperature=1.0,
            # So that the update follows the gradient, and not its sign.
            optim=OptimConfig(lr=0.1, total_steps=4, eps=1.0),
            algorithm=ALGORITHM,
        )
        updater: Any = self.team if by_team else InThisProcess(torch.device("cpu"))
        return await updater.update(trained, self.path, rows, self.call(inputs, step), budget, progress, self.context)


def trained(model: PreTrainedModel | None = None, digest: str = "a", base: BlobRef | None = None) -> Trained:
    model = model or tiny_model(tie_word_embeddings=True)
    return Trained(model, build_optimizer(model, OptimizerConfig(lr=0.1)), digest, None, base)


def weights(of: Trained) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in of.model.parameters()])


def moments(of: Trained) -> torch.Tensor:
    return torch.cat([state["exp_avg"].flatten() for state in of.optimizer.state.values()])


def assert_equal(ours: Trained, theirs: Trained) -> None:
    torch.testing.assert_close(weights(ours), weights(theirs), atol=1e-6, rtol=0)
    torch.testing.assert_close(moments(ours), moments(theirs), atol=1e-6, rtol=1e-5)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        world = await asyncio.to_thread(World, tmp_path, executor)
        yield world
        await world.team.close()


async def test_steps_by_either_number_of_ranks_go_on_from_each_other(world: World) -> None:
    expected, ours = trained(), trained()
    results = [await world.update(expected, by_team=False, step=step) for step in range(3)]

    first = await world.update(ours)
    world.team.published("b", "state-b")
    ours = Trained(ours.model, ours.optimizer, "b", "state-b")
    second = await world.update(ours, step=1)
    # Another machine, with one rank, reads what was published.
    blob = optimizer_state_to_blob(ours.optimizer, ours.model)
    ours = trained(ours.model)
    load_optimizer_state(ours.optimizer, ours.model, blob)
    third = await world.update(ours, by_team=False, step=2)

    assert_equal(ours, expected)
    for result, other in zip((first, second, third), results, strict=True):
        assert result.metrics == pytest.approx(other.metrics, rel=1e-4, abs=1e-6)
        assert result.num_updates == other.num_updates == 4


async def test_a_cut_step_goes_on_with_other_weights_in_between_and_with_one_rank(world: World) -> None:
    whole = trained()
    expected = await world.update(whole)
    has_gradient = []
    for num_rounds, ends_with_team in ((1, True), (7, True), (8, True), (8, False)):
        ours, other = trained(), trained(digest="other")
        first = await world.update(ours, budget=Passes(num_rounds))
        assert first.progress is not None
        has_gradient.append(bool(first.progress.gradient))
        await world.update(other)
        progress = UpdateProgress.from_blob(first.progress.to_blob())
        # Only a version that was announced is known to lie on the ranks: this one is given to them again.
        second = await world.update(ours, by_team=ends_with_team, progress=progress)

        assert second.metrics == pytest.approx(expected.metrics, rel=1e-5, abs=1e-7)
        assert_equal(ours, whole)
        assert not ends_with_team or torch.equal(weights(ours), weights(whole))
    assert has_gradient.count(True) >= 2


async def test_an_adapter_alone_is_trained(world: World) -> None:
    adapter = encode_adapter(initial_adapter(tiny_model(tie_word_embeddings=True), LoraConfig(rank=2, alpha=4.0)))
    learners = []
    for by_team in (False, True):
        model = tiny_model(tie_word_embeddings=True)
        attach_adapter(model, adapter)
        learners.append(trained(model, base=REF))
        await world.update(learners[-1], by_team=by_team)
        world.team.published("b", "state-b")

    assert_equal(learners[1], learners[0])
    base = dict(tiny_model(tie_word_embeddings=True).named_parameters())
    after = dict(learners[1].model.named_parameters())
    assert torch.equal(after["model.layers.0.mlp.up_proj.base_layer.weight"], base["model.layers.0.mlp.up_proj.weight"])
    assert any(parameter.abs().sum() > 0 for name, parameter in after.items() if "lora_B" in name)


async def test_logprobs_are_those_of_one_process_also_between_updates(world: World) -> None:
    inputs = AdvantagesInputs(parts=(PART,), num_samples=3, temperature=0.7, algorithm=ALGORITHM)
    ours, expected = trained(), trained()
    arguments = (world.path, ROWS, world.call(inputs), world.policy, world.context)

    logprobs = await world.team.logprobs(ours.model, *arguments)
    torch.testing.assert_close(logprobs, await InThisProcess(torch.device("cpu")).logprobs(ours.model, *arguments))
    ours = Trained(ours.model, ours.optimizer, world.policy.digest, None)
    await world.update(ours)
    await world.update(expected, by_team=False)

    assert_equal(ours, expected)


async def test_what_fails_on_all_ranks_fails_as_itself_and_not_the_next_time(world: World) -> None:
    broken, ours, expected = trained(), trained(), trained()
    with torch.no_grad():
        broken.model.get_input_embeddings().weight[3, 0] = torch.nan

    with pytest.raises(NonFiniteGradient):
        await world.update(broken)
    await world.update(ours)
    await world.update(expected, by_team=False)

    assert_equal(ours, expected)


async def test_a_rank_that_cannot_start_is_a_lost_one(world: World) -> None:
    world.team = RankTeam(2, instance="learner-1", environment={"PATH": "", "PYTHONHOME": "/nowhere"})
    with pytest.raises(RankLost, match="rank 1 ended with status 1"):
        await world.update(trained())
