"""Computed prefixes as pieces: every block once, and nobody reads much that is not their own."""

import pytest
import torch

from shared.codec.prefix_kv import decode_kv
from shared.contracts.prefill import PrefixKvScope
from shared.inference import prefix_pieces
from shared.inference.block_hash import BLOCK_TOKENS, blocks_of
from shared.inference.prefix_kv import PrefixKv
from shared.inference.prefix_pieces import pieces_of, shared_by
from shared.store.prefix_kv import KvPiece

SCOPE = PrefixKvScope(weights_digest="w", tokenizer_fingerprint="t", dtype="float32", layout="l1-k2-d4-float32")
SYSTEM = tuple(range(2 * BLOCK_TOKENS))


def prefix(*token_ids: int) -> PrefixKv:
    """KV whose entries are functions of the tokens up to theirs, as a model's are."""
    steps = torch.tensor(token_ids, dtype=torch.float32).cumsum(0)
    keys = steps[None, None, :, None] + torch.arange(8.0).view(1, 2, 1, 4)
    return PrefixKv(token_ids=token_ids, keys=keys, values=-keys)


def cut(prefixes: list[PrefixKv], stored: set[str] = frozenset()) -> list[KvPiece]:
    return list(pieces_of(SCOPE, prefixes, shared_by(each.token_ids for each in prefixes), stored))


def lengths(pieces: list[KvPiece]) -> list[list[int]]:
    return [[block.num_tokens for block in piece.blocks] for piece in pieces]


def test_what_prefixes_share_is_one_piece_and_what_each_adds_another() -> None:
    first, second = prefix(*SYSTEM, *range(500, 570)), prefix(*SYSTEM, 9)
    pieces = cut([first, second])
    assert lengths(pieces) == [[BLOCK_TOKENS, BLOCK_TOKENS], [BLOCK_TOKENS, 6], [1]]
    hashes = [block.hash for piece in pieces for block in piece.blocks]
    assert len(set(hashes)) == len(hashes)
    assert set(hashes) == {block.hash for each in (first, second) for block in blocks_of(each.token_ids)}


def test_a_piece_holds_the_bits_of_its_blocks() -> None:
    first, second = prefix(*SYSTEM, *range(500, 570)), prefix(*SYSTEM, 9)
    for piece, source, start in zip(cut([first, second]), (first, first, second), (0, 128, 128), strict=True):
        kv = decode_kv(SCOPE, memoryview(bytearray(piece.data)))
        assert [block.offset for block in piece.blocks] == [BLOCK_TOKENS * at for at in range(len(piece.blocks))]
        for block in piece.blocks:
            into, of = slice(block.offset, block.offset + block.num_tokens), start + block.offset
            assert torch.equal(kv.keys[:, :, into], source.keys[:, :, of : of + block.num_tokens])
            assert torch.equal(kv.values[:, :, into], source.values[:, :, of : of + block.num_tokens])
        assert kv.block_hashes == tuple(block.hash for block in piece.blocks)


def test_what_is_stored_is_left_out_also_from_the_middle() -> None:
    whole = prefix(*range(4 * BLOCK_TOKENS))
    blocks = blocks_of(whole.token_ids)
    assert cut([whole], {block.hash for block in blocks}) == []
    assert lengths(cut([whole], {blocks[1].hash})) == [[BLOCK_TOKENS], [BLOCK_TOKENS, BLOCK_TOKENS]]


def test_equal_prefixes_and_empty_ones_add_nothing() -> None:
    assert lengths(cut([prefix(1, 2), prefix(1, 2), PrefixKv(**_empty())])) == [[2]]


def _empty() -> dict[str, object]:
    return {"token_ids": (), "keys": torch.zeros(1, 2, 0, 4), "values": torch.zeros(1, 2, 0, 4)}


@pytest.mark.parametrize(("piece_bytes", "blocks"), [(1, [1, 1, 1]), (2 * 64 * BLOCK_TOKENS, [2, 1]), (2**30, [3])])
def test_a_piece_is_bounded_but_never_smaller_than_a_block(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, blocks: list[int]
) -> None:
    monkeypatch.setattr(prefix_pieces, "PIECE_BYTES", piece_bytes)
    pieces = cut([prefix(*range(3 * BLOCK_TOKENS))])
    assert [len(piece.blocks) for piece in pieces] == blocks
