"""The paced engine takes what its profile says, to the token, and never holds more than it has room for."""

from dataclasses import replace

import pytest

from controller.scheduling.decode_profile import DecodeProfile
from functions.rollout.engine import GeneratedTokens, SamplingParams, SequenceRequest
from scripts.benchmarks.ablation_pacing import PacedEngine

PROFILE = DecodeProfile(base_s=1.0, per_sequence_s=0.1, per_context_token_s=0.01, prefill_token_s=0.5)
PARAMS = SamplingParams(temperature=1.0, max_tokens=100, eos_token_ids=())


class Meter:
    """Adds up what was spent."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def spend(self, duration_s: float) -> None:
        self.spent_s += duration_s

    def taken(self) -> float:
        taken, self.spent_s = self.spent_s, 0.0
        return taken


def requests(*prompts: tuple[int, ...]) -> list[SequenceRequest]:
    return [
        SequenceRequest(row_uid=f"row-{number}", sample=0, prompt_token_ids=prompt, seed=0)
        for number, prompt in enumerate(prompts)
    ]


def engine_of(meter: Meter, lengths: tuple[int, ...], profile: DecodeProfile = PROFILE) -> PacedEngine:
    return PacedEngine(profile, lambda row_uid, sample: lengths[int(row_uid[4:])], meter.spend)


def test_a_step_costs_by_what_runs_and_what_it_reads() -> None:
    meter = Meter()
    engine = engine_of(meter, (2, 3))
    engine.add(requests((1,) * 10, (2,) * 20), PARAMS)
    assert meter.taken() == pytest.approx(0.5 * 30)
    assert engine.step() == []
    assert meter.taken() == pytest.approx(1.0 + 0.1 * 2 + 0.01 * 30)
    assert [done.row_uid for done in engine.step()] == ["row-0"]
    assert meter.taken() == pytest.approx(1.0 + 0.1 * 2 + 0.01 * 32)
    assert [len(done.token_ids) for done in engine.step()] == [3]
    assert meter.taken() == pytest.approx(1.0 + 0.1 * 1 + 0.01 * 22)
    assert engine.num_running == 0


def test_a_prompt_is_computed_once_while_a_sequence_of_it_runs() -> None:
    meter = Meter()
    engine = engine_of(meter, (2, 2, 2))
    engine.add(requests((1,) * 10, (1,) * 10, (2,) * 10), PARAMS)
    assert meter.taken() == pytest.approx(0.5 * 20)
    stats = engine.stats()
    assert (stats.prefill_tokens, stats.reused_tokens) == (20, 10)
    assert stats.prefill_s == pytest.approx(10.0)
    assert engine.stats().prefill_tokens == 0


def test_beyond_its_room_the_last_sequence_waits_and_is_computed_again() -> None:
    meter = Meter()
    profile = DecodeProfile(
        base_s=1.0, per_sequence_s=0.0, per_context_token_s=0.0, prefill_token_s=0.5, kv_capacity_tokens=24
    )
    engine = engine_of(meter, (4, 4), profile)
    engine.add(requests((1,) * 10, (2,) * 10), PARAMS)
    meter.taken()
    finished: list[str] = []
    num_steps = 0
    while engine.num_running:
        finished += [done.row_uid for done in engine.step()]
        num_steps += 1
        assert engine.stats().context_tokens <= 24
    # Two steps together fill the room; two of the first alone, then two of the other, computed again.
    assert finished == ["row-0", "row-1"]
    assert num_steps == 6
    assert meter.taken() == pytest.approx(6 * 1.0 + 0.5 * 12)


def test_what_is_taken_out_comes_with_its_tokens_and_frees_its_room() -> None:
    meter = Meter()
    engine = engine_of(meter, (5, 5))
    engine.add(requests((1,) * 10, (2,) * 10), PARAMS)
    engine.step()
    [partial] = engine.abort([("row-1", 0)])
    assert len(partial.token_ids) == len(partial.logprobs) == 1
    assert engine.num_running == 1
    assert engine.stats().context_tokens == 11


def test_the_room_of_a_prompt_is_taken_once_and_it_is_read_by_each() -> None:
    meter = Meter()
    profile = DecodeProfile(
        base_s=1.0, per_sequence_s=0.0, per_context_token_s=0.01, prefill_token_s=0.0, kv_capacity_tokens=24
    )
    engine = engine_of(meter, (4, 4, 4), profile)
    engine.add(requests((1,) * 10, (1,) * 10, (1,) * 10), PARAMS)
    meter.taken()
    engine.step()
    assert meter.taken() == pytest.approx(1.0 + 0.01 * 30)
    while engine.num_running:
        engine.step()
    # Ten of the prompt and four of each sequence: all have room to the end.
    assert meter.taken() == pytest.approx(3 * 1.0 + 0.01 * (33 + 36 + 39))


def test_what_was_computed_elsewhere_is_not_computed_here() -> None:
    meter = Meter()
    engine = engine_of(meter, (4,))
    engine.add(requests((1,) * 10), PARAMS)
    engine.step()
    prefix = engine.kv_of("row-0", 0)
    [partial] = engine.abort()
    other = engine_of(meter, (4,))
    other.hold_prefixes([prefix])
    meter.taken()
    fields = {name: getattr(partial, name) for name in GeneratedTokens.__dataclass_fields__}
    other.add([replace(requests((1,) * 10)[0], generated=GeneratedTokens(**fields))], PARAMS)
    assert meter.taken() == 0.0
