"""The sampling rounds of one step: one round, or as many as it takes to fill the batch with groups that teach.

Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2) leaves out groups whose rewards are all equal and samples others
in their place, with the same policy. Each round has keys and randomness of its own. Groups beyond the batch are not
trained on: their rows are drawn again first, by the next step, so no row of an epoch is lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.runs.config.run_config import RunConfig
from controller.runs.config.to_wire import train_sampling
from controller.runs.context import RunContext
from controller.runs.data.position import DataPosition
from controller.runs.errors import RunFailed
from controller.runs.holding import START_HOLD_S, Holding
from controller.runs.judging import judge_batch, judge_useful
from controller.runs.manifest import Manifest
from controller.runs.migrating import migration_of
from controller.runs.plan_records import PlanRecords
from controller.runs.planning import Planned, plan_round
from controller.runs.prefilling import Prefilled, prefill_batch
from controller.runs.sampling import publish_prompts, sample_batch
from controller.scheduling.dynamic_sampling import rows_to_draw
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey, StageReply
from shared.contracts.reward import RewardOutputs
from shared.contracts.rollout import RolloutOutputs
from shared.contracts.stage import Purpose, Stage


class NothingToLearn(RunFailed):
    """Dynamic sampling found no group whose rewards differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRound:
    """One round, sampled."""

    batch: BatchKey
    planned: Planned
    prefilled: Prefilled | None
    """``None`` where the actors prefilled."""
    rollouts: tuple[RolloutOutputs, ...]
    """Of each call."""
    began_at: float
    """Unix seconds at which it was planned."""
    asked_at: float
    """Unix seconds at which actors were asked for."""
    sampled_at: float
    """Unix seconds at which the last completion was there."""

    @property
    def row_uids(self) -> tuple[str, ...]:
        """Its groups, as they were drawn."""
        return tuple(group.row_uid for group in self.planned.observations.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What a step has to train on, and what it took to get it."""

    parts: tuple[BatchPart, ...]
    """The groups to train on, by round."""
    rewards: tuple[StageReply[RewardOutputs], ...]
    """Of all groups that were sampled."""
    sampled: tuple[SampledRound, ...]
    position: DataPosition
    timings_s: Mapping[str, float]
    """Seconds of all rounds: of sampling, ``gen``, and of each stage that judged."""

    @property
    def rollouts(self) -> tuple[RolloutOutputs, ...]:
        """What the actors' calls made."""
        return tuple(outputs for one in self.sampled for outputs in one.rollouts)

    @property
    def num_rounds(self) -> int:
        """Rounds that it took."""
        return len(self.sampled)

    @property
    def num_sampled(self) -> int:
        """Groups of all rounds."""
        return sum(len(one.row_uids) for one in self.sampled)

    @property
    def num_trained(self) -> int:
        """Groups to train on."""
        return sum(len(part.row_uids) for part in self.parts)


def max_rounds(config: RunConfig) -> int:
    """The most rounds of one step."""
    filtering = config.algorithm.filter_groups
    return max(1, filtering.max_num_gen_batches) if filtering.enable else 1


async def sample_rounds(run: RunContext, head: Manifest, plans: PlanRecords, holding: Holding) -> Rounds:
    """Sample and judge the step's batch. Raises ``NothingToLearn``."""
    start = DataPosition(head.data_cursor, head.leftover_rows)
    wanted, filtering = run.config.data.train_batch_size, run.config.algorithm.filter_groups
    if not (filtering.enable and filtering.max_num_gen_batches):
        return await _sample_round(run, head, plans, holding, 0, start, wanted, num_wanted=None)
    rounds: Rounds | None = None
    for number in range(filtering.max_num_gen_batches):
        useful, drawn = (rounds.num_trained, rounds.num_sampled) if rounds else (0, 0)
        count = rows_to_draw(num_wanted=wanted, num_useful=useful, num_drawn=drawn)
        if count == 0:
            break
        position = rounds.position if rounds else start
        one = await _sample_round(run, head, plans, holding, number, position, count, num_wanted=wanted - useful)
        rounds = one if rounds is None else _joined(rounds, one)
    await holding.after(Stage.ROLLOUT)
    if rounds is None or not rounds.parts:
        raise NothingToLearn(
            f"step {head.step}: in {filtering.max_num_gen_batches} rounds no group had rewards that differ. Make the "
            "tasks easier or harder, raise rollout.n, or set algorithm.filter_groups.max_num_gen_batches to 0"
        )
    if rounds.num_trained < wanted:
        message = f"step {head.step} trains on {rounds.num_trained} of {wanted} groups after {rounds.num_rounds} rounds"
        await run.emit("log", {"level": "warning", "message": message})
    return rounds


async def _sample_round(
    run: RunContext,
    head: Manifest,
    plans: PlanRecords,
    holding: Holding,
    number: int,
    position: DataPosition,
    count: int,
    *,
    num_wanted: int | None,
) -> Rounds:
    """One round of ``count`` groups; with ``num_wanted`` at most so many are kept, and only those that teach."""
    clock = run.platform.now
    began_at = clock()
    prompts, rest = position.draw(run.prepared.train, run.prepared.sampler, count)
    batch = BatchKey(run=run.run, purpose=Purpose.TRAIN, step=head.step, round=number)
    planned = await plan_round(run, prompts, await holding.past(), seed=_seed(run, batch))
    await plans.add(batch, planned)
    asked_at = clock()
    num_replicas = planned.plan.num_actors - planned.plan.num_beside_learner
    hold = await holding.start_actors(num_replicas, until=asked_at + _hold_s(planned))
    prompts_ref = await publish_prompts(run, batch, prompts)
    prefilled = await prefill_batch(run, batch, planned.plan.prefill, prompts_ref, head.policy)
    prefilled_at = clock()
    rollouts = await sample_batch(
        run,
        batch,
        planned.plan,
        prompts_ref,
        head.policy,
        train_sampling(run.config, run.prepared.eos_token_ids),
        migration=migration_of(planned.observations, planned.policy),
        hold=hold,
    )
    sampled = SampledRound(
        batch=batch,
        planned=planned,
        prefilled=prefilled,
        rollouts=tuple(rollouts),
        began_at=began_at,
        asked_at=asked_at,
        sampled_at=clock(),
    )
    row_uids = sampled.row_uids
    if num_wanted is None:
        await holding.after(Stage.ROLLOUT)
        judged = await judge_batch(run, head, batch, row_uids, prompts_ref)
    else:
        judged = await judge_useful(run, head, batch, row_uids, prompts_ref, num_wanted=num_wanted)
    return Rounds(
        parts=() if judged.part is None else (judged.part,),
        rewards=judged.rewards,
        sampled=(sampled,),
        position=rest.with_leftover(judged.surplus),
        timings_s={
            **({} if prefilled is None else {"prefill": prefilled_at - asked_at}),
            "gen": sampled.sampled_at - began_at,
            **judged.timings_s,
        },
    )


def _hold_s(planned: Planned) -> float:
    expected = planned.plan.expected
    return START_HOLD_S if expected is None else max(START_HOLD_S, 2 * expected.time_s)


def _seed(run: RunContext, batch: BatchKey) -> int:
    """Of what a baseline draws: another one in every round, the same in a repeated one."""
    return run.config.trainer.seed + batch.step * 1_000_003 + batch.round


def _joined(first: Rounds, second: Rounds) -> Rounds:
    return replace(
        first,
        parts=(*first.parts, *second.parts),
        rewards=(*first.rewards, *second.rewards),
        sampled=(*first.sampled, *second.sampled),
        position=second.position,
        timings_s={
            name: first.timings_s.get(name, 0.0) + second.timings_s.get(name, 0.0)
            for name in {**first.timings_s, **second.timings_s}
        },
    )
