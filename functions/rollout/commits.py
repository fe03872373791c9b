"""Stores finished completions while decoding goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from shared.contracts.completion import Completion
from shared.service.ending import end_task


class CommitQueue:
    """One writer. While it waits for the store, what finishes meanwhile gathers and goes in one piece next."""

    def __init__(self, commit: Callable[[Sequence[Completion]], Awaitable[None]]) -> None:
        self._commit = commit
        self._gathered: list[Completion] = []
        self._writer: asyncio.Task[None] | None = None

    def add(self, finished: Sequence[Completion]) -> None:
        """Commit these soon. Raises what an earlier commit failed with."""
        self._gathered += finished
        if self._writer is not None and self._writer.done():
            self._writer.result()
            self._writer = None
        if self._gathered and self._writer is None:
            self._writer = asyncio.create_task(self._write())

    async def settle(self) -> None:
        """Wait until all is committed. Raises what a commit failed with."""
        if self._writer is not None:
            await self._writer

    async def drop(self) -> None:
        """Stop at once; what is not committed yet will be sampled again. Raises nothing."""
        if self._writer is not None:
            await end_task(self._writer)

    async def _write(self) -> None:
        while self._gathered:
            finished, self._gathered = self._gathered, []
            await self._commit(finished)
