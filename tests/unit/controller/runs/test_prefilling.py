"""Prefilling one batch apart: cut by deadlines, measured, and never what a run fails for."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.runs.context import RunContext
from controller.runs.errors import RunLost, StageFailed, StageUnavailable
from controller.runs.prefilling import Prefilled, prefill_batch
from controller.scheduling.prefill_choice import PrefillPlan
from shared.contracts.call import CallKey, ServedBy, StageReply, Timings
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prefill import PrefillInputs, PrefillOutputs
from shared.contracts.stage import Stage
from tests.fakes.sampled import BATCH
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import make_world

PROMPTS = BlobRef(id="the-run/000000/prompts", num_bytes=1, sha256="a" * 64)
POLICY = PolicyRef(version=0, model=ModelRef(path="/models/tiny"), weights=PROMPTS)


def plan(mode: Any = "disaggregated") -> PrefillPlan:
    return PrefillPlan(mode=mode, reason="", prefill_s=1.0, transfer_s=0.1, num_tokens=10)


def outputs(**fields: Any) -> PrefillOutputs:
    made = {
        "num_prefixes": 2,
        "num_prefix_tokens": 100,
        "computed_tokens": 50,
        "num_handles": 3,
        "stored_bytes": 4000,
        "compute_s": 0.5,
        "store_s": 0.25,
    }
    return PrefillOutputs(**made | fields)


class Answering:
    """A stage client that takes a second for each of its prepared answers."""

    def __init__(self, run: RunContext, *answers: PrefillOutputs | Exception) -> None:
        self._run = run
        self._answers = list(answers)
        self.asked: list[tuple[CallKey, PrefillInputs]] = []
        self.given: list[dict[str, Any]] = []

    async def call(self, key: CallKey, inputs: PrefillInputs, outputs: type, **given: Any) -> StageReply[Any]:
        self.asked.append((key, inputs))
        self.given.append(given)
        await self._run.platform.sleep(1.0)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return StageReply[PrefillOutputs](
            key=key,
            status="done" if answer.next_round is None else "continue",
            outputs=answer,
            served=ServedBy(instance="i", revision="r", started_at=0, ready_at=0),
            timings=Timings(started_at=0, ended_at=0),
        )


async def prefill(
    folder: Path, *answers: PrefillOutputs | Exception, of: PrefillPlan | None = None
) -> tuple[Prefilled | None, Answering, list[dict[str, Any]]]:
    """What comes of it, what was asked, and the events that were emitted."""
    run = await (await make_world(folder)).context()
    client = Answering(run, *answers)
    prefilled = await prefill_batch(replace(run, client=client), BATCH, of or plan(), PROMPTS, POLICY)
    events = [dict(event.data) for event in await run.store.events.read(run.run) if event.kind == "prefill"]
    return prefilled, client, events


@in_virtual_time
async def test_nothing_is_asked_where_actors_prefill(tmp_path: Path) -> None:
    prefilled, client, _ = await prefill(tmp_path, of=plan("in_actor"))
    assert (prefilled, client.asked) == (None, [])
    run = await (await make_world(tmp_path)).context()
    assert await prefill_batch(run, BATCH, None, PROMPTS, POLICY) is None


@in_virtual_time
async def test_a_call_that_is_cut_is_continued_from_its_next_round(tmp_path: Path) -> None:
    prefilled, client, events = await prefill(tmp_path, outputs(next_round=2), outputs(next_round=5), outputs())
    assert [(key.stage, key.segment, key.batch) for key, _ in client.asked] == [
        (Stage.PREFILL, number, BATCH) for number in range(3)
    ]
    assert [inputs.first_round for _, inputs in client.asked] == [0, 2, 5]
    assert all((inputs.prompts, inputs.max_num_prefixes) == (PROMPTS, 4) for _, inputs in client.asked)
    assert all(given == {"policy": POLICY, "threads": 2, "beside": Stage.LEARNER} for given in client.given)
    assert prefilled is not None
    assert (prefilled.seconds, prefilled.num_handles, prefilled.failure) == (pytest.approx(3.0), 9, None)
    assert prefilled.token_s == pytest.approx(0.01)
    assert prefilled.bandwidth_bytes_per_s == pytest.approx(16_000)
    assert events == []


@in_virtual_time
@pytest.mark.parametrize("error", [StageFailed(Stage.PREFILL, "store_refused", "full"), StageUnavailable("none")])
async def test_a_prefill_that_fails_fails_nobody_and_is_told(tmp_path: Path, error: Exception) -> None:
    prefilled, _, events = await prefill(tmp_path, outputs(next_round=1), error)
    assert prefilled is not None
    assert (prefilled.num_handles, prefilled.failure) == (3, str(error))
    assert [(event["step"], event["failure"]) for event in events] == [(BATCH.step, str(error))]
    assert prefilled.metrics()["prefill/num_failed"] == 1.0


@in_virtual_time
@pytest.mark.parametrize(("expected_s", "patience_s"), [(1.0, 120.0), (50.0, 200.0)])
async def test_a_prefill_that_takes_far_too_long_is_not_waited_for(
    tmp_path: Path, expected_s: float, patience_s: float
) -> None:
    never = [outputs(next_round=number + 1) for number in range(1000)]
    prefilled, client, events = await prefill(tmp_path, *never, of=replace(plan(), prefill_s=expected_s))
    assert prefilled is not None
    assert prefilled.seconds == pytest.approx(patience_s)
    assert f"not done in {patience_s:.0f} s" in str(prefilled.failure)
    assert [event["failure"] for event in events] == [prefilled.failure]
    # What its calls had made by then can be fetched.
    num_calls = len(prefilled.outputs)
    assert num_calls == pytest.approx(patience_s, abs=1)
    assert (prefilled.num_handles, len(client.asked)) == (3 * num_calls, num_calls + 1)
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_a_function_that_does_not_get_on_is_not_asked_for_ever(tmp_path: Path) -> None:
    prefilled, client, _ = await prefill(tmp_path, outputs(next_round=1), outputs(next_round=1))
    assert prefilled is not None
    assert "swap its image" in str(prefilled.failure)
    assert len(client.asked) == 2


@in_virtual_time
async def test_a_run_that_is_anothers_ends(tmp_path: Path) -> None:
    with pytest.raises(RunLost):
        await prefill(tmp_path, RunLost("another owner"))


def test_metrics_are_those_of_all_calls_and_nothing_has_no_speed() -> None:
    both = Prefilled(seconds=2.0, outputs=(outputs(), outputs(num_refused=1)))
    assert both.metrics() == {
        "prefill/num_prefixes": 4.0,
        "prefill/num_prefix_tokens": 200.0,
        "prefill/computed_tokens": 100.0,
        "prefill/num_handles": 6.0,
        "prefill/stored_bytes": 8000.0,
        "prefill/num_refused": 1.0,
        "prefill/compute_s": 1.0,
        "prefill/store_s": 0.5,
        "prefill/seconds": 2.0,
        "prefill/num_failed": 0.0,
    }
    nothing = Prefilled(seconds=0.1, outputs=(outputs(computed_tokens=0, compute_s=0.0, stored_bytes=0, store_s=0.0),))
    assert (nothing.token_s, nothing.bandwidth_bytes_per_s) == (None, None)
