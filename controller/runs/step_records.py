"""What a step leaves besides its head: lengths, plan and trace in the store, metrics for people, a learnt speed."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from controller.runs.context import RunContext
from controller.runs.holding import Holding
from controller.runs.length_history import extended, format_records, records_of, row_and_epoch
from controller.runs.measuring import measure_round
from controller.runs.observed import ObservedRound
from controller.runs.plan_records import PlanRecord, PlanRecords, format_record, plan_digest
from controller.runs.profiles import learnt, read_speed, with_lengths, with_prefill, with_stages, write_speed
from controller.runs.schedule_metrics import schedule_metrics
from controller.runs.trace import TraceRound, TraceRow, TraceStay, TraceStep, encode_step
from shared.codec.completion_facts import CompletionFacts
from shared.contracts.completion import num_migrations
from shared.store.records import StepRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A step's records and the metrics of its schedule."""

    records: StepRecords
    metrics: dict[str, float]


async def record_step(
    run: RunContext,
    rounds: Sequence[ObservedRound],
    plans: PlanRecords,
    holding: Holding,
    timings_s: Mapping[str, float],
) -> Recorded:
    """Put together what the step leaves, and learn how fast its actors were.

    What takes long for a large batch is beside the event loop, which has the run's lease to keep.
    """
    measured, decided = [measure_round(one) for one in rounds], holding.decided
    metrics = await asyncio.to_thread(schedule_metrics, rounds, measured, decided)
    for one in rounds:
        prefilled = one.sampled.prefilled
        for name, value in {} if prefilled is None else prefilled.metrics().items():
            metrics[name] = metrics.get(name, 0.0) + value
    await _learn(run, rounds, timings_s, metrics)
    plan = plans.finished(measured, decided)
    records = await asyncio.to_thread(step_records, rounds, plan, timings_s, has_trace=run.config.trainer.trace)
    return Recorded(records=records, metrics=metrics)


def step_records(
    rounds: Sequence[ObservedRound], plan: PlanRecord, timings_s: Mapping[str, float], *, has_trace: bool
) -> StepRecords:
    """What is stored with the head behind the step. Pure."""
    return StepRecords(
        step=plan.step,
        lengths=_lengths(rounds),
        plan=format_record(plan),
        trace=encode_step(trace_step(rounds, timings_s), trace_rows(rounds)) if has_trace else None,
    )


async def _learn(
    run: RunContext, rounds: Sequence[ObservedRound], timings_s: Mapping[str, float], metrics: Mapping[str, float]
) -> None:
    known = await read_speed(run)
    outputs = [outputs for one in rounds for outputs in one.sampled.rollouts]
    speed = learnt(
        known,
        outputs,
        threads=rounds[0].sampled.planned.plan.rollout_threads,
        max_num_sequences=run.config.rollout.max_num_seqs,
    )
    if speed is not None:
        speed = with_prefill(speed, [one.sampled.prefilled for one in rounds if one.sampled.prefilled is not None])
        num_tokens = sum(completion.num_tokens for one in rounds for completion in one.completions)
        await write_speed(run, with_lengths(with_stages(speed, timings_s, num_tokens), metrics))


def _lengths(rounds: Sequence[ObservedRound]) -> dict[str, str]:
    """The rows' whole histories, with this step's lengths."""
    history = {row: records for one in rounds for row, records in one.sampled.planned.history.items()}
    window = rounds[0].sampled.planned.policy.length_window
    records = records_of(completion for one in rounds for completion in one.completions)
    return {row: format_records(found) for row, found in extended(history, records, window=window).items()}


def trace_step(rounds: Sequence[ObservedRound], timings_s: Mapping[str, float]) -> TraceStep:
    """The trace's line of the step. Pure."""
    first = rounds[0].sampled
    observations = first.planned.observations
    return TraceStep(
        step=first.batch.step,
        group_size=observations.group_size,
        max_tokens=observations.max_tokens,
        max_num_sequences=observations.max_num_sequences,
        num_completions=sum(len(one.completions) for one in rounds),
        profile=None if observations.profile is None else asdict(observations.profile),
        timings_s=timings_s,
        rounds=tuple(_trace_round(one) for one in rounds),
    )


def _trace_round(observed: ObservedRound) -> TraceRound:
    sampled = observed.sampled
    plan = sampled.planned.plan
    return TraceRound(
        round=sampled.batch.round,
        plan_digest=plan_digest(plan),
        num_actors=plan.num_actors,
        num_groups=len(sampled.row_uids),
        began_at=sampled.began_at,
        sampled_at=sampled.sampled_at,
        expected_time_s=None if plan.expected is None else plan.expected.time_s,
        expected_replica_s=None if plan.expected is None else plan.expected.replica_s,
    )


def trace_rows(rounds: Sequence[ObservedRound]) -> list[TraceRow]:
    """The trace's lines of all completions. Pure."""
    return [row for one in rounds for row in _round_rows(one)]


def _round_rows(observed: ObservedRound) -> list[TraceRow]:
    sampled = observed.sampled
    estimates = sampled.planned.estimates
    actors = {
        (item.row_uid, sample): number
        for number, items in enumerate(sampled.planned.plan.assigned)
        for item in items
        for sample in item.samples
    }
    rows = []
    for facts in observed.completions:
        row, epoch = row_and_epoch(facts.id.row_uid)
        rows.append(
            TraceRow(
                step=sampled.batch.step,
                round=sampled.batch.round,
                row=row,
                epoch=epoch,
                sample=facts.id.sample,
                actor=actors.get((facts.id.row_uid, facts.id.sample)),
                estimated_tokens=estimates[facts.id.row_uid].mean,
                num_prompt_tokens=facts.prompt_num_tokens,
                num_tokens=facts.num_tokens,
                finish_reason=facts.finish_reason,
                num_migrations=num_migrations(facts.stays),
                stays=trace_stays(facts),
            )
        )
    return rows


def trace_stays(facts: CompletionFacts) -> tuple[TraceStay, ...]:
    """Where a completion was; where the function did not say so, the one replica that finished it."""
    if not facts.stays:
        return (
            TraceStay(
                shard=None,
                instance=facts.instance,
                started_at=facts.started_at,
                first_token_at=None,
                ended_at=facts.ended_at,
                num_tokens=facts.num_tokens,
            ),
        )
    return tuple(
        TraceStay(
            shard=stay.shard,
            instance=stay.instance,
            started_at=stay.started_at,
            first_token_at=stay.first_token_at,
            ended_at=stay.ended_at,
            num_tokens=stay.num_tokens,
        )
        for stay in facts.stays
    )
