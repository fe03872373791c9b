"""Computed prefixes into the store, some pieces at a time: what this takes of memory does not grow with the prefixes.

prefixes ─▶ pieces ─▶ some of them encoded ─▶ store, handles
                          ▲                     │ refused: the rest is left out
                          └─────────────────────┘
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from shared.contracts.prefill import PrefixKvScope
from shared.inference.prefix_kv import ComputedPrefix
from shared.inference.prefix_pieces import pieces_of
from shared.service.handler import CallContext
from shared.store.prefix_kv import KvPiece, PutReport

ENCODED_BYTES = 64 * 2**20
"""Of pieces that wait for the store, up to a piece: enough to write several at once."""


async def store_prefixes(
    context: CallContext,
    run: str,
    scope: PrefixKvScope,
    prefixes: Sequence[ComputedPrefix],
    sharers: Counter[str],
    stored: Collection[str],
) -> PutReport:
    """Store what ``pieces_of`` makes of these, until the store refuses some. Never raises for a store that is full or
    gone."""
    pieces, report = pieces_of(scope, prefixes, sharers, stored), PutReport()
    while not report.num_refused and (encoded := await context.compute(_next_of, pieces)):
        report += await context.store.prefix_kv.put(run, scope, encoded)
    return report


def _next_of(pieces: Iterator[KvPiece]) -> list[KvPiece]:
    """On the compute thread."""
    encoded: list[KvPiece] = []
    num_bytes = 0
    for piece in pieces:
        encoded.append(piece)
        num_bytes += len(piece.data)
        if num_bytes >= ENCODED_BYTES:
            break
    return encoded
