"""What each technique of a generation step is worth: raw, + dedup, + assignment, + scaling, + migration, all.

Real: processes of one core each on this machine, a small model, completions forced to the lengths of a skewed trace.
Simulated: more actors in virtual time, with the same controller and worker and an engine that takes what was measured
for real here. The real steps are simulated, too, so that one sees how far the simulation is to be believed
(`simulated_step_s`, `simulated_replica_s` of the real cases).

What the cases are stands in ablation_cases; how time is counted, in ablation_run.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from controller.scheduling.decode_profile import DecodeObservation, DecodeProfile, fit, prefill_speed
from scripts.benchmarks.ablation_cases import CASES, Case, Scheduled, observations_of, scheduled, step_of
from scripts.benchmarks.ablation_real import real_actors
from scripts.benchmarks.ablation_run import StepCost
from scripts.benchmarks.ablation_simulated import Cluster, replay_simulated
from scripts.benchmarks.ablation_trace import ReplayStep, Workload, drawn_step, recorded_steps, renamed

SEEDS = 3
ADDED = ("raw", "dedup", "assignment", "scaling", "migrate", "all")
"""Cases that each add a technique to the one before."""
REAL_ACTORS = (1, 2)
REAL = Workload(num_rows=24, group_size=4, prompt_tokens=64, max_tokens=768, median_tokens=96)
REAL_SEQUENCES = 96
"""Sequences that a real actor decodes at once: all, if need be, as its memory allows."""
SIMULATED = Workload(num_rows=64, group_size=8, prompt_tokens=256, max_tokens=2048)
STATIC_ACTORS = 3
"""The fleet that RLHFless found best for verl, by profiling (arXiv 2602.22718)."""
PRIOR = DecodeProfile(base_s=1e-3, per_sequence_s=1e-4, per_context_token_s=1e-8, prefill_token_s=1e-4)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench ablation", description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, help="lengths of a run, by `rlhfless trace RUN`; drawn ones without it")
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help="steps of each case: of drawn lengths, or of the trace"
    )
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES], help="only these")
    parser.add_argument(
        "--actors", type=int, nargs="*", default=list(REAL_ACTORS), help="real ones; none: simulate only"
    )
    parser.add_argument("--rows", type=int, default=SIMULATED.num_rows, help="prompts of a simulated step")
    parser.add_argument("--max-actors", type=int, default=8, help="simulated ones, at most")
    parser.add_argument("--max-num-seqs", type=int, default=256, help="sequences of a simulated actor at once")
    parser.add_argument("--kv-capacity", type=int, default=65536, help="tokens that a simulated actor has room for")
    parser.add_argument(
        "--profile", type=Path, help="JSON of a decode profile to simulate, in place of the measured one"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    asked = parser.parse_args()
    if not asked.actors and asked.profile is None:
        parser.error("without real actors there is no measured profile: give one with --profile")
    return asked


def main() -> None:
    """Measure and print."""
    asked = arguments()
    chosen = [case for case in CASES if not asked.cases or case.name in asked.cases]
    runs, profile = asyncio.run(measure_real(asked, chosen)) if asked.actors else ([], PRIOR)
    cases = [real_case(runs, num_actors, case) for num_actors in asked.actors for case in chosen]
    if asked.profile is not None:
        profile = DecodeProfile(**json.loads(asked.profile.read_text()))
    cases += measure_simulated(asked, chosen, profile)
    show(cases)
    if asked.json:
        print(json.dumps({"what": "rlhfless", "profile": asdict(profile), "cases": cases}))


@dataclass(frozen=True, slots=True, kw_only=True)
class RealStep:
    """A step that was run for real."""

    num_actors: int
    """That there were."""
    case: Case
    step: ReplayStep
    scheduled: Scheduled
    cost: StepCost


async def measure_real(asked: argparse.Namespace, chosen: Sequence[Case]) -> tuple[list[RealStep], DecodeProfile]:
    """The cases on this machine, seed after seed so that a busy minute meets all; and the speed that was seen."""
    runs: list[RealStep] = []
    profile = replace(PRIOR, max_num_sequences=REAL_SEQUENCES)
    steps = steps_of(asked, REAL)
    forms = [[(case, step_of(case, step)) for case in chosen] for step in steps]
    # Rows are named by their step, and by their form within it: one file tells the lengths of all.
    rows = {row.row_uid: row for form in forms for _, step in form for row in step.rows}
    everything = ReplayStep(rows=tuple(rows.values()), max_tokens=max(step.max_tokens for step in steps))
    for num_actors in asked.actors:
        with tempfile.TemporaryDirectory(prefix="rlhfless-bench-") as folder:
            async with real_actors(Path(folder), num_actors, REAL_SEQUENCES, [everything]) as actors:
                for seed, form in enumerate(forms):
                    for case, step in form:
                        known = observations_of(step, profile, actors.run.resources, seed=seed)
                        how = scheduled(case, known, static_actors=num_actors)
                        cost = await actors.replay(step, how)
                        runs.append(RealStep(num_actors=num_actors, case=case, step=step, scheduled=how, cost=cost))
                        profile = learnt([run.cost for run in runs], profile)
    # Simulated actors do not share a memory: their speed is that of the fewest that were measured.
    return runs, speed_of([run for run in runs if run.num_actors == min(asked.actors)])


def real_case(runs: Sequence[RealStep], num_actors: int, case: Case) -> dict[str, Any]:
    """One case, and what it would have taken by the simulation of the same steps.

    The speed is that of so many actors: they have a core each, and one memory.
    """
    beside = [run for run in runs if run.num_actors == num_actors]
    mine = [run for run in beside if run.case.name == case.name]
    cluster = Cluster(profile=speed_of(beside), max_actors=num_actors)
    simulated = [replay_simulated(run.step, run.scheduled, cluster) for run in mine]
    return {
        **summary("real", case, num_actors, [run.cost for run in mine]),
        "simulated_step_s": round(statistics.mean(cost.step_s for cost in simulated), 4),
        "simulated_replica_s": round(statistics.mean(held_s(case, cost) for cost in simulated), 4),
    }


def measure_simulated(
    asked: argparse.Namespace, chosen: Sequence[Case], profile: DecodeProfile
) -> list[dict[str, Any]]:
    """The cases in virtual time."""
    speed = replace(profile, max_num_sequences=asked.max_num_seqs, kv_capacity_tokens=asked.kv_capacity, preempts=True)
    cluster = Cluster(profile=speed, max_actors=asked.max_actors)
    steps = steps_of(asked, replace(SIMULATED, num_rows=asked.rows))
    results = []
    for case in chosen:
        costs = []
        for seed, drawn in enumerate(steps):
            step = step_of(case, drawn)
            known = observations_of(step, speed, cluster.resources, seed=seed)
            costs.append(replay_simulated(step, scheduled(case, known, static_actors=STATIC_ACTORS), cluster))
        results.append(summary("simulated", case, asked.max_actors, costs))
    return results


def steps_of(asked: argparse.Namespace, workload: Workload) -> list[ReplayStep]:
    """The steps of the trace, or drawn ones, with rows of other names in each."""
    if asked.trace is None:
        steps = [drawn_step(workload, seed) for seed in range(asked.seeds)]
    else:
        steps = recorded_steps(asked.trace.read_text().splitlines())[-asked.seeds :]
        if not steps:
            raise SystemExit(f"{asked.trace} has no step whose rows were all sampled an epoch before: train longer")
    return [renamed(step, f"{number}-") for number, step in enumerate(steps)]


def decoding(cost: StepCost) -> list[DecodeObservation]:
    """What the step's calls saw of the speed."""
    return [
        DecodeObservation(
            num_steps=stretch.num_steps,
            num_sequences=stretch.num_sequences,
            context_tokens=stretch.context_tokens,
            seconds=stretch.seconds,
        )
        for outputs in cost.rollouts
        for stretch in outputs.decode
    ]


def learnt(costs: Sequence[StepCost], profile: DecodeProfile) -> DecodeProfile:
    """The profile by everything that was seen so far."""
    seen = [observation for cost in costs for observation in decoding(cost)]
    if not seen:
        raise SystemExit("the workers told of no decoding: there is no speed to plan and simulate with")
    tokens = sum(outputs.prefill_tokens for cost in costs for outputs in cost.rollouts)
    seconds = sum(outputs.prefill_s for cost in costs for outputs in cost.rollouts)
    return prefill_speed(tokens, seconds, fit(seen, profile))


def speed_of(runs: Sequence[RealStep]) -> DecodeProfile:
    """The profile by these runs alone."""
    return learnt([run.cost for run in runs], replace(PRIOR, max_num_sequences=REAL_SEQUENCES))


def held_s(case: Case, cost: StepCost) -> float:
    """Replica-seconds that the case pays for."""
    return cost.fleet_s if case.is_fleet else cost.replica_s


def summary(kind: str, case: Case, num_actors: int, costs: Sequence[StepCost]) -> dict[str, Any]:
    """One case: means over the seeds and the spread from the least to the most."""
    seconds = [cost.step_s for cost in costs]
    held = [held_s(case, cost) for cost in costs]
    return {
        "name": f"{kind}-{num_actors}/{case.name}",
        "kind": kind,
        "case": case.name,
        "max_actors": num_actors,
        "num_actors": statistics.mean(cost.num_actors for cost in costs),
        "step_s": round(statistics.mean(seconds), 4),
        "step_s_min": round(min(seconds), 4),
        "step_s_max": round(max(seconds), 4),
        "replica_s": round(statistics.mean(held), 4),
        "replica_s_min": round(min(held), 4),
        "replica_s_max": round(max(held), 4),
        "num_tokens": statistics.mean(cost.num_tokens for cost in costs),
        "prefill_tokens": statistics.mean(cost.prefill_tokens for cost in costs),
        "num_migrated": statistics.mean(cost.num_migrated for cost in costs),
        "seeds": len(costs),
    }


def show(cases: Sequence[dict[str, Any]]) -> None:
    """The figures for a person, each against ``raw`` of its kind."""
    print(
        f"{'case':<28}{'actors':>7}{'step s':>9}{'spread':>16}{'replica s':>11}{'spread':>18}{'moved':>7}"
        f"{'time':>7}{'cost':>7}"
    )
    for case in cases:
        base = next((each for each in cases if each["name"] == case["name"].split("/")[0] + "/raw"), case)
        spread = f"{case['step_s_min']:.2f}..{case['step_s_max']:.2f}"
        held = f"{case['replica_s_min']:.2f}..{case['replica_s_max']:.2f}"
        print(
            f"{case['name']:<28}{case['num_actors']:>7.1f}{case['step_s']:>9.2f}{spread:>16}{case['replica_s']:>11.2f}"
            f"{held:>18}{case['num_migrated']:>7.0f}"
            f"{case['step_s'] / base['step_s']:>7.2f}{case['replica_s'] / base['replica_s']:>7.2f}"
        )
    for note in notes(cases):
        print(note)


def notes(cases: Sequence[dict[str, Any]]) -> list[str]:
    """What each technique that was added changed against the case before, and whether it paid."""
    found = []
    by_name = {case["name"]: case for case in cases}
    for before, after in itertools.pairwise(ADDED):
        for case in cases:
            plain = by_name.get(f"{case['name'].split('/')[0]}/{before}")
            if case["case"] != after or plain is None:
                continue
            time, cost = case["step_s"] / plain["step_s"] - 1, case["replica_s"] / plain["replica_s"] - 1
            worse = time >= 0 and cost >= 0
            found.append(
                f"{case['name']} against {before}: time {time:+.1%}, cost {cost:+.1%}"
                + (": does not pay here" if worse else "")
            )
    return found


if __name__ == "__main__":
    main()
