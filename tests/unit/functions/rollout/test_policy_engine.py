"""The policy engine: whatever fails on the way, a call is served by the weights it names or not at all."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from functions.rollout import policy_engine
from functions.rollout.engine import SamplingParams, SequenceRequest
from functions.rollout.policy_engine import PolicyEngine
from shared.contracts.errors import MissingBlob
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.modeling.errors import UnknownModel, WeightsMismatch
from shared.service.handler import CallContext
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs
from tests.unit.functions.rollout.fake_engine import FakeEngine


class PickyEngine(FakeEngine):
    """Refuses weights that name another model, after it has changed what it holds."""

    model = ""
    dtype = torch.float32

    def load(self, weights: bytes | memoryview) -> None:
        super().load(weights)
        if not bytes(weights).startswith(self.model.encode()):
            raise WeightsMismatch("the weights do not fit")


class Workshop:
    """Makes engines and remembers them."""

    def __init__(self) -> None:
        self.made: list[PickyEngine] = []
        self.threads: set[str] = set()

    def make(self, model: str, dtype: torch.dtype) -> PickyEngine:
        self.threads.add(threading.current_thread().name)
        if "unknown" in model:
            raise UnknownModel(f"there is no {model}")
        engine = PickyEngine()
        engine.model, engine.dtype = model, dtype
        self.made.append(engine)
        return engine


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


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
        executor=ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute"),
    )


async def policy(context: CallContext, version: int, weights: str) -> PolicyRef:
    ref = await context.blobs.put("run-1", version, "policy", weights.encode())
    return PolicyRef(version=version, model=ModelRef(path="tiny"), weights=ref)


async def test_weights_are_loaded_once_per_digest(workshop: Workshop, context: CallContext) -> None:
    engines = PolicyEngine(workshop.make)
    first, second = await policy(context, 0, "tiny-0"), await policy(context, 1, "tiny-1")
    engine = await engines.ready(first, "tiny", context, threads=1)
    assert engine.weights == b"tiny-0"
    assert context.watch.load_s > 0
    # The same weights under another version: nothing to load, and nothing to read.
    await context.blobs.delete_run("run-1")
    assert await engines.ready(first.model_copy(update={"version": 9}), "tiny", context, threads=1) is engine
    second = await policy(context, 1, "tiny-1")
    assert await engines.ready(second, "tiny", context, threads=1) is engine
    assert engine.weights == b"tiny-1"
    assert len(workshop.made) == 1
    assert all(name.startswith("compute") for name in workshop.threads)


async def test_another_model_gets_another_engine(workshop: Workshop, context: CallContext) -> None:
    engines = PolicyEngine(workshop.make)
    shared_bytes = await policy(context, 0, "tiny-and-large")
    first = await engines.ready(shared_bytes, "tiny", context, threads=1)
    second = await engines.ready(shared_bytes, "tiny-and", context, threads=1)
    assert (first is second, len(workshop.made)) == (False, 2)


async def test_an_engine_computes_in_the_dtype_of_the_weights(workshop: Workshop, context: CallContext) -> None:
    engines = PolicyEngine(workshop.make)
    exact = await policy(context, 0, "tiny-0")
    rounded = exact.model_copy(update={"dtype": "bfloat16"})
    served = [await engines.ready(each, "tiny", context, threads=1) for each in (exact, rounded, rounded, exact)]
    assert [engine is workshop.made[at] for engine, at in zip(served, (0, 1, 1, 2), strict=True)] == [True] * 4
    assert [engine.dtype for engine in workshop.made] == [torch.float32, torch.bfloat16, torch.float32]


def test_the_torch_engine_is_made_where_the_replica_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(policy_engine, "compute_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(policy_engine.TorchEngine, "for_model", lambda *arguments: asked.extend(arguments))
    policy_engine.torch_engine("tiny", torch.bfloat16)
    assert asked == ["tiny", torch.bfloat16, torch.device("cuda")]


async def test_weights_that_do_not_fit_leave_nothing_served(workshop: Workshop, context: CallContext) -> None:
    engines = PolicyEngine(workshop.make)
    good, bad = await policy(context, 0, "tiny-0"), await policy(context, 1, "other-1")
    await engines.ready(good, "tiny", context, threads=1)
    for _ in range(2):
        with pytest.raises(WeightsMismatch):
            await engines.ready(bad, "tiny", context, threads=1)
    # The engine was left with the bad weights: the good ones are loaded anew.
    engine = await engines.ready(good, "tiny", context, threads=1)
    assert engine.weights == b"tiny-0"


async def test_an_unknown_model_or_missing_weights_do_not_disturb_the_next_call(
    workshop: Workshop, context: CallContext
) -> None:
    engines = PolicyEngine(workshop.make)
    good = await policy(context, 0, "tiny-0")
    await engines.ready(good, "tiny", context, threads=1)
    with pytest.raises(UnknownModel):
        await engines.ready(good, "unknown", context, threads=1)
    gone = await policy(context, 1, "tiny-1")
    await context.blobs.purge("run-1", before_step=2, keep={good.weights.id})
    with pytest.raises(MissingBlob):
        await engines.ready(gone, "tiny", context, threads=1)
    assert (await engines.ready(good, "tiny", context, threads=1)).weights == b"tiny-0"


async def test_damaged_weights_are_not_served_by_the_engine_that_was_made_beside_their_reading(
    workshop: Workshop, context: CallContext
) -> None:
    engines = PolicyEngine(workshop.make)
    served = await policy(context, 0, "tiny-0")
    context.blobs._blobs[served.weights.id] = b"tiny-1"
    for _ in range(2):
        with pytest.raises(MissingBlob, match="damaged"):
            await engines.ready(served, "tiny", context, threads=1)
    assert [engine.weights for engine in workshop.made] == [None]
    context.blobs._blobs[served.weights.id] = b"tiny-0"
    assert (await engines.ready(served, "tiny", context, threads=1)).weights == b"tiny-0"


async def test_the_engine_is_made_while_its_weights_are_read(workshop: Workshop, context: CallContext) -> None:
    made, read = threading.Event(), asyncio.Event()

    class Slow(MemoryBlobs):
        async def view(self, ref: BlobRef) -> memoryview:
            read.set()
            await asyncio.to_thread(made.wait, 10)
            return await super().view(ref)

    def make(model: str, dtype: torch.dtype) -> PickyEngine:
        made.set()
        return workshop.make(model, dtype)

    context = replace(context, blobs=Slow())
    served = await policy(context, 0, "tiny-0")
    engine = await PolicyEngine(make).ready(served, "tiny", context, threads=1)
    assert engine.weights == b"tiny-0"
    assert read.is_set()


async def test_the_old_engine_is_gone_before_the_next_is_made(workshop: Workshop, context: CallContext) -> None:
    engines = PolicyEngine(workshop.make)
    both = await policy(context, 0, "tiny-large")
    await engines.ready(both, "tiny", context, threads=1)

    def make(model: str, dtype: torch.dtype) -> PickyEngine:
        assert engines._engine is None
        return workshop.make(model, dtype)

    engines._make_engine = make
    await engines.ready(both, "tiny-large", context, threads=1)


async def test_a_load_that_is_cut_short_serves_no_digest(workshop: Workshop, context: CallContext) -> None:
    loading, go_on = threading.Event(), threading.Event()

    class Slow(PickyEngine):
        def load(self, weights: bytes | memoryview) -> None:
            if weights == b"tiny-1":
                loading.set()
                assert go_on.wait(10)
            super().load(weights)

    def make(model: str, dtype: torch.dtype) -> PickyEngine:
        engine = Slow()
        engine.model = model
        return engine

    engines = PolicyEngine(make)
    first, second = await policy(context, 0, "tiny-0"), await policy(context, 1, "tiny-1")
    await engines.ready(first, "tiny", context, threads=1)
    cut = asyncio.create_task(engines.ready(second, "tiny", context, threads=1))
    await asyncio.to_thread(loading.wait, 10)
    cut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut
    again = asyncio.create_task(engines.ready(first, "tiny", context, threads=1))
    await asyncio.sleep(0.01)
    go_on.set()
    # What the cut load leaves behind is replaced.
    assert (await again).weights == b"tiny-0"


async def test_an_engine_that_was_left_running_is_not_used_again(workshop: Workshop, context: CallContext) -> None:
    engines = PolicyEngine(workshop.make)
    served = await policy(context, 0, "tiny-0")
    engine = await engines.ready(served, "tiny", context, threads=1)
    request = SequenceRequest(row_uid="row", sample=0, prompt_token_ids=(1,), seed=1)
    engine.add([request], SamplingParams(temperature=1.0, max_tokens=9, eos_token_ids=()))
    fresh = await engines.ready(served, "tiny", context, threads=1)
    assert (fresh is engine, fresh.num_running) == (False, 0)


async def test_a_forgotten_engine_is_made_anew(workshop: Workshop, context: CallContext) -> None:
    engines = PolicyEngine(workshop.make)
    served = await policy(context, 0, "tiny-0")
    engine = await engines.ready(served, "tiny", context, threads=1)
    engines.forget()
    assert await engines.ready(served, "tiny", replace(context, watch=Stopwatch()), threads=1) is not engine


async def adapted(context: CallContext, base: PolicyRef, version: int, adapter: str) -> PolicyRef:
    ref = await context.blobs.put("run-1", version, "policy-adapter", adapter.encode())
    return base.model_copy(update={"version": version, "adapter": ref})


async def test_versions_that_differ_in_their_adapter_share_the_weights(
    workshop: Workshop, context: CallContext
) -> None:
    engines = PolicyEngine(workshop.make)
    base = await policy(context, 0, "tiny-0")
    first, second = [await adapted(context, base, version, f"adapter-{version}") for version in (1, 2)]
    engine = await engines.ready(first, "tiny", context, threads=1)
    assert (engine.weights, engine.adapter) == (b"tiny-0", b"adapter-1")
    # The weights are not read again: they could not be.
    await context.blobs.purge("run-1", before_step=9, keep={second.adapter.id})
    assert await engines.ready(second, "tiny", context, threads=1) is engine
    assert (engine.weights, engine.adapter) == (b"tiny-0", b"adapter-2")
    assert await engines.ready(base, "tiny", context, threads=1) is engine
    assert (engine.weights, engine.adapter) == (b"tiny-0", None)


async def test_an_adapter_comes_with_its_own_weights(workshop: Workshop, context: CallContext) -> None:
    engines = PolicyEngine(workshop.make)
    bases = [await policy(context, version, f"tiny-{version}") for version in (0, 1)]
    same_adapter = [await adapted(context, base, 2, "adapter") for base in bases]
    assert len({each.digest for each in (*bases, *same_adapter)}) == 4
    for base, served in zip(bases, same_adapter, strict=True):
        engine = await engines.ready(served, "tiny", context, threads=1)
        assert (engine.weights, engine.adapter) == (f"tiny-{base.version}".encode(), b"adapter")
    assert (await engines.ready(bases[0], "tiny", context, threads=1)).adapter is None


async def test_an_adapter_that_does_not_fit_leaves_nothing_served(workshop: Workshop, context: CallContext) -> None:
    engines = PolicyEngine(workshop.make)
    base = await policy(context, 0, "tiny-0")
    engine = await engines.ready(base, "tiny", context, threads=1)
    bad = await adapted(context, base, 1, "adapter-of-another")

    def refuse(adapter: bytes | memoryview | None) -> None:
        engine.adapter = b"half of it"
        raise WeightsMismatch("the adapter does not fit")

    engine.adapt = refuse
    with pytest.raises(WeightsMismatch):
        await engines.ready(bad, "tiny", context, threads=1)
    del engine.adapt
    await engines.ready(base, "tiny", context, threads=1)
    assert (engine.weights, engine.adapter) == (b"tiny-0", None)
