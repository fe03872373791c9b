"""Whether a group is cut in slices, so that several actors sample it.

A group belongs together: its prompt is prefilled once (``assignment``). But where one group takes longer than
everything else, the step waits for the actor that has it, whatever the others do. Slices shorten the part of its time
that each token costs, and leave the part that its longest completion costs. So the groups that alone take longer than a
fair share of the step are cut into as many slices as they have shares, everything is assigned anew, and that stands if
time and cost together, weighed as everywhere, become better. Fewer groups than actors are the other case: ``plan``
compares them in slices from the start.
"""

import math

import numpy as np

from controller.scheduling.actor_time import TimedWork
from controller.scheduling.assignment import Arrangement, arrange
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.parts import Parts, sliced_groups

LEAST_PART = 0.25
"""Of the slowest actor's time: what the tokens of one group take, if it is to be split."""
LEAST_GAIN = 0.05
"""Relative gain below which a group is left in one piece: estimates are no better than that."""


def split_long_groups(
    parts: Parts, arrangement: Arrangement, profile: DecodeProfile, lambda_: float, *, shared_threads: bool
) -> tuple[Parts, Arrangement]:
    """The parts and their assignment to the same number of actors, with long groups in slices if that pays.

    With ``shared_threads`` the cost is that of the time.
    """
    num_actors, size = len(arrangement), parts.group_size
    if parts.place is not None or num_actors == 1 or size == 1:
        return parts, arrangement
    work = parts.work
    places = np.arange(len(parts.groups))
    alone = TimedWork(work, profile).seconds(places, places + 1)
    divisible = alone - profile.base_s * work.longest - profile.prefill_token_s * work.prompt_tokens
    if divisible.max() < LEAST_PART * arrangement.seconds.max():
        return parts, arrangement
    share = float(arrangement.seconds.mean())
    slices = np.empty(len(parts.groups), dtype=np.int64)
    slices[work.order] = np.clip(np.ceil(alone / share), 1, min(size, num_actors))
    cut = sliced_groups(parts.groups, size, slices.tolist())
    changed = arrange(cut.work, profile, num_actors, "sorted_unequal")
    faster = math.log(arrangement.seconds.max() / changed.seconds.max())
    cheaper = faster if shared_threads else math.log(arrangement.seconds.sum() / changed.seconds.sum())
    gain = lambda_ * faster + (1 - lambda_) * cheaper
    return (cut, changed) if gain > LEAST_GAIN else (parts, arrangement)
