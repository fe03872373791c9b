"""The replay against times worked out by hand."""

from dataclasses import replace

import pytest

from controller.runs.migrating import LOOK_EVERY_S, Migration
from controller.scheduling.decode_profile import DecodeProfile, fit
from controller.scheduling.migration import MigrationFigures
from controller.scheduling.plan import StepPlan
from functions.rollout.decoding import BURST_S
from functions.rollout.mailbox import LOOK_EVERY_S as MAIL_EVERY_S
from functions.rollout.progress import REPORT_EVERY_S
from scripts.benchmarks import ablation_cases as cases
from scripts.benchmarks.ablation import decoding
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


def plan_of(step: ReplayStep, *actors: tuple[int, ...], migration: Migration | None = None) -> cases.Scheduled:
    plan = StepPlan(
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
    return cases.Scheduled(plan=plan, migration=migration)


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
    assert cost.actor_s == pytest.approx((first_s, second_s), abs=1e-6)
    assert cost.replica_s == pytest.approx(first_s + second_s, abs=1e-6)
    assert cost.fleet_s == pytest.approx(2 * second_s, abs=1e-6)


MIGRATION = Migration(
    profile=replace(PROFILE, per_context_token_s=0.0, prefill_token_s=0.0),
    figures=MigrationFigures(tau=0.7, end_game=False, lambda_=0.0),
)
"""By a profile in which a step is mostly its base, so that it pays to move."""


def test_migration_frees_an_actor_soon_after_its_share_is_done() -> None:
    step = step_of((100, 100, 100, 900), (950,))
    cluster = Cluster(profile=PROFILE, max_actors=2)
    stayed = replay_simulated(step, plan_of(step, (0,), (1,)), cluster)
    moved = replay_simulated(step, plan_of(step, (0,), (1,), migration=MIGRATION), cluster)
    prefill_s = PROMPT_TOKENS * PROFILE.prefill_token_s
    three_done_s = prefill_s + sum(PROFILE.step_seconds(4, 4 * (PROMPT_TOKENS + done)) for done in range(100))
    # A report, a look at it, the mail, and the burst that goes on meanwhile.
    latest_s = three_done_s + REPORT_EVERY_S + LOOK_EVERY_S + MAIL_EVERY_S + BURST_S
    assert stayed.actor_s[0] == pytest.approx(prefill_s + decode_s(100, 100, 100, 900), abs=1e-6)
    assert three_done_s < moved.actor_s[0] <= latest_s
    assert moved.num_migrated == 1
    assert moved.replica_s < stayed.replica_s


def test_at_tau_one_nothing_moves() -> None:
    step = step_of((100, 100, 100, 900), (950,))
    never = replace(MIGRATION, figures=replace(MIGRATION.figures, tau=1.0, end_game=True))
    plan = plan_of(step, (0,), (1,), migration=never)
    cost = replay_simulated(step, plan, Cluster(profile=PROFILE, max_actors=2))
    assert cost.num_migrated == 0


def test_the_same_step_takes_the_same_time_again() -> None:
    step = step_of((100, 100, 100, 900), (950,))
    plan = plan_of(step, (0,), (1,), migration=MIGRATION)
    once, again = (replay_simulated(step, plan, Cluster(profile=PROFILE, max_actors=2)) for _ in range(2))
    assert (once.actor_s, once.step_s, once.num_migrated) == (again.actor_s, again.step_s, again.num_migrated)
    # The workers say how much memory this machine has.
    assert [each.decode for each in once.rollouts] == [each.decode for each in again.rollouts]


def test_the_speed_that_workers_report_is_the_one_that_was_simulated() -> None:
    step = step_of((60, 200, 200, 300), (150, 150, 400, 500), (50, 100, 100, 100))
    cost = replay_simulated(step, plan_of(step, (0,), (1, 2)), Cluster(profile=PROFILE, max_actors=2))
    # From a prior that is wrong by factors, and not in proportion.
    prior = replace(PROFILE, base_s=0.1, per_sequence_s=0.001, per_context_token_s=0.001)
    found = fit(decoding(cost), prior)
    assert found.base_s == pytest.approx(PROFILE.base_s, rel=0.1)
    assert found.per_sequence_s == pytest.approx(PROFILE.per_sequence_s, rel=0.3)
    assert found.per_context_token_s == pytest.approx(PROFILE.per_context_token_s, rel=0.1)
