"""The real rollout worker in virtual time, on an engine whose steps take as long as a profile says."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from unittest import mock

from controller.platforms.simulated.clock import spend, virtual_now
from controller.platforms.simulated.platform import SimulatedPlatform
from controller.scheduling.decode_profile import DecodeProfile
from functions.rollout.clock import Clock
from functions.rollout.engine import FinishedSequence, NextTurn, SamplingParams, SequenceRequest
from functions.rollout.worker import RolloutWorker
from shared.contracts.call import StageCall
from shared.contracts.rollout import RolloutInputs, RolloutOutputs
from shared.contracts.stage import Stage
from shared.service import handler, stopwatch
from shared.service.handler import CallContext, Outcome
from tests.fakes.batches import read_prompts
from tests.fakes.virtual import VirtualTime
from tests.unit.functions.rollout.fake_engine import FakeEngine

PROFILE = DecodeProfile(base_s=0.02, per_sequence_s=0.0005, per_context_token_s=0.0, prefill_token_s=0.0001)
"""A step is mostly its base: sequences that end alone are dear."""


@dataclass
class PacedEngine(FakeEngine):
    """``FakeEngine`` that takes its time."""

    def add(
        self, requests: Sequence[SequenceRequest], params: SamplingParams, next_turn: NextTurn | None = None
    ) -> None:
        super().add(requests, params, next_turn)
        tokens = sum(len(request.prompt_token_ids) + len(request.generated.token_ids) for request in requests)
        spend(PROFILE.prefill_token_s * tokens)

    def step(self) -> list[FinishedSequence]:
        spend(PROFILE.base_s + PROFILE.per_sequence_s * self.num_running)
        return super().step()


@dataclass
class PacedRollout:
    """In place of ``FakeRollout.handle``: ``lengths`` are those of all completions, by row and sample."""

    lengths: Mapping[tuple[str, int], int]

    async def handle(self, call: StageCall[RolloutInputs], context: CallContext) -> Outcome[RolloutOutputs]:
        """Work off the batch's items with the worker that is deployed."""
        assert call.policy is not None
        prompts = await read_prompts(context.blobs, call.inputs.prompts)
        worker = RolloutWorker(
            call,
            call.policy,
            prompts,
            PacedEngine(lengths=self.lengths),
            # Each replica computes on a thread of its own.
            replace(context, executor=Executor()),
            clock=Clock(unix=virtual_now, elapsed=asyncio.get_running_loop().time),
        )
        return await worker.run()


async def kill_one(platform: SimulatedPlatform, noise: Random) -> bool:
    """Kill a replica that works on a call, with or without a word to its caller. False if there is none."""
    busy = [
        life.instance
        for life in await platform.replicas()
        if Stage.ROLLOUT in life.stages and life.ended_at is None and life.num_in_flight
    ]
    if busy:
        platform.kill(noise.choice(busy), answered=noise.random() < 0.5)
    return bool(busy)


@contextmanager
def virtual_stages() -> Iterator[None]:
    """Let what stages look at the time with tell virtual time."""
    with (
        mock.patch.object(handler, "time", VirtualTime),
        mock.patch.object(stopwatch, "time", mock.Mock(perf_counter=virtual_now)),
    ):
        yield
