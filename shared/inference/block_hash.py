"""Token ids cut into blocks whose hashes are chained, so that sequences with a common beginning share its blocks.

A block's hash stands for its tokens and all before them: equal hashes mean equal beginnings, and the keys and values of
a block depend on nothing else but the policy.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BLOCK_TOKENS = 64
"""Tokens of a whole block: small enough for system prompts to be shared, large enough for handles to cost little."""


@dataclass(frozen=True, slots=True)
class Block:
    """Tokens ``start`` to ``start + num_tokens`` of a sequence."""

    hash: str
    start: int
    num_tokens: int

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + self.num_tokens


def blocks_of(token_ids: Sequence[int]) -> tuple[Block, ...]:
    """The sequence's blocks in order. The last one may be shorter; its hash differs from that of any whole block."""
    tokens = np.asarray(token_ids, dtype="<i8")
    chain, blocks = b"", []
    for start in range(0, len(tokens), BLOCK_TOKENS):
        block = tokens[start : start + BLOCK_TOKENS]
        chain = hashlib.sha256(chain + block.tobytes()).digest()
        blocks.append(Block(chain.hex(), start, len(block)))
    return tuple(blocks)
