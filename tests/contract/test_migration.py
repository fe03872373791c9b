"""Two rollout processes, one of which is cut in the middle: the completions are those of an engine that ran alone."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from functions.rollout.engine import FinishedSequence, SamplingParams, SequenceRequest
from functions.rollout.torch_engine.engine import TorchEngine
from shared.codec.completions import decode_completion
from shared.contracts.call import StageReply
from shared.contracts.completion import SampleId, num_migrations
from shared.contracts.rollout import RolloutOutputs, RolloutProgress, Sampling, WorkItem
from shared.contracts.rollout_mail import MailKind, Taker
from shared.modeling.randomness import address_seed
from shared.store.base import Store
from shared.store.directory_blobs import DirectoryBlobs
from tests.contract.batch import MODEL, RUN_SEED, Batch
from tests.contract.function_process import FunctionProcess, Functions

SAMPLING = Sampling(temperature=1.0, max_tokens=50, eos_token_ids=(1,), ignore_eos=True)
"""As long as the model's context allows."""
Reply = StageReply[RolloutOutputs]


@pytest.fixture(scope="module")
def other(functions: Functions) -> Iterator[FunctionProcess]:
    """A second replica."""
    with functions.running("rollout") as function:
        yield function


def alone(batch: Batch) -> dict[SampleId, FinishedSequence]:
    """What an engine in this process samples for the same addresses, all at once."""
    engine = TorchEngine.for_model(MODEL)
    engine.load((MODEL / "model.safetensors").read_bytes())
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
    engine.add(requests, SamplingParams(temperature=1.0, max_tokens=SAMPLING.max_tokens, eos_token_ids=()))
    finished: dict[SampleId, FinishedSequence] = {}
    while engine.num_running:
        finished |= {SampleId(one.row_uid, one.sample): one for one in engine.step()}
    return finished


async def until_a_third(batch: Batch) -> None:
    """Wait until a third of the tokens of shard 0 are there."""
    for _ in range(6000):
        said = (await batch.store.work.progress(batch.key)).get(0)
        if said is not None:
            report = RolloutProgress.model_validate_json(said)
            num_tokens = report.num_done * SAMPLING.max_tokens + sum(one.num_tokens for one in report.running)
            if num_tokens >= report.num_assigned * SAMPLING.max_tokens / 3:
                return
        await asyncio.sleep(0.01)
    raise AssertionError("the worker did not get so far")


@pytest.mark.parametrize("with_kv", [False, True], ids=["computed again", "keys and values moved"])
async def test_a_cut_changes_no_token(
    rollout: FunctionProcess, other: FunctionProcess, store: Store, blobs: DirectoryBlobs, with_kv: bool
) -> None:
    batch = Batch(store, blobs, run=f"run-migration-{int(with_kv)}", num_rows=40, num_samples=8)
    items = [WorkItem(row_uid=row, samples=tuple(range(8))) for row in batch.texts]
    await store.work.put_items(batch.key, fence=0, assigned=[items[:32], items[32:]], offered=[])
    first = asyncio.create_task(
        rollout.call(await batch.rollout_call(sampling=SAMPLING, max_num_sequences=16), stage="rollout")
    )
    await until_a_third(batch)
    second = asyncio.create_task(
        other.call(await batch.rollout_call(shard=1, sampling=SAMPLING, max_num_sequences=64), stage="rollout")
    )
    takers = (Taker(shard=1, free_slots=16),)
    await batch.tell(MailKind.CUT, shard=0, segment=0, takers=takers, with_kv=with_kv)
    cut, taken = [Reply.model_validate_json((await call).content) for call in (first, second)]
    assert (cut.status, taken.status) == ("done", "done")
    assert 0 < cut.outputs.num_migrated_out == taken.outputs.num_migrated_in <= 16
    assert (taken.outputs.num_prefix_hits > 0) == with_kv
    expected = await asyncio.to_thread(alone, batch)
    stored = await store.work.samples(batch.key, batch.ids)
    assert len(stored) == len(batch.ids)
    num_moved = 0
    for id, data in stored.items():
        completion = decode_completion(data)
        assert completion.token_ids.tolist() == list(expected[id].token_ids)
        np.testing.assert_allclose(completion.rollout_logprobs, expected[id].logprobs, atol=1e-5)
        num_moved += num_migrations(completion.stays)
        assert {stay.shard for stay in completion.stays} <= {0, 1}
    assert num_moved == cut.outputs.num_migrated_out
    assert taken.outputs.decode
    assert cut.outputs.decode
