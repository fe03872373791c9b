"""Computed prefixes cut into the pieces that are stored: blocks that the same prefixes share lie in one blob.

Shapes: L = layers, K = key-value heads, P = tokens of a prefix, D = head size.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from shared.codec.prefix_kv import KvTensors, encode_kv
from shared.contracts.prefill import PrefixKvScope
from shared.inference.block_hash import Block, blocks_of
from shared.inference.prefix_kv import ComputedPrefix
from shared.store.prefix_kv import KvBlock, KvPiece

PIECE_BYTES = 8 * 2**20
"""What a piece holds at most, unless it is a single block: one value of this size does not stall a Redis noticeably."""


def shared_by(prefixes: Iterable[Sequence[int]]) -> Counter[str]:
    """How many of the prefixes have each block, by its hash."""
    return Counter(block.hash for prefix in prefixes for block in blocks_of(prefix))


def pieces_of(
    scope: PrefixKvScope, prefixes: Sequence[ComputedPrefix], sharers: Counter[str], stored: Collection[str] = ()
) -> Iterator[KvPiece]:
    """The pieces of all prefixes, a block in one of them only, without blocks whose hash is among ``stored``.

    A reader of one prefix reads few bytes that are not its own: a piece ends where ``sharers``, from ``shared_by``,
    says that fewer prefixes go on. Each is encoded when it is asked for.
    """
    known = set(stored)
    for prefix in prefixes:
        new = [block for block in blocks_of(prefix.token_ids) if block.hash not in known]
        known.update(block.hash for block in new)
        max_tokens = PIECE_BYTES // prefix.layout.bytes_per_token
        for run in _runs(new, sharers, max_tokens):
            yield _piece(scope, prefix, run)


def _runs(blocks: Sequence[Block], sharers: Counter[str], max_tokens: int) -> Iterator[list[Block]]:
    """Blocks that follow each other, are shared by equally many prefixes and fit one piece."""
    run: list[Block] = list(blocks[:1])
    for block, after in pairwise(blocks):
        fits = after.end - run[0].start <= max_tokens
        if fits and after.start == block.end and sharers[after.hash] == sharers[block.hash]:
            run.append(after)
        else:
            yield run
            run = [after]
    if run:
        yield run


def _piece(scope: PrefixKvScope, prefix: ComputedPrefix, blocks: Sequence[Block]) -> KvPiece:
    start, end = blocks[0].start, blocks[-1].end
    kv = KvTensors(tuple(block.hash for block in blocks), *prefix.between(start, end))
    return KvPiece(
        blocks=tuple(KvBlock(block.hash, block.start - start, block.num_tokens) for block in blocks),
        data=encode_kv(scope, kv),
    )
