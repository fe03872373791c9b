"""The prefill function's process before a rollout's: the same tokens as without, whatever becomes of what it stored."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from controller.platforms.local.redis_server import RedisServer
from shared.codec.completions import decode_completion
from shared.contracts.call import CallKey, StageCall, StageReply
from shared.contracts.completion import SampleId
from shared.contracts.policy import ModelRef, PolicyRef
from shared.contracts.prefill import PrefillInputs, PrefillOutputs
from shared.contracts.rollout import RolloutOutputs
from shared.contracts.stage import Stage
from shared.store import keys
from shared.store.base import Store
from shared.store.directory_blobs import DirectoryBlobs
from shared.store.redis_connection import RedisConnection
from tests.contract.batch import FAR_S, MODEL, POLICY_VERSION, Batch
from tests.contract.function_process import FunctionProcess, Functions

NUM_ROWS = 4


@pytest.fixture(scope="module")
def prefill(functions: Functions) -> Iterator[FunctionProcess]:
    with functions.running("prefill") as function:
        yield function


@pytest.fixture
def batch(store: Store, blobs: DirectoryBlobs) -> Batch:
    return Batch(store, blobs, run="run-prefill", num_rows=NUM_ROWS)


async def prefill_call(batch: Batch, **inputs: Any) -> dict[str, Any]:
    """The body of a prefill call on the batch, whose prompts and weights are those of its rollout."""
    rollout = await batch.rollout_call()
    call = StageCall[PrefillInputs](
        key=CallKey(**batch.key.model_dump(), stage=Stage.PREFILL),
        fence=0,
        policy=PolicyRef.model_validate(rollout["policy"]),
        deadline_at=time.time() + FAR_S,
        inputs=PrefillInputs(**{"prompts": rollout["inputs"]["prompts"], "max_num_prefixes": 64, **inputs}),
    )
    return call.model_dump(mode="json")


async def prefilled(function: FunctionProcess, batch: Batch, **inputs: Any) -> PrefillOutputs:
    answer = await function.call(await prefill_call(batch, **inputs), stage="prefill")
    assert answer.status_code == 200, answer.text
    return StageReply[PrefillOutputs].model_validate_json(answer.content).outputs


async def sampled(
    function: FunctionProcess, batch: Batch, *, prefix_kv: bool, shard: int = 0, policy: PolicyRef | None = None
) -> tuple[dict[SampleId, tuple[int, ...]], RolloutOutputs]:
    """The batch's token ids, sampled anew by one worker, and what it says of its prefixes."""
    await batch.store.work.sweep(batch.key)
    await batch.queue()
    body = await batch.rollout_call(shard=shard)
    body["inputs"]["prefix_kv"] = prefix_kv
    if policy is not None:
        body["policy"] = policy.model_dump(mode="json")
    answer = await function.call(body, stage="rollout")
    assert answer.status_code == 200, answer.text
    completions = map(decode_completion, (await batch.store.work.samples(batch.key, batch.ids)).values())
    tokens = {completion.id: tuple(completion.token_ids.tolist()) for completion in completions}
    assert tokens.keys() == set(batch.ids)
    return tokens, StageReply[RolloutOutputs].model_validate_json(answer.content).outputs


def prefix_counts(outputs: RolloutOutputs) -> tuple[int, int, int, int]:
    """Hits, misses, late, damaged."""
    return (
        outputs.num_prefix_hits,
        outputs.num_prefix_misses,
        outputs.num_prefix_late,
        outputs.num_prefix_damaged,
    )


async def bytes_keys(redis: RedisConnection) -> list[str]:
    """Keys of the stored KV's bytes."""
    return await redis.keys(keys.prefix_kv("run-prefill") + "bytes:")


async def test_a_rollout_by_handle_gives_the_same_token_ids(
    prefill: FunctionProcess, rollout: FunctionProcess, batch: Batch
) -> None:
    alone, report = await sampled(rollout, batch, prefix_kv=False)
    assert prefix_counts(report) == (0, 0, 0, 0)
    outputs = await prefilled(prefill, batch)
    assert (outputs.num_prefixes, outputs.num_handles, outputs.num_refused) == (NUM_ROWS, NUM_ROWS, 0)
    assert outputs.stored_bytes > 0
    fetched, report = await sampled(rollout, batch, prefix_kv=True)
    assert fetched == alone
    assert prefix_counts(report) == (NUM_ROWS, 0, 0, 0)
    assert report.prefill_tokens == 0 < report.reused_tokens


async def test_the_same_call_again_is_answered_from_the_store(prefill: FunctionProcess, batch: Batch) -> None:
    body = await prefill_call(batch)
    first = await prefill.call(body, stage="prefill")
    assert (await prefill.call(body | {"attempt": 1}, stage="prefill")).content == first.content
    other = body | {"inputs": body["inputs"] | {"max_num_prefixes": 1}}
    assert (await prefill.call(other, stage="prefill")).status_code == 409


async def test_what_is_damaged_evicted_or_swept_is_computed_by_the_actor(
    prefill: FunctionProcess, rollout: FunctionProcess, batch: Batch, redis: RedisConnection
) -> None:
    await prefilled(prefill, batch)
    damaged, evicted, *rest = await bytes_keys(redis)
    assert len(rest) == NUM_ROWS - 2
    await redis.command("SETRANGE", damaged, 200, b"\xff\xff\xff\xff")
    await redis.command("UNLINK", evicted)
    fetched, report = await sampled(rollout, batch, prefix_kv=True)
    assert prefix_counts(report) == (NUM_ROWS - 2, 1, 0, 1)
    for key in await redis.keys(keys.prefix_kv("run-prefill")):
        await redis.command("UNLINK", key)
    swept, report = await sampled(rollout, batch, prefix_kv=True, shard=1)
    assert prefix_counts(report) == (0, NUM_ROWS, 0, 0)
    alone, _ = await sampled(rollout, batch, prefix_kv=False, shard=2)
    assert alone == fetched == swept


async def test_kv_of_another_policy_version_is_not_taken(
    prefill: FunctionProcess, rollout: FunctionProcess, batch: Batch
) -> None:
    await prefilled(prefill, batch)
    weights = bytearray((MODEL / "model.safetensors").read_bytes())
    last = np.frombuffer(weights, dtype=np.float32, offset=len(weights) - 400)
    last += 0.01
    ref = await batch.blobs.put(batch.key.run, POLICY_VERSION, "policy", bytes(weights))
    policy = PolicyRef(version=POLICY_VERSION, model=ModelRef(path=str(MODEL)), weights=ref)
    fetched, report = await sampled(rollout, batch, prefix_kv=True, policy=policy)
    assert prefix_counts(report) == (0, NUM_ROWS, 0, 0)
    alone, _ = await sampled(rollout, batch, prefix_kv=False, shard=1, policy=policy)
    assert fetched == alone


async def test_a_cache_that_is_full_or_gone_stops_neither_stage(
    functions: Functions, batch: Batch, own_redis_server: RedisServer
) -> None:
    server = {"REDIS_CACHE_URL": own_redis_server.url, "REDIS_CACHE_PASSWORD": own_redis_server.password}
    cache = RedisConnection(own_redis_server.url, password=own_redis_server.password)
    await cache.command("CONFIG", "SET", "maxmemory", 1)
    with functions.running("prefill,rollout", **server) as function:
        outputs = await prefilled(function, batch)
        assert (outputs.num_handles, outputs.stored_bytes, outputs.num_refused > 0) == (0, 0, True)
        full, report = await sampled(function, batch, prefix_kv=True)
        assert prefix_counts(report) == (0, NUM_ROWS, 0, 0)
        await cache.close()
        await own_redis_server.stop()
        gone, report = await sampled(function, batch, prefix_kv=True, shard=1)
        assert prefix_counts(report) == (0, 0, NUM_ROWS, 0)
        alone, _ = await sampled(function, batch, prefix_kv=False, shard=2)
    assert full == gone == alone
