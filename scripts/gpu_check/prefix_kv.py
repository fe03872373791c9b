"""Prefix KV of a model's size from the device into a store and back: encode, digest and write; read, verify and place.

One piece per prompt, as the prefill stage stores it. The stores are those of one machine: a folder, in shared memory
where it has room, and the memory of this process. Bytes are counted once, however often they are copied on the way.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from scripts.gpu_check.figures import Figures, Timer
from scripts.gpu_check.machine import SHARED_MEMORY
from scripts.gpu_check.plan import Section
from scripts.gpu_check.publishing import roomy_folder
from scripts.gpu_check.shapes import FULL_WORK, SHAPES, SMALL_WORK
from shared.codec.prefix_kv import KvTensors, decode_kv, encode_kv
from shared.contracts.policy import BlobRef
from shared.contracts.prefill import PrefixKvScope
from shared.inference.block_hash import Block, blocks_of
from shared.inference.prefix_kv import KvLayout
from shared.store.directory_bytes import DirectoryBytes
from shared.store.droppable_bytes import kv_ref
from shared.store.memory_prefix_kv import MemoryPrefixKv
from shared.store.prefix_kv import KvBlock, KvPiece

RUN = "gpu-check"
REPEATS = 3


def measure(section: Section, figures: Figures) -> None:
    """Store and fetch the KV of all prompts, the fastest of several times."""
    shape, device = SHAPES[section.shape], torch.device(section.device)
    work = SMALL_WORK if section.is_small else FULL_WORK
    layout = KvLayout(
        num_layers=shape.num_layers, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, dtype=section.dtype
    )
    scope = PrefixKvScope(weights_digest="0" * 64, tokenizer_fingerprint="none", dtype=layout.dtype, layout=layout.name)
    chains = [blocks_of([number] * work.prompt_tokens) for number in range(work.num_prompts)]
    size = (layout.num_layers, layout.num_kv_heads, work.prompt_tokens, layout.head_dim)
    prefixes = [
        KvTensors(
            tuple(block.hash for block in chain),
            *(torch.randn(size, device=device).to(getattr(torch, section.dtype)) for _ in range(2)),
        )
        for chain in chains
    ]
    num_bytes = layout.bytes_per_token * work.prompt_tokens * work.num_prompts
    figures.add(num_bytes=num_bytes, bytes_per_token=layout.bytes_per_token, num_prompts=work.num_prompts)
    with tempfile.TemporaryDirectory(dir=roomy_folder(num_bytes * REPEATS)) as root:
        figures.add(folder_is_in_memory=Path(root).is_relative_to(SHARED_MEMORY))
        through_folder(scope, prefixes, DirectoryBytes(Path(root)), Timer(device), figures)
    through_memory(scope, prefixes, chains, MemoryPrefixKv(budget_bytes=4 * num_bytes), Timer(device), figures)


def through_folder(
    scope: PrefixKvScope, prefixes: Sequence[KvTensors], folder: DirectoryBytes, timer: Timer, figures: Figures
) -> None:
    """Into files and back."""

    async def store() -> list[BlobRef]:
        refs = []
        for kv in prefixes:
            data = encode_kv(scope, kv)
            refs.append(kv_ref(RUN, scope.weights_digest, data))
            await folder.put(refs[-1], data)
        return refs

    async def fetch(refs: Sequence[BlobRef]) -> list[KvTensors]:
        return [placed(scope, ref, await folder.get(ref), kv) for ref, kv in zip(refs, prefixes, strict=True)]

    refs = asyncio.run(store())
    store_s = timer.best(lambda: asyncio.run(store()), REPEATS)
    fetch_s = timer.best(lambda: asyncio.run(fetch(refs)), REPEATS)
    num_gb = figures.figures["num_bytes"] / 1e9
    figures.add(folder_store_gb_per_s=num_gb / store_s, folder_fetch_gb_per_s=num_gb / fetch_s)
    figures.check("prefixes changed on the way through files", differing(prefixes, asyncio.run(fetch(refs))), at_most=0)


def through_memory(
    scope: PrefixKvScope,
    prefixes: Sequence[KvTensors],
    chains: Sequence[tuple[Block, ...]],
    memory: MemoryPrefixKv,
    timer: Timer,
    figures: Figures,
) -> None:
    """Into the store of simulations and back, with its handles."""

    async def store() -> None:
        for kv, chain in zip(prefixes, chains, strict=True):
            blocks = tuple(KvBlock(block.hash, block.start, block.num_tokens) for block in chain)
            await memory.put(RUN, scope, [KvPiece(blocks, encode_kv(scope, kv))])

    async def fetch() -> list[KvTensors]:
        handles = await memory.find(RUN, scope, [chain[-1].hash for chain in chains])
        refs = [handles[chain[-1].hash].blob for chain in chains]
        return [placed(scope, ref, await memory.read(ref), kv) for ref, kv in zip(refs, prefixes, strict=True)]

    asyncio.run(store())
    store_s = timer.best(lambda: asyncio.run(store()), REPEATS)
    fetch_s = timer.best(lambda: asyncio.run(fetch()), REPEATS)
    num_gb = figures.figures["num_bytes"] / 1e9
    figures.add(memory_store_gb_per_s=num_gb / store_s, memory_fetch_gb_per_s=num_gb / fetch_s)
    figures.check("prefixes changed on the way through memory", differing(prefixes, asyncio.run(fetch())), at_most=0)


def placed(scope: PrefixKvScope, ref: BlobRef, data: memoryview, like: KvTensors) -> KvTensors:
    """The tensors on the device, from bytes that are what the reference says."""
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise RuntimeError(f"{ref.id} was damaged in the store")
    kv = decode_kv(scope, data)
    return KvTensors(kv.block_hashes, kv.keys.to(like.keys.device), kv.values.to(like.values.device))


def differing(before: Sequence[KvTensors], after: Sequence[KvTensors]) -> int:
    """Prefixes of which a bit or a block is another."""
    return sum(
        one.block_hashes != other.block_hashes
        or not torch.equal(one.keys, other.keys)
        or not torch.equal(one.values, other.values)
        for one, other in zip(before, after, strict=True)
    )
