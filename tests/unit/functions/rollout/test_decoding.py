"""An engine at work: what a burst brings, and what it tells of the engine's speed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from functions.rollout import decoding as decoding_module
from functions.rollout.clock import Clock
from functions.rollout.decoding import Decoding
from functions.rollout.engine import EngineStats, SamplingParams, SequenceRequest
from shared.contracts.prompt import Prompt
from tests.unit.functions.rollout.fake_engine import FakeEngine

PARAMS = SamplingParams(temperature=1.0, max_tokens=100, eos_token_ids=(1,))
PROMPTS = {row: Prompt(row_uid=row, token_ids=(5,) * length, text="") for row, length in (("a", 3), ("b", 10))}
STEP_S = 0.01


class TimedEngine(FakeEngine):
    """Every step takes as long by a clock of its own; what of it was prefill is set from outside."""

    now_s = 50.0
    prefill_s = 0.0

    def step(self) -> Any:
        self.now_s += STEP_S
        return super().step()

    def stats(self) -> EngineStats:
        spent_s, self.prefill_s = self.prefill_s, 0.0
        return replace(super().stats(), prefill_s=spent_s)


def request(row: str, sample: int) -> SequenceRequest:
    return SequenceRequest(row_uid=row, sample=sample, prompt_token_ids=PROMPTS[row].token_ids, seed=sample)


def decoding_of(engine: TimedEngine) -> Decoding:
    clock = Clock(unix=lambda: 1000.0 + engine.now_s, elapsed=lambda: engine.now_s)
    return Decoding(engine, PARAMS, PROMPTS, None, threads=1, clock=clock)


def never(num_finished: int) -> bool:
    return False


@pytest.mark.parametrize(
    ("burst_s", "is_enough", "num_steps"),
    [(10.0, never, 6), (0.035, never, 4), (0.0, never, 1), (10.0, lambda num_finished: num_finished >= 1, 2)],
    ids=["until nothing runs", "for a while", "at least a step", "until enough has finished"],
)
def test_a_burst_lasts(
    monkeypatch: pytest.MonkeyPatch, burst_s: float, is_enough: Callable[[int], bool], num_steps: int
) -> None:
    monkeypatch.setattr(decoding_module, "BURST_S", burst_s)
    engine = TimedEngine(lengths={("a", 0): 2, ("a", 1): 6})
    decoding = decoding_of(engine)
    decoding.add([request("a", 0), request("a", 1)])
    burst = decoding.burst(is_enough)
    assert engine.num_steps == decoding.num_steps == num_steps
    assert burst.first_step_at == pytest.approx(1000.0 + 50.0 + STEP_S)
    assert len(burst.finished) == {1: 0, 2: 1, 4: 1, 6: 2}[num_steps]


def test_load_and_seconds_are_means_and_sums_over_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_module, "BURST_S", 10.0)
    engine = TimedEngine(lengths={("a", 0): 2, ("b", 0): 4})
    decoding = decoding_of(engine)
    decoding.add([request("a", 0), request("b", 0)])
    decoding.burst(never)
    [stretch] = decoding.log.stretches()
    # Two steps with both (13 and 15 tokens of context), two with the longer one alone (12 and 13).
    assert stretch.num_steps == 4
    assert stretch.num_sequences == 1.5
    assert stretch.context_tokens == (13 + 15 + 12 + 13) / 4
    assert stretch.seconds == pytest.approx(4 * STEP_S)
    assert decoding.num_tokens == decoding.log.num_tokens == 6


def test_what_is_prefilled_within_a_burst_is_no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_module, "BURST_S", 10.0)
    engine = TimedEngine(default_length=5)
    decoding = decoding_of(engine)
    decoding.add([request("a", 0)])
    engine.on_step = lambda: setattr(engine, "prefill_s", engine.prefill_s + 0.25 * STEP_S)
    decoding.burst(never)
    [stretch] = decoding.log.stretches()
    assert stretch.seconds == pytest.approx(0.75 * 5 * STEP_S)
    assert decoding.prefill_s == pytest.approx(0.25 * 5 * STEP_S)
    assert decoding.prefill_tokens == 2


def test_an_earlier_calls_counts_are_not_counted_again() -> None:
    engine = TimedEngine(default_length=2)
    first = decoding_of(engine)
    first.add([request("b", 0)])
    engine.abort()
    second = decoding_of(engine)
    second.add([request("a", 0)])
    second.burst(never)
    assert second.prefill_tokens == 2


def test_an_engine_without_sequences_decodes_nothing() -> None:
    decoding = decoding_of(TimedEngine())
    assert decoding.burst(never).finished == ()
    assert decoding.log.stretches() == ()
