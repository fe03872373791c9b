"""What prefix KV costs to store, to fetch and to take into an engine, against computing it there.

One prompt of each length on the model that `scripts/bench model` makes, through a Redis of its own and through a folder
in memory. What comes back must be what was stored, bit for bit, or this ends with an error.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from controller.platforms.local.redis_server import RedisServer
from functions.rollout.engine import SamplingParams, SequenceRequest
from functions.rollout.prefix_cache import PrefixCacheParams, fetch
from functions.rollout.torch_engine.engine import TorchEngine
from scripts.benchmarks.make_model import VOCAB_SIZE, make_model, make_tokenizer
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.inference.decoder import Decoder, decoder_for
from shared.inference.prefix_computing import compute_prefixes
from shared.inference.prefix_kv import PrefixKv
from shared.inference.prefix_pieces import pieces_of, shared_by
from shared.inference.prefix_scope import prefix_scope
from shared.service.handler import CallContext
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory_blobs import MemoryBlobs
from shared.store.opening import open_cache, open_prefix_kv, redis_store
from shared.store.prefix_kv import KvPiece
from shared.store.prefix_kv_settings import PrefixKvSettings

RUN = "bench"
ROW = "row-0"
PARAMS = SamplingParams(temperature=1.0, max_tokens=8, eos_token_ids=())
SHARED_MEMORY = Path("/dev/shm")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench prefix-kv", description=__doc__.splitlines()[0])
    parser.add_argument("--prompt-len", type=int, nargs="+", default=[64, 256, 512, 1024])
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--store", nargs="+", default=["redis", "memory"], choices=["redis", "memory"])
    parser.add_argument("--repeats", type=int, default=7, help="of which the median counts, after one that does not")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    asked = arguments(argv)
    torch.set_num_threads(asked.threads)
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as memory:
        cases = asyncio.run(measure_all(asked, Path(memory)))
    columns = ("prefill_ms", "store_ms", "fetch_ms", "rebuild_ms", "speedup")
    print(f"{'case':<24}{'bytes':>11}" + "".join(f"{column:>12}" for column in columns))
    for case in cases:
        print(f"{case['name']:<24}{case['bytes']:>11}" + "".join(f"{case[column]:>12.3f}" for column in columns))
    if asked.json:
        figures = {"threads": asked.threads, "repeats": asked.repeats}
        print(json.dumps({"what": "rlhfless", **figures, "cases": cases}))
    if not all(case["is_exact"] for case in cases):
        sys.exit("prefix KV came back changed")


async def measure_all(asked: argparse.Namespace, memory: Path) -> list[dict[str, Any]]:
    """Every case, on one server and in one folder in memory."""
    with tempfile.TemporaryDirectory() as root:
        server = RedisServer(Path(root))
        await server.start()
        urls = {"redis": "redis://", "memory": memory.as_uri()}
        try:
            return [
                await measure(asked, server, prompt_len, dtype, store, urls[store])
                for store in asked.store
                for dtype in asked.dtype
                for prompt_len in asked.prompt_len
            ]
        finally:
            await server.stop()


async def measure(
    asked: argparse.Namespace, server: RedisServer, prompt_len: int, dtype: str, store: str, url: str
) -> dict[str, Any]:
    """One case: medians in milliseconds."""
    # Two of the same random weights: an engine owns its model.
    engine, decoder = TorchEngine(model_in(dtype)), decoder_for(model_in(dtype))
    settings = PrefixKvSettings.from_environment({"RLHFLESS_PREFIX_KV_URL": url})
    cache = open_cache(settings, server.url, server.password)
    prefix_kv = open_prefix_kv(settings, cache)
    generator = torch.Generator().manual_seed(prompt_len)
    runs = []
    with ThreadPoolExecutor(max_workers=1) as executor:
        context = CallContext(
            store=redis_store(cache, prefix_kv),
            blobs=MemoryBlobs(),
            owner="bench",
            instance="bench",
            deadline_at=time.time() + 3600,
            stop=StopFlag(),
            watch=Stopwatch(),
            executor=executor,
        )
        for _ in range(1 + asked.repeats):
            # Another prompt each time, so that nothing of it is stored.
            prompt = tuple(torch.randint(VOCAB_SIZE, (prompt_len + 1,), generator=generator).tolist())
            runs.append(await one_way_and_back(engine, decoder, context, prompt))
            await prefix_kv.delete_run(RUN)
    await cache.close()
    figures = {
        name: round(statistics.median(run[name] for run in runs[1:]), 3)
        for name in ("prefill_ms", "store_ms", "fetch_ms", "rebuild_ms")
    }
    return {
        "name": f"P{prompt_len} {dtype} {store}",
        "bytes": runs[0]["bytes"],
        **figures,
        "speedup": round(figures["prefill_ms"] / (figures["fetch_ms"] + figures["rebuild_ms"]), 3),
        "is_exact": all(run["is_exact"] for run in runs),
    }


async def one_way_and_back(
    engine: TorchEngine, decoder: Decoder, context: CallContext, prompt: tuple[int, ...]
) -> dict[str, Any]:
    """A prompt prefilled in the engine, and the same one computed apart, stored, fetched and taken in."""
    blob = BlobRef(id=f"{RUN}/000000/policy", num_bytes=1, sha256="0" * 64)
    policy = PolicyRef(version=0, model=ModelRef(path=tempfile.gettempdir()), weights=blob)
    params = PrefixCacheParams(run=RUN, model=policy.model.path, timeout_s=60.0)
    request = SequenceRequest(row_uid=ROW, sample=0, prompt_token_ids=prompt, seed=0)
    scope = prefix_scope(policy, policy.model.path, engine.layout)

    prefill_s = await context.compute(added, engine, request)
    await context.compute(engine.abort)

    [computed] = await context.compute(compute_prefixes, decoder, [prompt[:-1]])
    began = time.perf_counter()
    pieces: list[KvPiece] = await context.compute(list, pieces_of(scope, [computed], shared_by([computed.token_ids])))
    report = await context.store.prefix_kv.put(RUN, scope, pieces)
    store_s = time.perf_counter() - began

    fetched = await fetch([prompt], engine, policy, context, params)
    rebuild_s = await context.compute(added, engine, request)
    taken = await context.compute(engine.kv_of, ROW, 0)
    await context.compute(engine.abort)
    await context.compute(engine.drop_prefixes)
    return {
        "bytes": report.stored_bytes,
        "prefill_ms": 1e3 * prefill_s,
        "store_ms": 1e3 * store_s,
        "fetch_ms": 1e3 * fetched.fetch_s,
        "rebuild_ms": 1e3 * rebuild_s,
        "is_exact": fetched.num_hits == 1 and is_equal(computed, taken),
    }


def model_in(dtype: str) -> PreTrainedModel:
    """The benchmark's model, the same every time."""
    return make_model(make_tokenizer()).to(getattr(torch, dtype))


def added(engine: TorchEngine, request: SequenceRequest) -> float:
    """Seconds that a sequence takes to be ready for its first token."""
    began = time.perf_counter()
    engine.add([request], PARAMS)
    return time.perf_counter() - began


def is_equal(one: PrefixKv, other: PrefixKv) -> bool:
    """Whether both are of the same tokens and the same bits."""
    return one.token_ids == other.token_ids and all(
        torch.equal(first.view(torch.uint8), second.contiguous().view(torch.uint8))
        for first, second in ((one.keys, other.keys), (one.values, other.values))
    )


if __name__ == "__main__":
    main()
