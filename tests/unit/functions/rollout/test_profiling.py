"""A replica's speed, measured on made-up sequences."""

import itertools

import pytest

from functions.rollout.clock import Clock
from functions.rollout.profiling import MAX_S, NUM_STEPS, Profiler, loads
from functions.rollout.torch_engine.engine import TorchEngine
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import RolloutInputs, RolloutOutputs, Sampling
from tests.unit.functions.rollout.batch_world import BatchWorld
from tests.unit.functions.rollout.engine_runs import build
from tests.unit.functions.rollout.fake_engine import LAYOUT, FakeEngine


def inputs(world: BatchWorld, *, max_num_sequences: int = 64, max_tokens: int = 50) -> RolloutInputs:
    sampling = Sampling(temperature=0.7, max_tokens=max_tokens, eos_token_ids=(1,))
    return world.call(max_num_sequences=max_num_sequences, sampling=sampling).inputs


def prompts(*lengths: int) -> list[Prompt]:
    return [
        Prompt(row_uid=f"row-{number}", token_ids=tuple(range(2, 2 + length)), text="")
        for number, length in enumerate(lengths)
    ]


class Paced(FakeEngine):
    """A step takes a base and something for each sequence, by a clock of its own."""

    now_s = 0.0

    def __init__(self) -> None:
        super().__init__(default_length=99)

    def step(self):
        self.now_s += 0.01 + 0.001 * self.num_running
        return super().step()


def measured(world: BatchWorld, engine: Paced, *, rows: list[Prompt], **fields: int) -> RolloutOutputs:
    clock = Clock(elapsed=lambda: engine.now_s)
    return Profiler(engine, rows, inputs(world, **fields), threads=1, clock=clock).run()


def test_few_and_many_sequences_short_and_long_are_measured_the_cheapest_first(memory_world: BatchWorld) -> None:
    found = [(load.num_sequences, load.context_tokens) for load in loads(prompts(4, 10), inputs(memory_world))]
    assert sorted(found) == sorted(itertools.product((1, 3, 16, 64), (10, 32, 55)))
    assert found[0] == (1, 10)
    assert found[-1] == (64, 55)
    products = [one * other for one, other in found]
    assert products == sorted(products)


def test_a_tiny_batch_still_has_a_load(memory_world: BatchWorld) -> None:
    found = loads(prompts(1), inputs(memory_world, max_num_sequences=1, max_tokens=1))
    assert [(load.num_sequences, load.context_tokens) for load in found] == [(1, 2)]


def test_what_a_step_took_is_told_with_its_load(memory_world: BatchWorld) -> None:
    engine = Paced()
    outputs = measured(memory_world, engine, rows=prompts(10))
    assert engine.num_running == 0
    assert len(outputs.decode) > 4
    for stretch in outputs.decode:
        assert stretch.num_steps == NUM_STEPS
        assert stretch.seconds == pytest.approx(NUM_STEPS * (0.01 + 0.001 * stretch.num_sequences))
        # One token more in each sequence at each step, from after the one that is not counted.
        per_sequence = stretch.context_tokens / stretch.num_sequences
        assert per_sequence - 1 - (NUM_STEPS - 1) / 2 in (10, 32, 55)
    assert outputs.prefill_tokens > 0
    assert (outputs.num_completions, outputs.num_tokens) == (0, 0)
    assert outputs.kv_bytes_per_token == LAYOUT.bytes_per_token
    assert outputs.kv_capacity_tokens > 0


def test_what_would_take_too_long_is_not_begun(memory_world: BatchWorld) -> None:
    engine = Paced()
    outputs = measured(memory_world, engine, rows=prompts(10), max_num_sequences=512)
    assert engine.now_s <= MAX_S
    assert max(stretch.num_sequences for stretch in outputs.decode) < 512


def test_groups_of_the_batch_share_a_prompt_and_no_two_groups_do(memory_world: BatchWorld) -> None:
    class Seen(Paced):
        def add(self, requests, params, next_turn=None):
            by_group = {}
            for request in requests:
                by_group.setdefault(request.row_uid, set()).add(request.prompt_token_ids)
            assert all(len(one) == 1 for one in by_group.values())
            assert len(set.union(*by_group.values())) == len(by_group)
            super().add(requests, params, next_turn)

    measured(memory_world, Seen(), rows=prompts(7, 9), max_num_sequences=12)


def test_a_load_that_the_engine_refuses_is_left_out(memory_world: BatchWorld) -> None:
    outputs = measured(memory_world, Paced(), rows=prompts(90), max_tokens=50)
    assert {round(stretch.context_tokens / stretch.num_sequences) for stretch in outputs.decode} == {92}


async def test_a_real_engine_is_measured(memory_world: BatchWorld) -> None:
    engine = TorchEngine(build())
    outputs = Profiler(
        engine, prompts(6), inputs(memory_world, max_num_sequences=4, max_tokens=10), threads=1, clock=Clock()
    ).run()
    assert engine.num_running == 0
    assert {stretch.num_sequences for stretch in outputs.decode} == {1, 3, 4}
    assert all(stretch.seconds > 0 for stretch in outputs.decode)
    assert outputs.prefill_tokens > 0
