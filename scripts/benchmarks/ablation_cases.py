"""What is compared: techniques added one after the other, and baselines. The policies are the product's own.

    verl_like   a static fleet, completions dealt at random, every prompt computed for each of them; paid to the end
    raw         the same, but every actor is released when its work is done
    dedup       + a group stays together, its prompt is computed once (random groups)
    assignment  + by the length of the epoch before, sorted and cut or balanced: whatever is expected to be best
    scaling     + the number of actors by expected time and cost
    migrate     + cut-and-migrate, end game
    all         the defaults of the config's section ``schedule``

    sorted_equal, sorted_unequal, balanced    other assignments in the place of ``assignment``

Where prompts are not shared, each completion has a prompt of its own, as long as its group's: there is nothing that an
engine could share, and the work is that of computing the group's prompt every time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.runs.migrating import Migration, migration_of
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.lengths import LengthRecord, default_length, estimate
from controller.scheduling.observations import PromptGroup, Resources, SchedulePolicy, StepObservations
from controller.scheduling.plan import StepPlan, plan_step
from scripts.benchmarks.ablation_trace import ReplayStep

OFF = SchedulePolicy(
    assignment="random",
    scaling=False,
    prefill="in_actor",
    migration=False,
    locality=False,
    holding=False,
    probing=False,
)
"""Every technique off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to run a step."""

    name: str
    policy: SchedulePolicy
    shares_prompts: bool = True
    is_static: bool = True
    """Whether the number of actors is given, and not chosen."""
    is_fleet: bool = False
    """Whether all actors are paid until the step ends."""

    def policy_for(self, num_actors: int) -> SchedulePolicy:
        """The policy where a static fleet has so many actors."""
        return replace(self.policy, num_actors=num_actors) if self.is_static else self.policy


ASSIGNED = replace(OFF, assignment="auto")
SCALED = replace(ASSIGNED, scaling=True)
MIGRATED = replace(SCALED, migration=True)

CASES = (
    Case(name="verl_like", policy=OFF, shares_prompts=False, is_fleet=True),
    Case(name="raw", policy=OFF, shares_prompts=False),
    Case(name="dedup", policy=OFF),
    Case(name="assignment", policy=ASSIGNED),
    Case(name="scaling", policy=SCALED, is_static=False),
    Case(name="migrate", policy=MIGRATED, is_static=False),
    Case(name="all", policy=SchedulePolicy(), is_static=False),
    Case(name="sorted_equal", policy=replace(OFF, assignment="sorted_equal")),
    Case(name="sorted_unequal", policy=replace(OFF, assignment="sorted_unequal")),
    Case(name="balanced", policy=replace(OFF, assignment="balanced")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """How a step is run."""

    plan: StepPlan
    migration: Migration | None


def step_of(case: Case, step: ReplayStep) -> ReplayStep:
    """The step as the case samples it."""
    if case.shares_prompts:
        return step
    rows = tuple(
        replace(row, row_uid=f"{row.row_uid}.{sample}", lengths=(length,), known_lengths=())
        for row in step.rows
        for sample, length in enumerate(row.lengths)
    )
    return replace(step, rows=rows)


def observations_of(step: ReplayStep, profile: DecodeProfile, resources: Resources, *, seed: int) -> StepObservations:
    """What is known before the step: the lengths of the epoch before, and the speed of an actor."""
    known = [length for row in step.rows for length in row.known_lengths]
    default = default_length(known, step.max_tokens)
    return StepObservations(
        groups=tuple(
            PromptGroup(
                row_uid=row.row_uid,
                num_prompt_tokens=row.num_prompt_tokens,
                estimate=estimate(
                    history(row.row_uid, row.known_lengths),
                    answer_tokens=None,
                    group_size=step.group_size,
                    default=default,
                ),
            )
            for row in step.rows
        ),
        group_size=step.group_size,
        max_tokens=step.max_tokens,
        resources=resources,
        profile=profile,
        seed=seed,
    )


def scheduled(case: Case, observations: StepObservations, *, static_actors: int) -> Scheduled:
    """The product's plan and migration for a step that the case runs."""
    policy = case.policy_for(static_actors)
    return Scheduled(plan=plan_step(observations, policy), migration=migration_of(observations, policy))


def history(row_uid: str, lengths: Sequence[int]) -> list[LengthRecord]:
    """What the epoch before showed of a row, if there was one."""
    return [LengthRecord(row_uid=row_uid, epoch=0, lengths=tuple(lengths))] if lengths else []
