"""The prompts of a batch, read from the blob that a call names."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.contracts.errors import InvalidInput, MissingBlob
from shared.contracts.prompt import Prompt, PromptBatch
from shared.service.handler import CallContext
from shared.service.prompts import read_prompts
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs


@pytest.fixture
def context() -> CallContext:
    return CallContext(
        store=memory_store(lambda: 0.0),
        blobs=MemoryBlobs(),
        owner="owner",
        instance="instance",
        deadline_at=4e9,
        stop=StopFlag(),
        watch=Stopwatch(),
        executor=ThreadPoolExecutor(max_workers=1),
    )


async def test_prompts_are_read_in_order_and_counted_as_loading(context: CallContext) -> None:
    prompts = tuple(Prompt(row_uid=f"row-{index}", token_ids=(1, 2), text="1+1") for index in (2, 0, 1))
    ref = await context.blobs.put("run-1", 0, "prompts", PromptBatch(prompts=prompts).model_dump_json().encode())
    assert await read_prompts(ref, context) == prompts
    assert context.watch.load_s > 0


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'{"prompts": [{"row_uid": "", "token_ids": [1], "text": ""}]}'])
async def test_a_blob_that_holds_something_else_is_bad_input(context: CallContext, data: bytes) -> None:
    ref = await context.blobs.put("run-1", 0, "prompts", data)
    with pytest.raises(InvalidInput, match=ref.id):
        await read_prompts(ref, context)


async def test_a_blob_that_is_gone_is_missing(context: CallContext) -> None:
    ref = await context.blobs.put("run-1", 0, "prompts", b"{}")
    await context.blobs.delete_run("run-1")
    with pytest.raises(MissingBlob):
        await read_prompts(ref, context)
