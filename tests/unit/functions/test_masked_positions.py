"""What stands at masked positions of a batch changes nothing that the learner or the critic answers.

Through their handlers: every per-token number of a stored batch is garbage wherever the token was not sampled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from functions.critic.app import CriticHandler
from functions.critic.value_model import initial_value_model
from functions.learner.app import LearnerHandler
from shared.codec.completions import encode_completion
from shared.codec.token_values import encode_token_values
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey
from shared.contracts.completion import Completion
from shared.contracts.critic import CriticInputs, ValueUpdateConfig, ValueUpdateInputs
from shared.contracts.learner import (
    AdvantagesInputs,
    AlgorithmConfig,
    KlLoss,
    KlPenalty,
    LearnerInputs,
    OptimConfig,
    RolloutCorrection,
    UpdateInputs,
)
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.reward import Score, Scores
from shared.contracts.stage import Purpose, Stage
from shared.modeling.weights import state_dict_to_blob
from tests.unit.shared.training.stage_world import NUM_SAMPLES, ROWS, RUN, StageWorld, stage_world

FEW = settings(max_examples=4, phases=(Phase.generate,), suppress_health_check=[HealthCheck.too_slow])
"""Each example is several calls; to make a failing one smaller would take minutes."""
GARBAGE = (1e6, -1e6, 3e38, np.nan, np.inf, -np.inf)
OPTIM = OptimConfig(lr=1e-2, total_steps=10)
KL: dict[str, Any] = {
    "kl_in_reward": KlPenalty(kl_coef=0.1, controller="adaptive", horizon=100),
    "kl_loss": KlLoss(coef=0.05),
    "ppo_epochs": 2,
}
ALGORITHMS: dict[str, AlgorithmConfig] = {
    "ppo": AlgorithmConfig(
        adv_estimator="gae", gamma=0.9, lam=0.8, rollout_correction=RolloutCorrection(level="token"), **KL
    ),
    "gspo": AlgorithmConfig(
        loss_mode="gspo",
        loss_agg_mode="seq-mean-token-mean",
        rollout_correction=RolloutCorrection(level="sequence"),
        **KL,
    ),
    "cispo": AlgorithmConfig(adv_estimator="reinforce_plus_plus", loss_mode="cispo", entropy_coeff=0.01, **KL),
}

Dirt = Callable[[str, Completion, np.ndarray], np.ndarray]
"""(name, completion, its numbers of this name) → the numbers with something else where they are masked."""


def clean(name: str, completion: Completion, numbers: np.ndarray) -> np.ndarray:
    return numbers


def dirty(choices: st.DataObject) -> Dirt:
    """Garbage at every masked position, drawn for each."""

    def soil(name: str, completion: Completion, numbers: np.ndarray) -> np.ndarray:
        size = len(numbers)
        drawn = choices.draw(st.lists(st.sampled_from(GARBAGE), min_size=size, max_size=size), label=f"{name} {size}")
        return np.where(completion.loss_mask, numbers, np.asarray(drawn, np.float32))

    return soil


class StoredBatch:
    """One batch with every number that a stage may read, made of the same draws each time but for the dirt."""

    def __init__(self, world: StageWorld, completions: list[Completion], prompts: BlobRef, dirt: Dirt) -> None:
        self.world = world
        self.completions = completions
        self.prompts = prompts
        self.dirt = dirt
        self._rng = np.random.default_rng(3)

    async def vectors(self, *names: str) -> BlobRef:
        """Numbers in the range of logprobs under these names."""
        made = {
            name: {
                done.id: self.dirt(name, done, self._rng.uniform(-4, -2, len(done.token_ids)).astype(np.float32))
                for done in self.completions
            }
            for name in names
        }
        return await self.world.put("-".join(names), encode_token_values(made))

    async def part(self) -> BatchPart:
        """The batch as the learner and the critic are told of it."""
        rewards = self._rng.normal(size=len(self.completions))
        scores = Scores(
            scores=tuple(
                Score(row_uid=done.id.row_uid, sample=done.id.sample, reward=float(reward))
                for done, reward in zip(self.completions, rewards, strict=True)
            )
        )
        return BatchPart(
            prompts=self.prompts,
            row_uids=ROWS,
            scores=(await self.world.put("scores", scores.model_dump_json().encode()),),
            reference_logprobs=(await self.vectors("reference_logprobs"),),
            values=(await self.vectors("values"),),
        )

    async def sampled_by(self, policy: PolicyRef) -> None:
        """Store the completions as this policy's."""
        samples = {
            done.id: encode_completion(
                replace(
                    done,
                    policy_version=policy.version,
                    weights_digest=policy.digest,
                    rollout_logprobs=self.dirt("rollout_logprobs", done, done.rollout_logprobs),
                    processed_logprobs=self.dirt("processed_logprobs", done, done.processed_logprobs),
                )
            )
            for done in self.completions
        }
        await self.world.context.store.work.commit_samples(
            BatchKey(run=RUN, purpose=Purpose.TRAIN, step=1), fence=1, samples=samples
        )


def answers(
    folder: Path, stage: Stage, dirt: Dirt, ask: Callable[[StoredBatch], Awaitable[Mapping[str, Any]]]
) -> Mapping[str, Any]:
    """What a stage says of the batch."""

    async def run() -> Mapping[str, Any]:
        async with stage_world(folder, stage) as world:
            prompts, completions = await world.store_batch()
            return await ask(StoredBatch(world, completions, prompts, dirt))

    return asyncio.run(run())


async def credit(batch: StoredBatch, algorithm: AlgorithmConfig) -> Mapping[str, Any]:
    """The learner's advantages, and the update that computes them for itself."""
    handler, policy = LearnerHandler(batch.world.settings), await batch.world.store_policy()
    await batch.sampled_by(policy)
    asked: dict[str, Any] = {
        "parts": (await batch.part(),),
        "num_samples": NUM_SAMPLES,
        "temperature": 0.7,
        "algorithm": algorithm,
    }
    said = await batch.world.call(handler, LearnerInputs(operation=AdvantagesInputs(**asked)), policy, step=1)
    update = UpdateInputs(**asked, state=None, optim=OPTIM)
    made = await batch.world.call(handler, LearnerInputs(operation=update), policy, step=1)
    blob = await batch.world.context.blobs.get(said.outputs.advantages)
    return {
        "advantages": blob,
        "kl_coef": (said.outputs.kl_coef, made.outputs.kl_coef),
        "policy": (made.outputs.policy.digest, made.outputs.state.sha256),
        "metrics": (said.metrics, made.metrics),
    }


async def update_with_stored_credit(batch: StoredBatch, algorithm: AlgorithmConfig) -> Mapping[str, Any]:
    """An update whose advantages an earlier call has stored."""
    handler, policy = LearnerHandler(batch.world.settings), await batch.world.store_policy()
    await batch.sampled_by(policy)
    update = UpdateInputs(
        parts=(await batch.part(),),
        num_samples=NUM_SAMPLES,
        temperature=0.7,
        algorithm=algorithm,
        advantages=await batch.vectors("advantages", "old_logprobs"),
        state=None,
        optim=OPTIM,
    )
    made = await batch.world.call(handler, LearnerInputs(operation=update), policy, step=1)
    return {"policy": (made.outputs.policy.digest, made.outputs.state.sha256), "metrics": made.metrics}


async def fit(batch: StoredBatch) -> Mapping[str, Any]:
    """The critic's update."""
    world = batch.world
    weights = await world.put("critic", state_dict_to_blob(initial_value_model(world.model.path)))
    critic = PolicyRef(version=0, model=world.model, weights=weights)
    await batch.sampled_by(critic)
    update = ValueUpdateInputs(
        parts=(await batch.part(),),
        num_samples=NUM_SAMPLES,
        returns=await batch.vectors("returns"),
        state=None,
        optim=OPTIM,
        update=ValueUpdateConfig(ppo_epochs=2, cliprange_value=0.5),
    )
    made = await world.call(CriticHandler(world.settings), CriticInputs(operation=update), critic, step=1)
    return {"critic": (made.outputs.critic.digest, made.outputs.state.sha256), "metrics": made.metrics}


@pytest.mark.parametrize("stored_credit", [False, True])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_learners_advantages_update_and_metrics(tmp_path: Path, name: str, stored_credit: bool) -> None:
    ask = update_with_stored_credit if stored_credit else credit
    algorithm = ALGORITHMS[name]
    expected = answers(tmp_path, Stage.LEARNER, clean, lambda batch: ask(batch, algorithm))

    @FEW
    @given(choices=st.data())
    def check(choices: st.DataObject) -> None:
        assert answers(tmp_path, Stage.LEARNER, dirty(choices), lambda batch: ask(batch, algorithm)) == expected

    check()


def test_the_critics_update_and_metrics(tmp_path: Path) -> None:
    expected = answers(tmp_path, Stage.CRITIC, clean, fit)

    @FEW
    @given(choices=st.data())
    def check(choices: st.DataObject) -> None:
        assert answers(tmp_path, Stage.CRITIC, dirty(choices), fit) == expected

    check()
