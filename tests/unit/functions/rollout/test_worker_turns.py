"""Completions of several turns through a worker: stored with what was inserted, the same however often they are cut."""

import numpy as np
import pytest

from functions.rollout import decoding
from functions.rollout.engine import SamplingParams
from functions.rollout.sampling import sampling_params
from functions.rollout.torch_engine.engine import TorchEngine
from functions.rollout.turns.environment import Turn
from functions.rollout.turns.turn_loop import TurnLoop
from functions.rollout.worker import RolloutWorker
from shared.contracts.completion import Completion, SampleId
from shared.contracts.rollout import RolloutOutputs, Sampling
from shared.service.handler import Outcome
from tests.unit.functions.rollout.batch_world import POLICY, BatchWorld
from tests.unit.functions.rollout.engine_runs import EOS, build
from tests.unit.functions.rollout.toy_tokenizers import letter_tokenizer

TOKENIZER = letter_tokenizer()
SAMPLING = Sampling(temperature=1.0, max_tokens=16, eos_token_ids=(EOS,), stop=("h",))


class Echo:
    """Repeats the end of a turn, and tells a turn that ends with "d" of a mistake."""

    stop = ("a", "c", "d", "e")

    def answer(self, turn: Turn) -> str | None:
        if turn.stop not in self.stop:
            return None
        return "<0>" if turn.stop == "d" else turn.text[-2:]

    def is_error(self, inserted: str) -> bool:
        return inserted == "<0>"


async def run(world: BatchWorld, *, segment: int = 0, deadline_at: float = 4e9) -> Outcome[RolloutOutputs]:
    return await RolloutWorker(
        world.call(sampling=SAMPLING, segment=segment),
        POLICY,
        world.prompts(),
        TorchEngine(build(), lambda: TOKENIZER),
        world.context(deadline_at=deadline_at),
        TurnLoop(Echo(), TOKENIZER, max_turns=3),
    ).run()


async def sampled_at_once(world: BatchWorld) -> dict[SampleId, Completion]:
    await world.put()
    await run(world)
    return await world.completions()


def test_a_turn_ends_by_the_call_s_stop_strings_and_by_the_tool_s() -> None:
    params = sampling_params(SAMPLING, Echo.stop)
    assert params == SamplingParams(
        temperature=1.0, max_tokens=16, eos_token_ids=(EOS,), stop=("h", "a", "c", "d", "e")
    )


async def test_a_completion_is_stored_with_its_turns(memory_world: BatchWorld) -> None:
    memory_world.num_samples = 16
    await memory_world.put()
    outputs = (await run(memory_world)).outputs
    completions = await memory_world.completions()
    num_turns = [len(completion.segments) for completion in completions.values()]
    assert set(num_turns) == {1, 2, 3}
    for completion in completions.values():
        starts = [at for at in range(1, len(completion.loss_mask)) if completion.loss_mask[at]]
        starts = [at for at in starts if not completion.loss_mask[at - 1]]
        assert completion.segments == (0, *starts)
        for logprobs in (completion.rollout_logprobs, completion.processed_logprobs):
            assert (logprobs[completion.loss_mask] < 0).all()
            assert not logprobs[~completion.loss_mask].any()
        assert len(completion.token_ids) <= SAMPLING.max_tokens
    assert outputs.num_completions == len(completions)
    assert outputs.num_turns == sum(num_turns)
    assert outputs.num_tool_calls == sum(num_turns) - len(num_turns)
    mistake = TOKENIZER.encode("<0>")
    inserted = [completion.token_ids[~completion.loss_mask].tolist() for completion in completions.values()]
    assert outputs.num_tool_errors == sum(
        tokens[at : at + len(mistake)] == mistake for tokens in inserted for at in range(len(tokens))
    )
    assert 0 < outputs.num_tool_errors < outputs.num_tool_calls


async def test_cut_after_every_token_it_is_the_same(world: BatchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await sampled_at_once(BatchWorld(world.store, world.let_leases_expire, num_rows=3, num_samples=8))
    assert max(len(completion.segments) for completion in expected.values()) == 3
    assert any(completion.finish_reason == "length" for completion in expected.values())
    await world.store.work.sweep(world.call().key.batch)
    monkeypatch.setattr(decoding, "BURST_S", 0.0)
    world.num_rows, world.num_samples = 3, 8
    await world.put()
    segment = 0
    while (await run(world, segment=segment, deadline_at=0.0)).status == "continue":
        segment += 1
    assert segment > 12
    actual = await world.completions()
    assert set(actual) == set(expected)
    for id, completion in actual.items():
        for name in ("token_ids", "loss_mask", "segments", "finish_reason", "prompt_num_tokens"):
            np.testing.assert_array_equal(getattr(completion, name), getattr(expected[id], name))
        for name in ("rollout_logprobs", "processed_logprobs"):
            np.testing.assert_allclose(getattr(completion, name), getattr(expected[id], name), atol=1e-5, rtol=0)
