"""Which child processes are kept between reward calls."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from functions.reward.user_process import UserCode, UserProcess


class UserPool:
    """Warm processes by function: started when first needed, one for each call that runs at a time.

    Keeps at most ``max_idle`` idle ones; the least recently used goes first.
    """

    def __init__(self, environment: Mapping[str, str], *, load_limit_s: float, max_idle: int) -> None:
        self._environment = environment
        self._load_limit_s = load_limit_s
        self._max_idle = max_idle
        self._idle: list[tuple[UserCode, UserProcess]] = []

    @asynccontextmanager
    async def process(self, code: UserCode) -> AsyncIterator[UserProcess]:
        """Lend a process that has loaded ``code``. It is ended if the block raises, kept if still usable."""
        process = self._take(code)
        if process is None:
            process = await UserProcess.start(code, self._environment, self._load_limit_s)
        try:
            yield process
        except BaseException:
            await process.close()
            raise
        if not process.usable:
            await process.close()
            return
        self._idle.append((code, process))
        while len(self._idle) > self._max_idle:
            _, oldest = self._idle.pop(0)
            await oldest.close()

    async def close(self) -> None:
        """End all idle processes."""
        while self._idle:
            _, process = self._idle.pop()
            await process.close()

    def _take(self, code: UserCode) -> UserProcess | None:
        for position, (loaded, process) in enumerate(self._idle):
            if loaded == code and process.usable:
                del self._idle[position]
                return process
        return None
