"""What each technique is expected to save in a step: its own entry in the plan and in the step's metrics.

Each is compared with the same plan without it, so the figures do not add up: what deduplication saves is less where a
better assignment has shortened everything. Seconds and unit-seconds are those of the decode profile.
"""

import collections
from collections.abc import Mapping, Sequence

from controller.scheduling.actor_count import Candidate
from controller.scheduling.actor_time import Work
from controller.scheduling.assignment import Arrangement, arrange
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.deduplication import deduplicated
from controller.scheduling.observations import SchedulePolicy, StepObservations
from controller.scheduling.parts import Parts
from controller.scheduling.prefill_choice import PrefillPlan

Figures = Mapping[str, float]


def technique_figures(
    observations: StepObservations,
    policy: SchedulePolicy,
    parts: Parts,
    arrangement: Arrangement,
    table: Sequence[Candidate],
    prefill: PrefillPlan,
    profile: DecodeProfile,
) -> dict[str, Figures]:
    """By technique: deduplication, prefill, assignment, scaling, lengths."""
    figures = {
        "deduplication": _deduplication(observations, prefill, profile),
        "prefill": {"is_apart": float(prefill.is_apart), "prefill_s": prefill.prefill_s},
        "lengths": _lengths(observations, parts.work),
    }
    if policy.assignment != "in_order":
        figures["assignment"] = _assignment(observations, parts, arrangement, profile, is_retimed=prefill.is_apart)
    if policy.scaling and policy.num_actors is None:
        figures["scaling"] = _scaling(table, len(arrangement))
    return figures


def _deduplication(observations: StepObservations, prefill: PrefillPlan, profile: DecodeProfile) -> Figures:
    """Against a prefill of every sample by itself."""
    found = deduplicated(
        sum(group.num_prompt_tokens for group in observations.groups),
        group_size=observations.group_size,
        num_computed_tokens=prefill.num_tokens,
    )
    seconds = found.num_saved_tokens * profile.prefill_token_s
    return {
        "saved_tokens": float(found.num_saved_tokens),
        "saved_share": found.saved_share,
        "saved_unit_s": seconds * observations.platform.units_per_actor,
    }


def _assignment(
    observations: StepObservations,
    parts: Parts,
    arrangement: Arrangement,
    profile: DecodeProfile,
    *,
    is_retimed: bool,
) -> Figures:
    """Against equal counts in the order of the batch, for as many actors."""
    plain = arrange(parts.work, profile, len(arrangement), "in_order")
    seconds = arrangement.timed(parts.work, profile) if is_retimed else arrangement.seconds
    return {
        "saved_time_s": float(plain.seconds.max() - seconds.max()),
        "saved_unit_s": float(plain.seconds.sum() - seconds.sum()) * observations.platform.units_per_actor,
    }


def _scaling(table: Sequence[Candidate], num_actors: int) -> Figures:
    """Against as many actors as there may be."""
    chosen, most = next(one for one in table if one.num_actors == num_actors), table[-1]
    return {
        "num_actors": float(num_actors),
        "num_candidates": float(len(table)),
        "saved_time_s": most.time_s - chosen.time_s,
        "saved_unit_s": most.cost - chosen.cost,
    }


def _lengths(observations: StepObservations, work: Work) -> Figures:
    """Where the estimates come from, as shares of the prompts, and their mean and longest."""
    sources = collections.Counter(group.estimate.source for group in observations.groups)
    return {
        **{f"from_{source}": sources[source] / sources.total() for source in ("history", "answer", "default")},
        "mean_tokens": float(work.tokens.sum() / work.counts.sum()),
        "max_tokens": float(work.longest.max()),
    }
