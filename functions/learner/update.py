"""One step of the learner: a batch of rows in, a changed model out.

    rows ─▶ advantages ─▶ mini-batches ─▶ micro-batches ─▶ logprobs ─▶ loss ─▶ gradient ─▶ optimizer update
            (credit)      (one update      (one forward                        (summed over
                           each)            and backward)                       the mini-batch)

Deterministic: rows are sorted first, nothing is drawn at random, and dropout is off, for the ratio compares
logprobs of two passes over the same weights. On CPU, with the same number of threads and ranks, a replay gives the
same bits, in however many calls.

Shapes: B rows, T longest completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.learner.config import LearnerConfig
from functions.learner.credit import needs_old_logprobs
from functions.learner.policy_logprobs import plan_of_all
from functions.learner.ranks.group import ONE_RANK, Ranks
from functions.learner.ranks.rounds import Rounds
from functions.learner.ranks.sharing import spread_out
from functions.learner.rows import TrainRow
from functions.learner.train_batch import TrainBatch, prepare_batch, stacked
from functions.learner.work import Work
from shared.training.batching import MiniBatch
from shared.training.errors import DamagedState
from shared.training.forward import trained_logits
from shared.training.optimizer import configure
from shared.training.progress import UpdateProgress
from shared.training.prompt_sharing import supports_prompt_sharing
from shared.training.rows import sort_rows
from shared.training.schedule import learning_rate
from shared.training.scoring import refuse_unknown_tokens
from shared.training.time_budget import UNLIMITED, Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What a step did, or did so far."""

    metrics: dict[str, float]
    """Of the whole step; while it is not complete, of its updates so far."""
    num_updates: int
    """Optimizer updates of this step that the model now contains."""
    packing_plan: list[MiniBatch] | None
    """Numbers of the sorted rows in every micro-batch of every mini-batch; each epoch goes through all of it. None
    before it is made."""
    next_kl_coef: float | None
    """The KL controller's answer; None where no KL penalty was computed."""
    progress: UpdateProgress | None
    """How to go on; None when the step is complete."""
    num_passes: int
    """Micro-batches that this call computed, scoring and training."""


def update_policy(
    model: PreTrainedModel,
    optimizer: AdamW,
    rows: Sequence[TrainRow],
    config: LearnerConfig,
    step: int,
    *,
    budget: Budget = UNLIMITED,
    progress: UpdateProgress | None = None,
    packing_plan: list[MiniBatch] | None = None,
    ranks: Ranks = ONE_RANK,
) -> UpdateResult:
    """Trains the model in place on one batch, given in any order.

    `budget` is asked before every micro-batch. Where it ends before the step, the rest is made by a call with the same
    arguments, the weights and optimizer state that this one left, and its `progress`; such calls together are
    bit-equal to a single one. `packing_plan` is an earlier attempt's, to be made again. With several `ranks`, each
    calls this with all rows and its part of the model.

    A step of one update takes the learner's own logprobs, detached, as the old ones: they are those of the policy
    that sampled, and it saves a forward pass. A longer step computes them once, before its first update; so does one
    whose rewards hold a KL penalty.

    Raises InvalidRows, MissingReward, MissingValues, GroupTooSmall and DamagedState before anything has changed.
    Raises NonFiniteGradient without applying that update; earlier ones of the call remain, so the caller drops the
    model.
    """
    share_prompts = supports_prompt_sharing(model)
    ordered = sort_rows(rows)
    refuse_unknown_tokens(ordered, model.get_input_embeddings().weight.shape[0])
    at = UpdateProgress(packing_plan=packing_plan) if progress is None else progress.branch()
    _refuse_foreign_progress(at, ordered)
    model.eval()
    with trained_logits(model, share_prompts=share_prompts, config=config.compute) as logits_of:
        work = Work(model, optimizer, logits_of, ordered, config, Rounds(ordered, ranks, budget), at)
        known = stacked([row.old_logprobs for row in ordered])
        if known is None and _credit_needs_logprobs(ordered, config):
            if not work.score(plan_of_all(ordered, config.max_token_len, share_prompts=share_prompts)):
                return _cut(work)
            known = at.old_logprobs
        batch = prepare_batch(ordered, config, known)
        if at.packing_plan is None:
            at.packing_plan = _packing_plan(batch, config, ranks, share_prompts=share_prompts)
        updates = at.packing_plan * config.ppo_epochs
        if known is None and len(updates) > 1:
            if not work.score([micro_batch for mini_batch in at.packing_plan for micro_batch in mini_batch]):
                return _cut(work)
            known = at.old_logprobs
        lr = learning_rate(config, step)
        configure(optimizer, config, lr)
        if not work.train(batch, updates, None if len(updates) == 1 else known):
            return _cut(work)
    return UpdateResult(
        metrics={**batch.metrics, "actor/lr": lr, **at.sums.reduce()},
        num_updates=at.next_update,
        packing_plan=at.packing_plan,
        next_kl_coef=batch.next_kl_coef,
        progress=None,
        num_passes=work.num_passes,
    )


def _cut(work: Work) -> UpdateResult:
    return UpdateResult(
        metrics=work.at.sums.reduce(),
        num_updates=work.at.next_update,
        packing_plan=work.at.packing_plan,
        next_kl_coef=None,
        progress=work.at,
        num_passes=work.num_passes,
    )


def _packing_plan(batch: TrainBatch, config: LearnerConfig, ranks: Ranks, *, share_prompts: bool) -> list[MiniBatch]:
    return [
        spread_out(batch.rows, mini_batch, config.max_token_len, ranks.size, share_prompts=share_prompts)
        for mini_batch in batch.packing_plan(config, share_prompts=share_prompts)
    ]


def _credit_needs_logprobs(rows: Sequence[TrainRow], config: LearnerConfig) -> bool:
    """Whether the rows' advantages are still to be computed, and need the policy's own logprobs."""
    return needs_old_logprobs(config.credit) and any(row.advantages is None for row in rows)


def _refuse_foreign_progress(at: UpdateProgress, rows: Sequence[TrainRow]) -> None:
    """Raises DamagedState for the progress, or the packing plan, of another batch."""
    shape = (len(rows), max(row.num_tokens for row in rows))
    if at.old_logprobs is not None and at.old_logprobs.shape != shape:
        raise DamagedState(
            f"the step's progress belongs to another batch: its logprobs are {tuple(at.old_logprobs.shape)}, "
            f"this batch is {shape}"
        )
    at.refuse_foreign_plan(len(rows))
