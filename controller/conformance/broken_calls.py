"""A call for each stage that meets its contract and names what is not there: made without a model."""

import os
from typing import Any

from controller.conformance.workshop import Workshop
from shared.contracts.call import BatchKey, StageCall
from shared.contracts.critic import CriticInit, CriticInputs
from shared.contracts.learner import InitInputs, LearnerInputs
from shared.contracts.policy import ModelRef, PolicyRef
from shared.contracts.prefill import PrefillInputs
from shared.contracts.reference import ReferenceInputs
from shared.contracts.reward import RewardInputs, RuleReward
from shared.contracts.rollout import RolloutInputs, Sampling
from shared.contracts.stage import Stage
from shared.contracts.wire import Wire

ROWS = ("row-0",)


def broken_call(workshop: Workshop, *, batch: BatchKey | None = None, fence: int | None = None) -> StageCall[Any]:
    """A call that the stage has to refuse by 4xx, for its prompts, weights or model do not exist."""
    needs_policy = workshop.stage in (Stage.PREFILL, Stage.ROLLOUT, Stage.REFERENCE)
    policy = PolicyRef(version=0, model=_no_model(), weights=workshop.missing_blob("weights")) if needs_policy else None
    options = {} if fence is None else {"fence": fence}
    return workshop.call(_inputs(workshop), policy=policy, batch=batch, **options)


def _no_model() -> ModelRef:
    """Another one each time, so that two calls differ."""
    return ModelRef(path=f"/no/such/model/{os.urandom(8).hex()}")


def _inputs(workshop: Workshop) -> Wire:
    prompts = workshop.missing_blob("prompts")
    match workshop.stage:
        case Stage.PREFILL:
            return PrefillInputs(prompts=prompts, max_num_prefixes=1)
        case Stage.ROLLOUT:
            return RolloutInputs(
                prompts=prompts,
                num_samples=1,
                sampling=Sampling(temperature=1.0, max_tokens=1, eos_token_ids=(0,)),
                run_seed=0,
                max_num_sequences=1,
            )
        case Stage.REWARD:
            return RewardInputs(
                prompts=prompts, row_uids=ROWS, num_samples=1, model=_no_model(), reward=RuleReward(name="exact_number")
            )
        case Stage.REFERENCE:
            return ReferenceInputs(prompts=prompts, row_uids=ROWS, num_samples=1, temperature=1.0)
        case Stage.CRITIC:
            return CriticInputs(operation=CriticInit(model=_no_model()))
        case Stage.LEARNER:
            return LearnerInputs(operation=InitInputs(model=_no_model()))
