"""What scheduling came to in a step: expected against real, and what each technique saved. Pure.

What is measured is named by what it counts. What cannot be measured, since it did not happen, is computed for the real
lengths by the measured profile, and named ``predicted``.
"""

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from controller.runs.measuring import relative_error
from controller.runs.observed import ObservedRound
from controller.runs.past_steps import MEAN_TOKENS, PER_ANSWER_TOKEN
from controller.runs.plan_records import HoldingRecord, Measured
from controller.scheduling.actor_count import shared_profile
from controller.scheduling.actor_time import Load, actor_seconds
from controller.scheduling.assignment import assign_in_order
from controller.scheduling.observations import StepObservations
from controller.scheduling.plan import PRIOR, StepPlan
from shared.contracts.completion import num_migrations
from shared.contracts.rollout import WorkItem


def schedule_metrics(
    rounds: Sequence[ObservedRound], measured: Sequence[Measured], holding: Sequence[HoldingRecord]
) -> dict[str, float]:
    """All metrics of scheduling of one step, by name."""
    return {
        **_errors(rounds, measured),
        **_lengths(rounds),
        **_deduplication(rounds),
        **_assignment(rounds),
        **_scaling(rounds),
        **_migration(rounds),
        **_prefill(rounds),
        "schedule/locality/num_unhonoured": float(sum(len(one.sampled.planned.plan.unhonoured) for one in rounds)),
        **_holding(holding),
    }


def _errors(rounds: Sequence[ObservedRound], measured: Sequence[Measured]) -> dict[str, float]:
    """Of all rounds together."""
    expected = [one.sampled.planned.plan.expected for one in rounds]
    metrics = {"schedule/num_actors": float(rounds[0].sampled.planned.plan.num_actors)}
    known = [one for one in expected if one is not None]
    if len(known) < len(expected):
        return metrics
    for name, hoped, took in (
        ("time", sum(one.time_s for one in known), sum(one.time_s for one in measured)),
        ("cost", sum(one.unit_s for one in known), sum(one.unit_s for one in measured)),
    ):
        metrics[f"schedule/expected_{name}"] = hoped
        metrics[f"schedule/measured_{name}"] = took
        error = relative_error(hoped, took)
        if error is not None:
            metrics[f"schedule/{name}_error"] = error
    return metrics


def _lengths(rounds: Sequence[ObservedRound]) -> dict[str, float]:
    """How well lengths were known: only the ranking of the groups matters for an assignment."""
    real = {row: tuple(lengths.values()) for one in rounds for row, lengths in lengths_by_sample(one).items()}
    estimates = {row: one for round_ in rounds for row, one in round_.sampled.planned.estimates.items()}
    answers = {row: tokens for round_ in rounds for row, tokens in round_.sampled.planned.answers.items()}
    if not real:
        return {}
    means = {row: statistics.fmean(lengths) for row, lengths in real.items()}
    metrics = {
        MEAN_TOKENS: statistics.fmean(length for lengths in real.values() for length in lengths),
        "schedule/lengths/mean_error": statistics.fmean(abs(estimates[row].mean - means[row]) for row in real),
        "schedule/lengths/share_known": statistics.fmean(estimates[row].source == "history" for row in real),
    }
    rows = sorted(real)
    correlation = rank_correlation([estimates[row].max for row in rows], [float(max(real[row])) for row in rows])
    if correlation is not None:
        metrics["schedule/lengths/rank_correlation"] = correlation
    answered = [row for row in real if answers.get(row)]
    if answered:
        metrics[PER_ANSWER_TOKEN] = sum(means[row] for row in answered) / sum(answers[row] for row in answered)
    return metrics


def _assignment(rounds: Sequence[ObservedRound]) -> dict[str, float]:
    """Against the same number of actors that take the prompts as they come, both for the real lengths."""
    time_s = replica_s = 0.0
    for one in rounds:
        planned = one.sampled.planned
        real = lengths_by_sample(one)
        items = [item for actor in planned.plan.assigned for item in actor]
        place = {group.row_uid: number for number, group in enumerate(planned.observations.groups)}
        items.sort(key=lambda item: (place[item.row_uid], item.samples))
        chosen = _seconds(planned.plan, planned.plan.assigned, planned.observations, real)
        in_order = _seconds(planned.plan, assign_in_order(items, planned.plan.num_actors), planned.observations, real)
        time_s += max(in_order) - max(chosen)
        replica_s += sum(in_order) - sum(chosen)
    return {
        "schedule/assignment/predicted_time_saved_s": time_s,
        "schedule/assignment/predicted_replica_saved_s": replica_s,
    }


def _seconds(
    plan: StepPlan,
    assigned: Sequence[Sequence[WorkItem]],
    observations: StepObservations,
    real: Mapping[str, Mapping[int, int]],
) -> list[float]:
    """Seconds of each actor for the real lengths, by the profile that the plan had."""
    profile = observations.profile or replace(PRIOR, max_num_sequences=observations.max_num_sequences)
    resources = observations.resources
    if resources.shared_threads:
        profile = shared_profile(profile, plan.num_actors, resources.num_threads, observations.profile_threads)
    prompts = {group.row_uid: group.num_prompt_tokens for group in observations.groups}
    return [
        actor_seconds(
            [
                Load(num_prompt_tokens=prompts[item.row_uid], lengths=lengths)
                for item in items
                if (lengths := _sorted_lengths(item, real))
            ],
            profile,
        )
        for items in assigned
    ]


def _sorted_lengths(item: WorkItem, real: Mapping[str, Mapping[int, int]]) -> tuple[float, ...]:
    found = real.get(item.row_uid, {})
    return tuple(sorted(float(found[sample]) for sample in item.samples if sample in found))


def _scaling(rounds: Sequence[ObservedRound]) -> dict[str, float]:
    """Against the most actors there could have been, both by the plan's own expectation."""
    time_s = cost = 0.0
    for one in rounds:
        table = one.sampled.planned.plan.candidates
        chosen = next((each for each in table if each.num_actors == one.sampled.planned.plan.num_actors), None)
        if chosen is not None:
            time_s += table[-1].time_s - chosen.time_s
            cost += table[-1].cost - chosen.cost
    return {"schedule/scaling/predicted_time_saved_s": time_s, "schedule/scaling/predicted_cost_saved": cost}


def _deduplication(rounds: Sequence[ObservedRound]) -> dict[str, float]:
    """Against a prefill of each completion by itself. Empty where the function does not count its prefill."""
    computed = sum(outputs.prefill_tokens for one in rounds for outputs in one.sampled.rollouts)
    repeated = sum(completion.prompt_num_tokens for one in rounds for completion in one.completions)
    if not computed or not repeated:
        return {}
    return {
        "schedule/dedup/prefill_tokens": float(computed),
        "schedule/dedup/prefill_tokens_saved": float(repeated - computed),
        "schedule/dedup/saved_share": 1 - computed / repeated,
    }


def _migration(rounds: Sequence[ObservedRound]) -> dict[str, float]:
    """What moved between replicas, and what replicas that left early were not held for."""
    moves = [stays for one in rounds for completion in one.completions if num_migrations(stays := completion.stays)]
    freed = [(one.sampled.sampled_at - at) for one in rounds for at in _freed_early(one)]
    return {
        "schedule/migration/num_sequences": float(len(moves)),
        "schedule/migration/num_tokens": float(
            sum(
                before.num_tokens
                for stays in moves
                for before, after in pairwise(stays)
                if before.instance != after.instance
            )
        ),
        "schedule/migration/num_actors_released_early": float(len(freed)),
        "schedule/migration/replica_saved_s": sum(freed),
    }


def _freed_early(observed: ObservedRound) -> list[float]:
    """When replicas were free that had been told to end before the round's last completion was there."""
    sampled = observed.sampled
    return [
        life.ended_at
        for life in observed.lives
        if life.started_at is not None
        and life.started_at < sampled.sampled_at
        and life.draining_at is not None
        and life.ended_at is not None
        and sampled.asked_at < life.ended_at < sampled.sampled_at
    ]


def _prefill(rounds: Sequence[ObservedRound]) -> dict[str, float]:
    """Prefix KV that was computed apart, and what the actors found of it."""
    outputs = [outputs for one in rounds for outputs in one.sampled.rollouts]
    plans = [one.sampled.planned.plan.prefill for one in rounds]
    apart = sum(plan is not None and plan.mode == "disaggregated" for plan in plans)
    counts = {
        "hits": sum(one.num_prefix_hits for one in outputs),
        "misses": sum(one.num_prefix_misses for one in outputs),
        "late": sum(one.num_prefix_late for one in outputs),
        "damaged": sum(one.num_prefix_damaged for one in outputs),
        "fetched_bytes": sum(one.prefix_bytes for one in outputs),
        "fetch_s": sum(one.prefix_s for one in outputs),
        "reused_tokens": sum(one.reused_tokens for one in outputs),
    }
    metrics = {"schedule/prefill/disaggregated": apart / len(plans)}
    return metrics | {f"schedule/prefill/{name}": float(count) for name, count in counts.items()}


def _holding(holding: Sequence[HoldingRecord]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for one in holding:
        metrics[f"schedule/holding/{one.stage}/held"] = float(one.decision == "hold")
        metrics[f"schedule/holding/{one.stage}/predicted_saved_s"] = one.predicted_saved_s
    return metrics


def lengths_by_sample(observed: ObservedRound) -> dict[str, dict[int, int]]:
    """Real tokens by row uid and sample."""
    found: dict[str, dict[int, int]] = {}
    for one in observed.completions:
        found.setdefault(one.id.row_uid, {})[one.id.sample] = one.num_tokens
    return found


def rank_correlation(expected: Sequence[float], real: Sequence[float]) -> float | None:
    """Spearman's: 1 where the order is right, 0 where it says nothing; ``None`` where either has no order at all."""
    if len(set(expected)) < 2 or len(set(real)) < 2:
        return None
    return statistics.correlation(_ranks(expected), _ranks(real))


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in their order; equal ones share the mean of theirs."""
    order = sorted(values)
    return [(bisect_left(order, value) + bisect_right(order, value)) / 2 for value in values]
