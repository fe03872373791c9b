"""Forced lengths: exact, whatever the engine around which they are forced would do."""

import pytest

from controller.scheduling.decode_profile import DecodeProfile
from functions.rollout.engine import GeneratedTokens, SamplingParams, SequenceRequest
from scripts.benchmarks.ablation_forcing import ForcedLengths
from scripts.benchmarks.ablation_pacing import PacedEngine

PROFILE = DecodeProfile(base_s=1.0, per_sequence_s=0.0, per_context_token_s=0.0, prefill_token_s=0.0)
PARAMS = SamplingParams(temperature=1.0, max_tokens=20, eos_token_ids=(1,), stop=("x",))
LENGTHS = {("a", 0): 3, ("a", 1): 20, ("b", 0): 1}


def request(row_uid: str, sample: int, generated: int = 0) -> SequenceRequest:
    tokens = GeneratedTokens(
        token_ids=(0,) * generated,
        logprobs=(-1.0,) * generated,
        processed_logprobs=(-1.0,) * generated,
        loss_mask=(True,) * generated,
    )
    return SequenceRequest(row_uid=row_uid, sample=sample, prompt_token_ids=(1, 2), seed=0, generated=tokens)


def forced(most: int = 20) -> ForcedLengths:
    """Around an engine that itself ends every sequence at ``most`` tokens."""
    inner = PacedEngine(PROFILE, lambda row_uid, sample: most, lambda seconds: None)
    return ForcedLengths(inner, lambda row_uid, sample: LENGTHS[row_uid, sample])


def run_out(engine: ForcedLengths) -> dict[tuple[str, int], int]:
    lengths = {}
    while engine.num_running:
        lengths |= {(each.row_uid, each.sample): len(each.token_ids) for each in engine.step()}
    return lengths


def test_every_sequence_ends_at_its_length() -> None:
    engine = forced()
    engine.add([request(*id) for id in LENGTHS], PARAMS)
    assert run_out(engine) == LENGTHS


def test_a_resumed_sequence_gets_the_rest_of_its_length() -> None:
    engine = forced()
    engine.add([request("a", 1)], PARAMS)
    for _ in range(5):
        engine.step()
    [partial] = engine.abort()
    assert len(partial.token_ids) == 5
    engine.add([request("a", 1, generated=5)], PARAMS)
    assert run_out(engine) == {("a", 1): 20}


def test_an_aborted_sequence_is_forgotten_and_the_others_go_on() -> None:
    engine = forced()
    engine.add([request(*id) for id in LENGTHS], PARAMS)
    engine.abort([("a", 1)])
    assert run_out(engine) == {("a", 0): 3, ("b", 0): 1}


def test_a_length_beyond_the_most_is_refused_with_nothing_added() -> None:
    engine = forced()
    with pytest.raises(ValueError, match="20 tokens is more than max_tokens, 10"):
        engine.add([request("a", 1)], SamplingParams(temperature=1.0, max_tokens=10, eos_token_ids=()))
    assert engine.num_running == 0
