"""What the local platform's front door costs: added latency, requests per second, and how it stands a bad minute.

Replicas are real: uvicorn behind the local platform, which runs in a process of its own.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.benchmarks.http_caller import HttpCaller
from scripts.benchmarks.proxy_load import run_load
from scripts.benchmarks.proxy_platform import FUNCTION, RunningPlatform, running_platform

BODY = b"x" * 512
CONCURRENCIES = (1, 16, 500)
KILL_EVERY_S = 1.0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench proxy", description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=4000, help="requests per figure of latency and throughput")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the load lasts")
    parser.add_argument("--in-flight", type=int, default=500, help="requests in flight under load")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    asked = arguments()
    with (
        tempfile.TemporaryDirectory(prefix="rlhfless-bench-") as folder,
        running_platform(Path(folder), num_replicas=asked.replicas) as platform,
    ):
        cases = asyncio.run(measure(platform, asked))
    show(cases)
    if asked.json:
        print(json.dumps({"what": "rlhfless proxy", "replicas": asked.replicas, "cases": cases}))


async def measure(platform: RunningPlatform, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """All cases, the quiet ones first."""
    proxied = HttpCaller(platform.port, FUNCTION)
    # The first answer also waits for the first replica; it tells where one listens.
    replica_port = int((await proxied.call("/", BODY)).headers["x-port"])
    proxied.close()
    cases = [await latency(replica_port, platform.port, asked.requests)]
    for concurrency in CONCURRENCIES:
        cases.append(await throughput(platform.port, concurrency, asked.requests))
    load = await run_load(
        platform.port,
        FUNCTION,
        num_in_flight=asked.in_flight,
        seconds=asked.seconds,
        kill_every_s=KILL_EVERY_S,
        rss_mib=platform.rss_mib,
    )
    if not load.is_clean:
        raise SystemExit(f"requests were lost, answered twice or answered wrongly: {load}")
    return [*cases, {"name": "load", **load.as_case()}]


async def latency(replica_port: int, proxy_port: int, num_requests: int) -> dict[str, Any]:
    """One request at a time, by turns straight to a replica and through the proxy, on connections that stay open."""
    callers = {"direct": HttpCaller(replica_port, FUNCTION), "proxied": HttpCaller(proxy_port, FUNCTION)}
    ms: dict[str, list[float]] = {name: [] for name in callers}
    for number in range(num_requests + num_requests // 10):
        for name, caller in callers.items():
            start = time.perf_counter()
            answer = await caller.call("/", BODY)
            if number >= num_requests // 10:  # before that they warm up
                ms[name].append((time.perf_counter() - start) * 1000)
            if answer.status != 200:
                raise SystemExit(f"{name}: {answer}")
    for caller in callers.values():
        caller.close()
    figures = {name: {"median": statistics.median(values), "p99": p99(values)} for name, values in ms.items()}
    return {
        "name": "latency",
        "requests": num_requests,
        **{f"{name}_ms_{what}": round(value, 4) for name, of in figures.items() for what, value in of.items()},
        **{
            f"added_ms_{what}": round(figures["proxied"][what] - figures["direct"][what], 4)
            for what in ("median", "p99")
        },
    }


async def throughput(port: int, concurrency: int, num_requests: int) -> dict[str, Any]:
    """So many callers, each with one request at a time."""

    async def keep_calling(caller: HttpCaller, count: int) -> None:
        for _ in range(count):
            answer = await caller.call("/", BODY)
            if answer.status != 200:
                raise SystemExit(f"{concurrency} at a time: {answer}")

    callers = [HttpCaller(port, FUNCTION) for _ in range(concurrency)]
    await asyncio.gather(*(keep_calling(caller, 1) for caller in callers))
    each = max(1, num_requests // concurrency)
    start = time.perf_counter()
    await asyncio.gather(*(keep_calling(caller, each) for caller in callers))
    seconds = time.perf_counter() - start
    for caller in callers:
        caller.close()
    return {
        "name": f"concurrency {concurrency}",
        "requests": each * concurrency,
        "requests_per_s": round(each * concurrency / seconds, 1),
    }


def p99(values: list[float]) -> float:
    """The value that 99 % are below."""
    return statistics.quantiles(values, n=100)[-1]


def show(cases: list[dict[str, Any]]) -> None:
    """The figures for a person."""
    for case in cases:
        print(", ".join(f"{key} {value}" for key, value in case.items()))


if __name__ == "__main__":
    main()
