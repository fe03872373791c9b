"""Platforms that stand before the local one and kill its replicas, with no warning and in the worst moment."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from controller.platforms.base import PlatformReply
from controller.platforms.local.platform import LocalPlatform
from shared.contracts.stage import Purpose, Stage
from tests.e2e.processes import instance_of, kill, replicas_of
from tests.e2e.waiting import wait_until_async


class Before:
    """Passes everything on."""

    def __init__(self, platform: LocalPlatform, state_dir: Path) -> None:
        self._platform = platform
        self._state_dir = state_dir

    def __getattr__(self, name: str) -> Any:
        return getattr(self._platform, name)

    async def invoke(
        self,
        stage: Stage,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        beside: Stage | None = None,
    ) -> PlatformReply:
        """See ``Platform.invoke``."""
        return await self._platform.invoke(stage, path, body, headers=headers, timeout_s=timeout_s, beside=beside)

    async def kill(self, name: str = "") -> None:
        """SIGKILL to the replicas whose instance or function begins so; returns when the platform knows it."""
        victims = replicas_of(self._state_dir, name)
        instances = {instance_of(victim) for victim in victims}

        async def all_ended() -> bool:
            lives = await self._platform.replicas()
            return not any(life.ended_at is None for life in lives if life.instance in instances)

        kill(victims)
        await wait_until_async(all_ended, what="the platform to notice")


class AlwaysCold(Before):
    """Kills every replica after every call; while other calls are under way, only the one that answered.

    A stage's calls go one after the other: one that waits in the proxy is given to the replica that has just answered,
    and no kill is quicker.
    """

    def __init__(self, platform: LocalPlatform, state_dir: Path) -> None:
        super().__init__(platform, state_dir)
        self._turns: defaultdict[Stage, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._killing = asyncio.Lock()
        self._num_in_flight = 0
        self.served_by: list[str] = []
        """The instance that answered each call."""

    async def invoke(
        self,
        stage: Stage,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        beside: Stage | None = None,
    ) -> PlatformReply:
        """Pass on, then kill."""
        async with self._turns[stage]:
            async with self._killing:
                # Until the platform knows who is dead it gives them calls.
                self._num_in_flight += 1
            try:
                reply = await super().invoke(stage, path, body, headers=headers, timeout_s=timeout_s, beside=beside)
            finally:
                self._num_in_flight -= 1
            if reply.status == 200:
                instance = json.loads(reply.body)["served"]["instance"]
                self.served_by.append(instance)
                async with self._killing:
                    await self.kill(instance if self._num_in_flight else "")
        return reply


class KilledOnce(Before):
    """Kills one replica of a stage, once, in the middle of a call of training."""

    def __init__(
        self, platform: LocalPlatform, state_dir: Path, stage: Stage, *, when: Callable[[], Awaitable[bool]]
    ) -> None:
        super().__init__(platform, state_dir)
        self._stage = stage
        self._when = when
        self._began = False
        self.num_killed = 0

    async def invoke(
        self,
        stage: Stage,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        beside: Stage | None = None,
    ) -> PlatformReply:
        """Pass on, and kill while the first such call is under way."""
        call = asyncio.create_task(
            super().invoke(stage, path, body, headers=headers, timeout_s=timeout_s, beside=beside)
        )
        if stage is self._stage and json.loads(body)["key"]["purpose"] == Purpose.TRAIN and not self._began:
            self._began = True
            await wait_until_async(self._when, what=f"the {stage} to be in the middle of its call")
            assert not call.done(), "the call was over before the kill"
            victim = min(replicas_of(self._state_dir, stage))
            kill([victim])
            self.num_killed += 1
        return await call
