"""The policy decoder: a call is served by the weights that it names, adapter included, or not at all."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from functions.prefill.policy_decoder import PolicyDecoder
from shared.codec.lora_adapter import encode_adapter
from shared.contracts.errors import MissingBlob
from shared.contracts.lora import LoraConfig
from shared.contracts.policy import PolicyRef
from shared.inference.prefix_computing import compute_prefixes
from shared.inference.prefix_scope import prefix_scope
from shared.modeling.device import TORCH_DTYPES
from shared.modeling.errors import WeightsMismatch
from shared.modeling.merged_weights import MergedWeights
from shared.modeling.weights import state_dict_to_blob
from shared.service.handler import CallContext
from shared.training.lora import initial_adapter
from tests.unit.functions.prefill.prefill_world import RUN, PrefillWorld, model_of, prefill_world

PREFIX = (3, 4, 5, 6)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[PrefillWorld]:
    async with prefill_world(tmp_path) as world:
        yield world


async def keys_under(decoder: PolicyDecoder, policy: PolicyRef, world: PrefillWorld) -> torch.Tensor:
    ready = await decoder.ready(policy, str(world.folder), world.context, threads=1)
    return compute_prefixes(ready, [PREFIX])[0].keys


def adapter_bytes() -> bytes:
    """An adapter that changes what is computed; a new one does not."""
    adapter = initial_adapter(model_of(), LoraConfig(rank=2, alpha=4))
    for _, b in adapter.matrices.values():
        b += 0.3
    return encode_adapter(adapter)


def read_blobs(context: CallContext, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the blobs that are read from now on."""
    ids: list[str] = []
    view = context.blobs.view

    async def noted(ref):
        ids.append(ref.id)
        return await view(ref)

    monkeypatch.setattr(context.blobs, "view", noted)
    return ids


async def test_each_call_gets_its_own_weights_and_they_are_loaded_once(
    world: PrefillWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, first, second = PolicyDecoder(), await world.policy(0), await world.policy(1)
    ids = read_blobs(world.context, monkeypatch)
    one = await keys_under(decoder, first, world)
    other = await keys_under(decoder, second, world)
    assert torch.equal(one, await keys_under(PolicyDecoder(), first, world))
    assert not torch.allclose(one, other)
    ids.clear()
    assert torch.equal(other, await keys_under(decoder, second, world))
    assert ids == []
    assert torch.equal(one, await keys_under(decoder, first, world))
    assert ids == [first.weights.id]


async def test_keys_and_values_are_in_the_dtype_of_the_weights(world: PrefillWorld) -> None:
    decoder, exact = PolicyDecoder(), await world.policy(0)
    blob = state_dict_to_blob(model_of(0), torch.bfloat16)
    rounded = exact.model_copy(
        update={"weights": await world.context.blobs.put(RUN, 0, "policy", blob), "dtype": "bfloat16"}
    )
    keys = {policy.dtype: await keys_under(decoder, policy, world) for policy in (exact, rounded)}
    assert {name: tensor.dtype for name, tensor in keys.items()} == dict(TORCH_DTYPES)
    torch.testing.assert_close(keys["bfloat16"].float(), keys["float32"], atol=0.1, rtol=0.1)
    scopes = []
    for policy in (exact, rounded):
        layout = (await decoder.ready(policy, str(world.folder), world.context, threads=1)).layout
        scopes.append(prefix_scope(policy, str(world.folder), layout))
    assert [scope.dtype for scope in scopes] == ["float32", "bfloat16"]
    assert scopes[0].layout != scopes[1].layout


async def test_an_adapter_is_part_of_the_policy_and_its_weights_are_read_once(
    world: PrefillWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, plain = PolicyDecoder(), await world.policy(0)
    adapted = await world.policy(0, adapter=adapter_bytes())
    own = await keys_under(decoder, plain, world)
    ids = read_blobs(world.context, monkeypatch)
    assert not torch.allclose(own, await keys_under(decoder, adapted, world))
    assert ids == [adapted.adapter.id]
    assert torch.equal(own, await keys_under(decoder, plain, world))


async def test_after_a_failure_nothing_is_served_that_was_not_loaded(world: PrefillWorld) -> None:
    decoder, policy = PolicyDecoder(), await world.policy(0)
    keys = await keys_under(decoder, policy, world)
    garbage = await world.context.blobs.put(RUN, 1, "policy", b"garbage")
    with pytest.raises(WeightsMismatch):
        await keys_under(decoder, policy.model_copy(update={"weights": garbage}), world)
    gone = garbage.model_copy(update={"id": f"{RUN}/000001/policy-gone"})
    with pytest.raises(MissingBlob):
        await keys_under(decoder, policy.model_copy(update={"weights": gone}), world)
    bad_adapter = await world.context.blobs.put(RUN, 1, "adapter", b"garbage")
    with pytest.raises(WeightsMismatch):
        await keys_under(decoder, policy.model_copy(update={"adapter": bad_adapter}), world)
    assert torch.equal(keys, await keys_under(decoder, policy, world))


async def test_weights_that_were_half_loaded_serve_nobody(world: PrefillWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, first, second = PolicyDecoder(), await world.policy(0), await world.policy(1)
    keys = await keys_under(decoder, first, world)
    load = MergedWeights.load

    def half(self: MergedWeights, weights: memoryview) -> None:
        load(self, weights)
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(MergedWeights, "load", half)
        with pytest.raises(MemoryError):
            await keys_under(decoder, second, world)
    assert torch.equal(keys, await keys_under(decoder, first, world))
    # Nor are they taken for the base of an adapted policy.
    adapted = await world.policy(0, adapter=adapter_bytes())
    expected = await keys_under(PolicyDecoder(), adapted, world)
    with monkeypatch.context() as patched:
        patched.setattr(MergedWeights, "load", half)
        with pytest.raises(MemoryError):
            await keys_under(decoder, second, world)
    assert torch.equal(expected, await keys_under(decoder, adapted, world))
