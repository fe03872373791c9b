"""From the rewards of a batch to the advantages of its tokens.

    rewards ─▶ shaping ─▶ KL penalty per token ─▶ advantage estimator ─▶ advantages, returns
            (too long)   (distance from the       (groups, values or
                          reference)               the whole batch)

γ, λ and whitening are here and nowhere else, over the whole batch at once.

Shapes: B rows, T longest completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from functions.learner.advantage import ADVANTAGE_ESTIMATORS
from functions.learner.advantage.groups import require_rewards
from functions.learner.advantage.inputs import Advantages, CreditInputs
from functions.learner.credit_config import CreditConfig
from functions.learner.errors import MissingValues
from functions.learner.kl.reward_penalty import KlPenalty, kl_penalty
from functions.learner.metrics import critic_metrics, reward_metrics
from functions.learner.rows import TrainRow
from functions.learner.shaping.overlong import overlong_penalties
from functions.learner.shaping.truncation import rows_out_of_loss
from shared.training.padding import pad_to_batch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Credit:
    """What a batch's rewards say about its tokens."""

    advantages: Tensor
    """[B, T] float32, 0 where the token is not in the loss."""
    returns: Tensor
    """[B, T] float32, 0 where no token was sampled."""
    next_kl_coef: float | None
    """The KL controller's answer; None where no KL penalty is in the reward."""
    metrics: dict[str, float]


def assign_credit(rows: Sequence[TrainRow], config: CreditConfig, old_logprobs: Tensor | None) -> Credit:
    """The credit of sorted rows. `old_logprobs` `[B, T]` of the policy that sampled, where `needs_old_logprobs`.

    Raises MissingReward, MissingValues, and what the estimator refuses.
    """
    rewards, penalties = require_rewards(rows), overlong_penalties(rows, config)
    sampled = pad_to_batch([row.loss_mask for row in rows])
    kl = _kl_penalty(rows, config, old_logprobs, sampled)
    values = _values(rows)
    inputs = CreditInputs(
        rows=rows,
        rewards=[reward - penalty if penalty else reward for reward, penalty in zip(rewards, penalties, strict=True)],
        token_penalties=None if kl is None else kl.token_penalties,
        values=values,
        sampled=sampled,
        trained=trained_tokens(rows, config),
    )
    credit = ADVANTAGE_ESTIMATORS[config.adv_estimator](inputs, config)
    return Credit(
        advantages=credit.advantages,
        returns=credit.returns,
        next_kl_coef=None if kl is None else kl.next_coef,
        metrics=_metrics(inputs, credit, kl, penalties, config),
    )


def needs_old_logprobs(config: CreditConfig) -> bool:
    """Whether advantages depend on the learner's own logprobs."""
    return config.kl_penalty is not None


def trained_tokens(rows: Sequence[TrainRow], config: CreditConfig) -> Tensor:
    """True where a token is in the loss: sampled, and not of a row that has no place in it. [B, T]"""
    trained = pad_to_batch([row.loss_mask for row in rows])
    trained[sorted(rows_out_of_loss(rows, config))] = False
    return trained


def _kl_penalty(
    rows: Sequence[TrainRow], config: CreditConfig, old_logprobs: Tensor | None, sampled: Tensor
) -> KlPenalty | None:
    if not needs_old_logprobs(config):
        return None
    reference = [row.reference_logprobs for row in rows if row.reference_logprobs is not None]
    if len(reference) < len(rows) or old_logprobs is None:
        raise MissingValues(
            "reference_logprobs: the KL penalty in the reward compares with the reference's; give parts with "
            "reference_logprobs, or an algorithm without kl_in_reward"
        )
    return kl_penalty(old_logprobs, pad_to_batch(reference), sampled, config)


def _values(rows: Sequence[TrainRow]) -> Tensor | None:
    values = [row.values for row in rows if row.values is not None]
    return pad_to_batch(values) if len(values) == len(rows) else None


def _metrics(
    inputs: CreditInputs, credit: Advantages, kl: KlPenalty | None, penalties: Sequence[float], config: CreditConfig
) -> dict[str, float]:
    metrics = reward_metrics(inputs.completion_rewards(), credit.advantages[inputs.trained])
    if inputs.values is not None:
        metrics |= critic_metrics(inputs.values[inputs.sampled], credit.returns[inputs.sampled])
    if kl is not None:
        metrics |= {"actor/reward_kl_penalty": kl.kl, "actor/reward_kl_penalty_coeff": config.kl_coef}
    if config.overlong_len is not None:
        metrics["reward/overlong_penalty/mean"] = sum(penalties) / len(penalties)
    return metrics
