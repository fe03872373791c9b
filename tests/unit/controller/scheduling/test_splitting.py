"""Whether a long group is cut in slices."""

from controller.scheduling.assignment import arrange
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.observations import PromptGroup
from controller.scheduling.parts import Parts, whole_groups
from controller.scheduling.splitting import split_long_groups

BUSY = DecodeProfile(base_s=1e-4, per_sequence_s=1e-3, per_context_token_s=0.0, prefill_token_s=1e-6)
"""Every token costs its own time, whatever else runs."""
IDLE = DecodeProfile(base_s=1e-2, per_sequence_s=1e-6, per_context_token_s=0.0, prefill_token_s=1e-6)
"""A step costs the same whatever runs in it."""


def batch(*lengths: float, size: int = 8, prompt: int = 10) -> Parts:
    groups = tuple(
        PromptGroup(
            row_uid=f"r{n}",
            num_prompt_tokens=prompt,
            estimate=LengthEstimate(lengths=(length,) * size, source="history"),
        )
        for n, length in enumerate(lengths)
    )
    return whole_groups(groups, size)


def split(parts: Parts, num_actors: int, profile: DecodeProfile, *, lambda_: float = 0.7, shared: bool = False) -> bool:
    before = arrange(parts.work, profile, num_actors, "sorted_unequal")
    after, arrangement = split_long_groups(parts, before, profile, lambda_, shared_threads=shared)
    if after is parts:
        assert arrangement is before
        return False
    assert arrangement.seconds.max() < before.seconds.max()
    return True


def test_a_group_longer_than_everything_else_is_split_where_its_tokens_take_the_time() -> None:
    assert split(batch(1000, 100, 100, 100), 4, BUSY)
    assert split(batch(1000, 100, 100, 100), 4, BUSY, shared=True)


def test_it_stays_whole_where_its_longest_completion_takes_the_time() -> None:
    assert not split(batch(1000, 100, 100, 100), 4, IDLE)


def test_equal_groups_stay_whole() -> None:
    assert not split(batch(*[100] * 16), 4, BUSY)


def test_it_stays_whole_where_its_prompt_costs_more_than_its_tokens() -> None:
    slow_prefill = DecodeProfile(base_s=1e-4, per_sequence_s=1e-3, per_context_token_s=0.0, prefill_token_s=1.0)
    assert not split(batch(1000, 100, 100, 100), 4, slow_prefill)


def test_one_actor_or_one_sample_leave_nothing_to_split() -> None:
    assert not split(batch(1000, 100), 1, BUSY)
    assert not split(batch(1000, 100, 100, size=1), 2, BUSY)
