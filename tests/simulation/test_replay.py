"""The replay against times worked out by hand."""

import pytest

from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.plan import StepPlan
from scripts.benchmarks import ablation_cases as cases
from scripts.benchmarks.ablation_simulated import Cluster, replay_simulated
from scripts.benchmarks.ablation_trace import ReplayRow, ReplayStep
from shared.contracts.rollout import WorkItem

PROFILE = DecodeProfile(
    base_s=0.010,
    per_sequence_s=0.001,
    per_context_token_s=0.0001,
    prefill_token_s=0.002,
    max_num_sequences=8,
)
PROMPT_TOKENS = 10


def step_of(*lengths: tuple[int, ...]) -> ReplayStep:
    rows = tuple(
        ReplayRow(row_uid=f"row-{number}", num_prompt_tokens=PROMPT_TOKENS, lengths=group, known_lengths=())
        for number, group in enumerate(lengths)
    )
    return ReplayStep(rows=rows, max_tokens=1000)


def plan_of(step: ReplayStep, *actors: tuple[int, ...]) -> StepPlan:
    return StepPlan(
        assigned=tuple(
            tuple(
                WorkItem(row_uid=step.rows[number].row_uid, samples=tuple(range(len(step.rows[number].lengths))))
                for number in actor
            )
            for actor in actors
        ),
        rollout_threads=1,
        learner_threads=1,
    )


def decode_s(*lengths: int) -> float:
    """Of sequences that start together, step by step: an affine time per token step."""
    seconds = 0.0
    for done in range(max(lengths)):
        running = sum(length > done for length in lengths)
        context = running * (PROMPT_TOKENS + done)
        seconds += PROFILE.step_seconds(running, context)
    return seconds


def test_two_sequences_on_one_actor_take_the_sum_of_their_steps() -> None:
    step = step_of((30, 70))
    cost = replay_simulated(step, plan_of(step, (0,)), Cluster(profile=PROFILE, max_actors=1))
    prefill_s = PROMPT_TOKENS * PROFILE.prefill_token_s
    assert cost.step_s == pytest.approx(prefill_s + decode_s(30, 70), abs=1e-6)
    assert cost.replica_s == pytest.approx(cost.step_s, abs=1e-6)
    assert cost.num_tokens == 100


def test_without_sharing_every_completion_computes_a_prompt() -> None:
    step = step_of((30, 70))
    alone = cases.step_of(cases.Case(name="raw", policy=cases.OFF, shares_prompts=False), step)
    cluster = Cluster(profile=PROFILE, max_actors=1)
    shared = replay_simulated(step, plan_of(step, (0,)), cluster)
    own = replay_simulated(alone, plan_of(alone, (0, 1)), cluster)
    assert own.step_s - shared.step_s == pytest.approx(PROMPT_TOKENS * PROFILE.prefill_token_s, abs=1e-6)
    assert own.num_tokens == shared.num_tokens


def test_actors_run_beside_each_other_and_are_paid_until_they_are_done() -> None:
    step = step_of((30,), (70,))
    cost = replay_simulated(step, plan_of(step, (0,), (1,)), Cluster(profile=PROFILE, max_actors=2))
    prefill_s = PROMPT_TOKENS * PROFILE.prefill_token_s
    first_s, second_s = prefill_s + decode_s(30), prefill_s + decode_s(70)
    assert cost.step_s == pytest.approx(second_s, abs=1e-6)
    assert cost.replica_s == pytest.approx(first_s + second_s, abs=1e-6)
    assert cost.fleet_s == pytest.approx(2 * second_s, abs=1e-6)
