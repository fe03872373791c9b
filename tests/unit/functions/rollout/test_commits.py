"""The queue of finished completions: in one writer's hands, and no failure is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import pytest

from functions.rollout.commits import CommitQueue
from shared.contracts.completion import Completion, SampleId


def finished(*names: int) -> list[Completion]:
    return [
        Completion(
            id=SampleId("row", name),
            prompt_num_tokens=1,
            token_ids=np.ones(1, np.int32),
            rollout_logprobs=np.zeros(1, np.float32),
            processed_logprobs=np.zeros(1, np.float32),
            loss_mask=np.ones(1, np.bool_),
            segments=(0,),
            finish_reason="stop",
            policy_version=0,
            weights_digest="d",
            instance="i",
            started_at=1.0,
            ended_at=2.0,
        )
        for name in names
    ]


class Store:
    """Notes what is committed in one piece, each when it is let go."""

    def __init__(self) -> None:
        self.pieces: list[list[int]] = []
        self.go_on = asyncio.Event()
        self.error: Exception | None = None

    async def commit(self, completions: Sequence[Completion]) -> None:
        self.pieces.append([completion.id.sample for completion in completions])
        await self.go_on.wait()
        if self.error is not None:
            raise self.error


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_gathers_during_a_commit_goes_in_one_piece_next() -> None:
    store = Store()
    queue = CommitQueue(store.commit)
    for sequence in finished(1, 2, 3):
        queue.add([sequence])
        await turns()
    assert store.pieces == [[1]]
    store.go_on.set()
    await queue.settle()
    assert store.pieces == [[1], [2, 3]]
    queue.add(finished(4))
    await queue.settle()
    assert store.pieces == [[1], [2, 3], [4]]


async def test_an_empty_queue_is_settled() -> None:
    queue = CommitQueue(Store().commit)
    queue.add([])
    await queue.settle()
    await queue.drop()


async def settle(queue: CommitQueue) -> None:
    await queue.settle()


async def add_another(queue: CommitQueue) -> None:
    queue.add(finished(2))


async def add_nothing(queue: CommitQueue) -> None:
    queue.add([])


@pytest.mark.parametrize("notice", [settle, add_another, add_nothing])
async def test_a_failed_commit_is_noticed(notice: Callable[[CommitQueue], Awaitable[None]]) -> None:
    store = Store()
    store.error = OSError("disk full")
    store.go_on.set()
    queue = CommitQueue(store.commit)
    queue.add(finished(1))
    await turns()
    with pytest.raises(OSError, match="disk full"):
        await notice(queue)


@pytest.mark.parametrize("state", ["waiting", "failed", "ended"])
async def test_a_dropped_queue_commits_nothing_more_and_raises_nothing(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    queue = CommitQueue(store.commit)
    queue.add(finished(1))
    await turns()
    queue.add(finished(2))
    if state == "failed":
        store.error = OSError("disk full")
    if state != "waiting":
        store.go_on.set()
        await turns()
    await queue.drop()
    store.go_on.set()
    await turns()
    assert store.pieces == ([[1], [2]] if state == "ended" else [[1]])
    assert caplog.text == ""
