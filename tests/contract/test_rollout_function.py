"""The rollout function's process, with the demo's model: exact tokens, and a busy replica that can still be reached."""

import asyncio
import json
import time
from typing import Any

import httpx
import pytest

from functions.rollout.engine import SamplingParams, SequenceRequest
from functions.rollout.torch_engine.engine import TorchEngine
from shared.codec.completions import decode_completion
from shared.contracts.call import StageReply
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import Problem
from shared.contracts.rollout import RolloutOutputs, Sampling
from shared.contracts.rollout_mail import MailKind
from shared.modeling.randomness import address_seed
from shared.store.base import Store
from shared.store.directory_blobs import DirectoryBlobs
from tests.contract.batch import MODEL, POLICY_VERSION, RUN_SEED, Batch
from tests.contract.function_process import FunctionProcess, Functions

LONG = Sampling(temperature=1.0, max_tokens=50, eos_token_ids=(1,), ignore_eos=True)
"""As long as the model's context allows."""

Reply = StageReply[RolloutOutputs]


@pytest.fixture
def batch(store: Store, blobs: DirectoryBlobs) -> Batch:
    return Batch(store, blobs, run="run-rollout")


@pytest.fixture
def long_batch(store: Store, blobs: DirectoryBlobs) -> Batch:
    """Minutes of work for one replica."""
    return Batch(store, blobs, run="run-long", num_rows=500, num_samples=64)


async def completions(batch: Batch) -> dict[SampleId, Completion]:
    stored = await batch.store.work.samples(batch.key, batch.ids)
    return {id: decode_completion(data) for id, data in stored.items()}


def reference_tokens(batch: Batch, sampling: Sampling) -> dict[SampleId, tuple[int, ...]]:
    """What an engine in this process samples for the same addresses, all at once."""
    engine = TorchEngine.for_model(MODEL)
    engine.load((MODEL / "model.safetensors").read_bytes())
    params = SamplingParams(
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        eos_token_ids=() if sampling.ignore_eos else sampling.eos_token_ids,
    )
    prompts = {prompt.row_uid: prompt.token_ids for prompt in batch.prompts()}
    requests = [
        SequenceRequest(
            row_uid=id.row_uid,
            sample=id.sample,
            prompt_token_ids=prompts[id.row_uid],
            seed=address_seed(RUN_SEED, "train", batch.key.step, batch.key.round, id.row_uid, id.sample),
        )
        for id in batch.ids
    ]
    engine.add(requests, params)
    tokens: dict[SampleId, tuple[int, ...]] = {}
    while engine.num_running:
        tokens |= {SampleId(finished.row_uid, finished.sample): finished.token_ids for finished in engine.step()}
    return tokens


async def until_committed(batch: Batch, num_samples: int) -> None:
    for _ in range(6000):
        if await batch.store.work.num_samples(batch.key) >= num_samples:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no completion was committed")


async def test_a_call_samples_exactly_what_its_addresses_say(rollout: FunctionProcess, batch: Batch) -> None:
    await batch.queue()
    body = await batch.rollout_call()
    answer = await rollout.call(body, stage="rollout")
    assert answer.status_code == 200, answer.text
    reply = Reply.model_validate_json(answer.content)
    sampling = Sampling.model_validate(body["inputs"]["sampling"])
    sampled = await completions(batch)
    assert {id: tuple(completion.token_ids.tolist()) for id, completion in sampled.items()} == reference_tokens(
        batch, sampling
    )
    assert (reply.status, reply.outputs.num_completions) == ("done", len(batch.ids))
    assert reply.outputs.num_tokens == sum(len(completion.token_ids) for completion in sampled.values())
    digest = body["policy"]["weights"]["sha256"]
    assert (reply.served.policy_version, reply.served.weights_digest) == (POLICY_VERSION, digest)
    assert {completion.weights_digest for completion in sampled.values()} == {digest}
    assert reply.timings.load_s > 0
    assert reply.timings.compute_s > 0


async def test_the_same_call_again_samples_nothing_anew(rollout: FunctionProcess, batch: Batch) -> None:
    await batch.queue()
    body = await batch.rollout_call()
    first = await rollout.call(body, stage="rollout")
    again = await rollout.call(body | {"attempt": 1, "deadline_at": 1.0}, stage="rollout")
    assert first.content == again.content
    assert await batch.store.work.num_samples(batch.key) == len(batch.ids)


async def test_what_is_refused(rollout: FunctionProcess, batch: Batch) -> None:
    body = await batch.rollout_call()
    gone = {"id": "run-rollout/000003/policy-gone", "num_bytes": 3, "sha256": "0" * 64}
    outside = {"path": "/etc"}
    changes = (
        ({"policy": None}, 422, "invalid_input"),
        ({"policy": body["policy"] | {"weights": gone}}, 410, "missing_blob"),
        ({"policy": body["policy"] | {"model": outside}}, 422, "invalid_input"),
        ({"inputs": body["inputs"] | {"prompts": body["policy"]["weights"]}}, 422, "invalid_input"),
        ({"deadline_at": float("nan")}, 422, "invalid_input"),
    )
    for shard, (change, status, code) in enumerate(changes):
        # A key of its own for each: one that failed keeps standing for its body.
        place = {"key": body["key"] | {"shard": shard}}
        answer = await _post(rollout, body | place | change)
        problem = Problem.model_validate_json(answer.content)
        assert (answer.status_code, problem.code, problem.retryable) == (status, code, False), (change, answer.text)


async def _post(function: FunctionProcess, body: dict[str, Any]) -> httpx.Response:
    async with function.client() as client:
        return await client.post("/v1/rollout", content=json.dumps(body))


async def test_a_busy_replica_answers_its_probe_and_takes_its_mail(rollout: FunctionProcess, long_batch: Batch) -> None:
    await long_batch.queue()
    body = await long_batch.rollout_call(sampling=LONG)
    calling = asyncio.create_task(rollout.call(body, stage="rollout"))
    await until_committed(long_batch, 1)
    async with rollout.client({}) as client:
        for _ in range(20):
            assert (await client.get("/readyz")).status_code == 200
    assert not calling.done()
    # The compute thread was busy all the while: the call's only slot is taken, and its key too.
    busy = await rollout.call(body | {"attempt": 1}, stage="rollout")
    assert (busy.status_code, busy.headers["retry-after"]) == (425, "1")
    assert Problem.model_validate_json(busy.content).retry_after_s == 1.0

    await long_batch.tell(MailKind.CUT, shard=0)
    reply = Reply.model_validate_json((await calling).content)
    assert reply.status == "done"
    committed = await long_batch.store.work.num_samples(long_batch.key)
    assert 0 < reply.outputs.num_completions == committed < len(long_batch.ids)
    partials = await long_batch.store.work.partials(long_batch.key, long_batch.ids)
    assert 0 < len(partials) <= 64


async def test_a_cancelled_call_says_so_and_frees_the_replica(
    rollout: FunctionProcess, long_batch: Batch, batch: Batch
) -> None:
    await long_batch.queue()
    await batch.queue()
    calling = asyncio.create_task(rollout.call(await long_batch.rollout_call(sampling=LONG), stage="rollout"))
    await until_committed(long_batch, 1)
    await long_batch.tell(MailKind.CANCEL)
    cancelled = await calling
    assert (cancelled.status_code, Problem.model_validate_json(cancelled.content).code) == (409, "cancelled")
    assert (await rollout.call(await batch.rollout_call(), stage="rollout")).status_code == 200


async def test_a_call_whose_caller_left_is_continued_by_another_attempt(
    rollout: FunctionProcess, store: Store, blobs: DirectoryBlobs
) -> None:
    batch = Batch(store, blobs, run="run-left", num_rows=12, num_samples=64)
    await batch.queue()
    body = await batch.rollout_call(sampling=LONG)
    calling = asyncio.create_task(rollout.call(body, stage="rollout"))
    await until_committed(batch, 1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    answer = await _patiently(rollout, body | {"attempt": 1})
    reply = Reply.model_validate_json(answer.content)
    assert reply.outputs.num_resumed > 0
    assert 0 < reply.outputs.num_completions < len(batch.ids)
    assert await batch.store.work.num_samples(batch.key) == len(batch.ids)


async def _patiently(function: FunctionProcess, body: dict[str, Any]) -> httpx.Response:
    """Come back as long as the key is busy, as the controller does."""
    for _ in range(100):
        answer = await function.call(body, stage="rollout")
        if answer.status_code != 425:
            assert answer.status_code == 200, answer.text
            return answer
        await asyncio.sleep(0.1)
    raise AssertionError("the key stayed busy")


async def test_a_deadline_cuts_a_call_into_segments(
    rollout: FunctionProcess, store: Store, blobs: DirectoryBlobs
) -> None:
    batch = Batch(store, blobs, run="run-segments", num_rows=500, num_samples=64)
    await batch.queue()
    began = time.time()
    first = await rollout.call(await batch.rollout_call(sampling=LONG, deadline_at=began), stage="rollout")
    reply = Reply.model_validate_json(first.content)
    assert reply.status == "continue"
    assert 0 < reply.outputs.num_completions < len(batch.ids)
    await batch.tell(MailKind.CUT, shard=0)
    body = await batch.rollout_call(sampling=LONG, segment=1)
    second = Reply.model_validate_json((await rollout.call(body, stage="rollout")).content)
    assert second.status == "done"


async def test_a_killed_replica_costs_time_but_no_sample(
    rollout: FunctionProcess, functions: Functions, store: Store, blobs: DirectoryBlobs
) -> None:
    batch = Batch(store, blobs, run="run-killed", num_rows=6, num_samples=4)
    await batch.queue()
    with functions.running("rollout") as victim:
        body = await batch.rollout_call(sampling=LONG, max_num_sequences=2)
        calling = asyncio.create_task(victim.call(body, stage="rollout"))
        await until_committed(batch, 2)
        victim.stop()
        with pytest.raises(httpx.TransportError):
            await calling
    assert await batch.store.work.num_samples(batch.key) < len(batch.ids)
    # As the controller does: further passes, until the lost worker's leases have ended and all is there.
    for segment in range(20):
        await rollout.call(await batch.rollout_call(sampling=LONG, shard=1, segment=segment), stage="rollout")
        if await batch.store.work.num_samples(batch.key) == len(batch.ids):
            break
        await asyncio.sleep(1.0)
    sampled = await completions(batch)
    assert {id: tuple(completion.token_ids.tolist()) for id, completion in sampled.items()} == reference_tokens(
        batch, LONG
    )
    assert {completion.instance for completion in sampled.values()} == {victim.instance, rollout.instance}
