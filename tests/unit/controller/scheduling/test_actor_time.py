"""T of an actor: the closed form against decoding step by step."""

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.actor_time import Load, TimedWork, actor_seconds, measure
from controller.scheduling.decode_profile import DecodeProfile

PROFILE = DecodeProfile(base_s=0.01, per_sequence_s=1e-3, per_context_token_s=1e-6, prefill_token_s=1e-4)
LOADS = st.lists(
    st.builds(
        lambda prompt, lengths: Load(num_prompt_tokens=prompt, lengths=tuple(sorted(map(float, lengths)))),
        st.integers(1, 40),
        st.lists(st.integers(1, 30), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=8,
)


def limited(slots: int = 256, room: int | None = None, preempts: bool = False) -> DecodeProfile:
    return DecodeProfile(
        base_s=0.01,
        per_sequence_s=1e-3,
        per_context_token_s=1e-6,
        prefill_token_s=1e-4,
        max_num_sequences=slots,
        kv_capacity_tokens=room,
        preempts=preempts,
    )


def sequences(loads: list[Load]) -> list[tuple[int, float]]:
    return [(load.num_prompt_tokens, length) for load in loads for length in load.lengths]


def step_by_step(loads: list[Load], profile: DecodeProfile) -> float:
    """Every step of decoding, longest sequences first, as places become free; prompts once per load."""
    waiting = sorted(sequences(loads), key=lambda one: one[1])
    seconds = profile.prefill_token_s * sum(load.num_prompt_tokens for load in loads)
    running: list[tuple[int, float, int]] = []
    while waiting or running:
        while waiting and len(running) < profile.max_num_sequences:
            running.append((*waiting.pop(), 0))
        seconds += profile.step_seconds(len(running), sum(prompt + made + 0.5 for prompt, _, made in running))
        running = [(prompt, length, made + 1) for prompt, length, made in running if made + 1 < length]
    return seconds


@given(LOADS)
def test_with_room_it_is_the_sum_over_all_steps(loads: list[Load]) -> None:
    assert actor_seconds(loads, PROFILE) == pytest.approx(step_by_step(loads, PROFILE))


def test_it_is_the_sum_over_the_sorted_lengths() -> None:
    """The published form: between two lengths, so many steps with so many sequences."""
    lengths, prompt = [3.0, 3.0, 7.0, 12.0], 5
    total, before = 0.0, 0.0
    for rank, length in enumerate(lengths):
        running = len(lengths) - rank
        context = running * (prompt + (before + length) / 2)
        total += (length - before) * PROFILE.step_seconds(running, context)
        before = length
    loads = [Load(num_prompt_tokens=prompt, lengths=(length,)) for length in lengths]
    assert actor_seconds(loads, PROFILE) == pytest.approx(total + 4 * prompt * PROFILE.prefill_token_s)


@given(LOADS, st.integers(1, 6))
def test_waves_are_a_lower_bound_and_no_more_than_a_third_off(loads: list[Load], slots: int) -> None:
    """Longest-first order is within 4/3 of every lower bound of its kind; the means of groups cost a little more."""
    profile = limited(slots)
    work = [Load(num_prompt_tokens=prompt, lengths=(length,)) for prompt, length in sequences(loads)]
    seen, expected = step_by_step(work, profile), actor_seconds(work, profile)
    assert expected <= seen * (1 + 1e-9)
    assert seen <= expected * (4 / 3) + profile.base_s


@pytest.mark.parametrize(("num", "slots", "waves"), [(4, 4, 1), (5, 4, 2), (8, 4, 2), (9, 4, 3), (3, 1, 3)])
def test_equal_lengths_take_whole_waves(num: int, slots: int, waves: int) -> None:
    profile = DecodeProfile(
        base_s=1.0, per_sequence_s=0.0, per_context_token_s=0.0, prefill_token_s=0.0, max_num_sequences=slots
    )
    assert actor_seconds([Load(num_prompt_tokens=1, lengths=(10.0,) * num)], profile) == pytest.approx(10 * waves)


def test_room_for_keys_and_values_makes_waves() -> None:
    """Ten sequences of 10 + 90 tokens with room for 250: two at once, so five waves."""
    loads = [Load(num_prompt_tokens=10, lengths=(90.0,)) for _ in range(10)]
    roomy, tight = limited(), limited(room=250)
    assert actor_seconds(loads, tight) - actor_seconds(loads, roomy) == pytest.approx(4 * 90 * 0.01)


def test_a_prompt_is_held_once_for_its_group() -> None:
    group = [Load(num_prompt_tokens=100, lengths=(10.0,) * 4)]
    apart = [Load(num_prompt_tokens=100, lengths=(10.0,))] * 4
    profile = limited(room=150)
    assert actor_seconds(group, profile) < actor_seconds(apart, profile) - 3 * 100 * profile.prefill_token_s


def test_an_engine_that_preempts_computes_again_what_had_no_room() -> None:
    loads = [Load(num_prompt_tokens=10, lengths=(90.0,)) for _ in range(4)]
    waits, preempts = limited(room=300), limited(room=300, preempts=True)
    assert actor_seconds(loads, preempts) - actor_seconds(loads, waits) == pytest.approx(100 * 1e-4)


def test_nothing_takes_no_time() -> None:
    assert actor_seconds([], PROFILE) == 0.0


@given(
    LOADS,
    st.sampled_from([limited(), limited(3), limited(room=60), limited(4, 90), limited(4, 90, preempts=True)]),
    st.data(),
)
def test_the_first_begin_within_a_bound_is_the_first(
    loads: list[Load], profile: DecodeProfile, data: st.DataObject
) -> None:
    work = TimedWork(measure([one.num_prompt_tokens for one in loads], [one.lengths for one in loads]), profile)
    end = data.draw(st.integers(1, work.size))
    every = work.seconds(np.arange(end), np.full(end, end))
    bound = data.draw(st.sampled_from(every.tolist())) * data.draw(st.sampled_from([0.5, 1.0, 1.1]))
    found = int(work.first_within(np.array([end]), np.array([bound]))[0])
    within = [begin for begin in range(end) if every[begin] <= bound * (1 + 1e-9)]
    assert found == min(within, default=end)


@given(LOADS)
def test_more_work_takes_longer(loads: list[Load]) -> None:
    for profile in (limited(), limited(2), limited(room=80)):
        work = TimedWork(measure([one.num_prompt_tokens for one in loads], [one.lengths for one in loads]), profile)
        every = [float(work.seconds(np.array([begin]), np.array([work.size]))[0]) for begin in range(work.size)]
        assert every == sorted(every, reverse=True)


def test_places_go_to_the_longest_first() -> None:
    """The reference of these tests itself: list scheduling by hand."""
    loads = [Load(num_prompt_tokens=0, lengths=(length,)) for length in (1.0, 2.0, 3.0, 4.0)]
    free = [0.0, 0.0]
    for length in (4.0, 3.0, 2.0, 1.0):
        heapq.heappush(free, heapq.heappop(free) + length)
    profile = DecodeProfile(
        base_s=1.0, per_sequence_s=0.0, per_context_token_s=0.0, prefill_token_s=0.0, max_num_sequences=2
    )
    assert step_by_step(loads, profile) == max(free) == 5.0
