"""The learner function's process: updates that a kill cannot lose or change, made by one rank or by two."""

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from safetensors.numpy import load

from shared.contracts.call import StageReply
from shared.contracts.errors import Problem
from shared.contracts.learner import AlgorithmConfig, LearnerOutputs
from shared.contracts.policy import PolicyRef
from shared.store.base import Store
from shared.store.directory_blobs import DirectoryBlobs
from tests.contract.function_process import FunctionProcess, Functions
from tests.contract.learner_batch import VERSION, LearnerBatch

# Each of its processes takes seconds to start.
pytestmark = pytest.mark.slow
Reply = StageReply[LearnerOutputs]
SEVERAL_UPDATES = AlgorithmConfig(ppo_epochs=3, ppo_mini_batch_size=2, max_token_len=60)
LONG = AlgorithmConfig(ppo_epochs=12, ppo_mini_batch_size=1, max_token_len=20)
"""Seconds of work."""


@pytest.fixture(scope="module")
def learner(functions: Functions) -> Iterator[FunctionProcess]:
    """A replica of one rank, for all tests that leave it as it is."""
    with functions.running("learner") as function:
        yield function


@pytest.fixture(scope="module")
def pair(functions: Functions) -> Iterator[FunctionProcess]:
    """A replica of two ranks, for all tests that leave it as it is."""
    with functions.running("learner", RLHFLESS_NUM_RANKS="2") as function:
        yield function


@pytest.fixture
def make_batch(store: Store, blobs: DirectoryBlobs) -> Any:
    def make(run: str) -> LearnerBatch:
        return LearnerBatch(store, blobs, run=run)

    return make


def reply_of(answer: httpx.Response) -> StageReply[LearnerOutputs]:
    assert answer.status_code == 200, answer.text
    return Reply.model_validate_json(answer.content)


def made(reply: StageReply[LearnerOutputs]) -> PolicyRef:
    assert reply.outputs.policy is not None
    assert reply.outputs.policy.version == VERSION + 1
    return reply.outputs.policy


async def patiently(function: FunctionProcess, body: dict[str, Any]) -> httpx.Response:
    """Come back as long as the key is a dead replica's, as the controller does."""
    for _ in range(200):
        answer = await function.call(body, stage="learner")
        if answer.status_code != 425:
            return answer
        await asyncio.sleep(0.1)
    raise AssertionError("the key stayed busy")


def other_ranks(function: FunctionProcess) -> list[psutil.Process]:
    return psutil.Process(function.process.pid).children(recursive=True)


async def until_computing(function: FunctionProcess, calling: "asyncio.Task[httpx.Response]") -> None:
    """Until the other rank has used some of a core for the call."""
    rank = other_ranks(function)[0]
    before = rank.cpu_times().user
    while rank.cpu_times().user < before + 0.3:
        assert not calling.done(), calling.result().text
        await asyncio.sleep(0.02)


async def until_ended(processes: list[psutil.Process]) -> None:
    for _ in range(1000):
        if not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"still running: {processes}")


def holds_something(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


async def until_published(folder: Path) -> None:
    """Until the first blob of a version is there."""
    for _ in range(60_000):
        if holds_something(folder):
            return
        await asyncio.sleep(0.001)
    raise AssertionError("nothing was published")


async def weights_of(blobs: DirectoryBlobs, policy: PolicyRef) -> dict[str, Any]:
    return load(await blobs.get(policy.weights))


async def test_an_update_is_durable_before_it_is_answered(
    learner: FunctionProcess, make_batch: Any, blobs: DirectoryBlobs
) -> None:
    batch = make_batch("run-learner")
    first = await learner.call(await batch.call(), stage="learner")
    reply = reply_of(first)
    again = await learner.call(await batch.call(attempt=1, deadline_at=1.0), stage="learner")

    assert again.content == first.content
    assert reply.outputs.state is not None
    for ref in (made(reply).weights, reply.outputs.state):
        assert len(await blobs.get(ref)) == ref.num_bytes
    assert reply.served.weights_digest == batch.policy.digest != made(reply).digest


@pytest.mark.parametrize("attempt", range(4))
async def test_a_kill_at_any_moment_changes_nothing_but_the_time(
    functions: Functions, learner: FunctionProcess, make_batch: Any, store: Store, attempt: int
) -> None:
    """The first of four right between the blobs and the reply, where there is anything to see of that moment."""
    undisturbed = reply_of(await learner.call(await make_batch("run-calm").call(algorithm=LONG), stage="learner"))
    run = f"run-killed-{attempt}"
    body = await make_batch(run).call(algorithm=LONG)
    with functions.running("learner") as victim:
        calling = asyncio.create_task(victim.call(body, stage="learner"))
        if attempt == 0:
            await until_published(functions.blobs / run / f"{VERSION + 1:06d}")
        else:
            await asyncio.sleep(random.Random(attempt).uniform(0.2, undisturbed.timings.compute_s))
        victim.stop()
        answer = await asyncio.gather(calling, return_exceptions=True)
        assert isinstance(answer[0], httpx.TransportError) or attempt == 0

    retried = reply_of(await patiently(learner, body | {"attempt": 1}))
    assert made(retried).digest == made(undisturbed).digest
    assert retried.outputs.state is not None
    assert undisturbed.outputs.state is not None
    assert retried.outputs.state.sha256 == undisturbed.outputs.state.sha256
    assert retried.metrics == undisturbed.metrics


async def test_two_ranks_make_the_update_of_one(
    learner: FunctionProcess, pair: FunctionProcess, make_batch: Any, blobs: DirectoryBlobs
) -> None:
    replies = []
    for function, run in ((learner, "run-one"), (pair, "run-two")):
        batch = make_batch(run)
        body = await batch.call(algorithm=SEVERAL_UPDATES)
        replies.append(reply_of(await function.call(body, stage="learner")))
    one, two = replies
    expected, weights = [await weights_of(blobs, made(reply)) for reply in replies]
    started_from = await weights_of(blobs, batch.policy)

    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(weights[name], tensor, atol=1e-6, rtol=0)
    assert max(float(np.abs(expected[name] - started_from[name]).max()) for name in expected) > 1e-4
    assert two.metrics == pytest.approx(one.metrics, rel=1e-4, abs=1e-6)
    assert len(other_ranks(pair)) == 1


async def test_a_rank_that_is_killed_fails_the_call_and_not_the_next(functions: Functions, make_batch: Any) -> None:
    with functions.running("learner", RLHFLESS_NUM_RANKS="2") as function:
        undisturbed = reply_of(await function.call(await make_batch("run-whole").call(algorithm=LONG), stage="learner"))
        body = await make_batch("run-broken").call(algorithm=LONG)
        [rank] = other_ranks(function)
        calling = asyncio.create_task(function.call(body, stage="learner"))
        await until_computing(function, calling)
        rank.kill()
        answer = await calling

        problem = Problem.model_validate_json(answer.content)
        assert (answer.status_code, problem.code, problem.retryable) == (500, "update_failed", True)
        assert "rank 1 was ended by signal 9" in problem.message
        retried = reply_of(await function.call(body | {"attempt": 1}, stage="learner"))
        assert made(retried).digest == made(undisturbed).digest
        [another] = other_ranks(function)
        assert another.pid != rank.pid

        another.kill()
        await until_ended([another])
        idle_loss = await make_batch("run-idle").call(algorithm=LONG)
        assert made(reply_of(await function.call(idle_loss, stage="learner"))).digest == made(undisturbed).digest


async def test_ranks_end_with_the_process_that_serves(functions: Functions, make_batch: Any) -> None:
    with functions.running("learner", RLHFLESS_NUM_RANKS="2") as function:
        body = await make_batch("run-killed").call(algorithm=LONG)
        await function.call(body, stage="learner")
        ranks = other_ranks(function)
        calling = asyncio.create_task(function.call(await make_batch("run-k2").call(algorithm=LONG), stage="learner"))
        await until_computing(function, calling)
        function.stop()
        await asyncio.gather(calling, return_exceptions=True)
        await until_ended(ranks)


async def test_a_replica_that_is_asked_to_end_finishes_its_update(functions: Functions, make_batch: Any) -> None:
    with functions.running("learner", RLHFLESS_NUM_RANKS="2") as function:
        await function.call(await make_batch("run-warm").call(), stage="learner")
        ranks = other_ranks(function)
        calling = asyncio.create_task(function.call(await make_batch("run-term").call(algorithm=LONG), stage="learner"))
        await until_computing(function, calling)
        for process in (*ranks, psutil.Process(function.process.pid)):
            # Every process of the container may be told, as by Ctrl-C in a terminal.
            process.send_signal(signal.SIGTERM)
        assert made(reply_of(await calling)).version == VERSION + 1
        # The server raises the signal again when it is done.
        assert await asyncio.to_thread(function.process.wait, 30) == -signal.SIGTERM
        await until_ended(ranks)


async def test_a_caller_that_leaves_stops_all_ranks(pair: FunctionProcess, make_batch: Any) -> None:
    long = LONG.model_copy(update={"ppo_epochs": 10_000})
    body = await make_batch("run-left").call(algorithm=long)
    await pair.call(await make_batch("run-before").call(), stage="learner")
    calling = asyncio.create_task(pair.call(body, stage="learner"))
    await until_computing(pair, calling)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    # It would otherwise wait for an hour of updates.
    assert made(reply_of(await pair.call(await make_batch("run-after").call(), stage="learner")))
