"""Many requests in flight while replicas are killed: is every request answered, once, with what it asked for?"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from scripts.benchmarks.http_caller import Answer, AnswerCut, HttpCaller

MAX_BODY_BYTES = 65536
MAX_SLEEP_S = 1.0
_LISTEN_S = 0.2
PLATFORM_502 = b"the replica failed"


@dataclass(kw_only=True)
class LoadResult:
    """What became of the requests."""

    seconds: float = 0.0
    num_in_flight: int = 0
    num_killed: int = 0
    num_requests: int = 0
    num_200: int = 0
    num_502: int = 0
    num_cut: int = 0
    """Answers that broke off: nothing else can be said where a replica is killed after its first byte."""
    num_other: int = 0
    """Answers of another status, or a 502 that is not the platform's."""
    num_wrong: int = 0
    """Answers with 200 that belong to another request."""
    num_lost: int = 0
    """Requests whose connection ended without an answer."""
    num_twice: int = 0
    """Connections on which more came than was asked for."""
    requests_per_s: float = 0.0
    rss_mib: list[float] = field(default_factory=list)
    """Of the platform: at the start (with all requests in flight), in the middle, at the end."""

    @property
    def is_clean(self) -> bool:
        """Whether every request was answered exactly once: by its function, whole or cut by a kill, or with a 502."""
        answered = self.num_200 + self.num_502 + self.num_cut
        cut_by_kills = self.num_cut <= self.num_502
        return answered == self.num_requests and cut_by_kills and not self.num_twice

    def as_case(self) -> dict[str, object]:
        """For a benchmark's output."""
        return asdict(self)


async def run_load(
    port: int,
    function: str,
    *,
    num_in_flight: int,
    seconds: float,
    kill_every_s: float,
    rss_mib: Callable[[], float] = lambda: 0.0,
    max_sleep_s: float = MAX_SLEEP_S,
    seed: int = 0,
) -> LoadResult:
    """Keep so many requests in flight for some seconds, and kill a replica that has answered every so often."""
    result, replicas = LoadResult(num_in_flight=num_in_flight), Counter[int]()
    start = time.monotonic()
    end = start + seconds
    callers = [
        asyncio.create_task(_keep_calling(HttpCaller(port, function), number, end, max_sleep_s, result, replicas))
        for number in range(num_in_flight)
    ]
    killer = asyncio.create_task(_keep_killing(function, kill_every_s, replicas, result, random.Random(seed)))
    # Flat is what comes after the buffers of all connections have been made once.
    for share in (0.2, 0.6, 1.0):
        await asyncio.sleep(start + share * seconds - time.monotonic())
        result.rss_mib.append(round(rss_mib(), 1))
    killer.cancel()
    await asyncio.gather(*callers)
    await asyncio.gather(killer, return_exceptions=True)
    result.seconds = round(time.monotonic() - start, 2)
    result.requests_per_s = round(result.num_requests / result.seconds, 1)
    return result


async def _keep_calling(
    caller: HttpCaller, number: int, end: float, max_sleep_s: float, result: LoadResult, replicas: Counter[int]
) -> None:
    chance = random.Random(number)
    while time.monotonic() < end:
        request_id = f"{number}-{result.num_requests}"
        body = chance.randbytes(chance.randrange(MAX_BODY_BYTES) if chance.random() < 0.1 else 100)
        result.num_requests += 1
        try:
            answer = await caller.call(f"/?sleep={chance.uniform(0, max_sleep_s):.3f}", body, request_id=request_id)
        except AnswerCut:
            result.num_cut += 1
            continue
        except (OSError, EOFError):
            result.num_lost += 1
            continue
        _count(answer, request_id, body, result)
        if answer.status == 200:
            replicas[int(answer.headers["x-pid"])] += 1
    result.num_twice += await caller.hears_more(_LISTEN_S)
    caller.close()


def _count(answer: Answer, request_id: str, body: bytes, result: LoadResult) -> None:
    if answer.status == 200 and (answer.headers.get("x-id"), answer.body) == (request_id, body):
        result.num_200 += 1
    elif answer.status == 200:
        result.num_wrong += 1
    elif answer.status == 502 and answer.body.startswith(PLATFORM_502):
        result.num_502 += 1
    else:
        result.num_other += 1


async def _keep_killing(
    function: str, every_s: float, replicas: Counter[int], result: LoadResult, chance: random.Random
) -> None:
    """SIGKILL, without a warning, to a replica that is known by its answers."""
    while True:
        await asyncio.sleep(every_s * chance.uniform(0.5, 1.5))
        if not replicas:
            continue
        victim = chance.choice(sorted(replicas))
        del replicas[victim]
        if _is_replica(victim, function):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                result.num_killed += 1


def _is_replica(pid: int, function: str) -> bool:
    """Whether the process is one still, by the log that it writes: a pid may by now be another's."""
    try:
        log = os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        return False
    return Path(log).name.startswith(f"{function}-")
