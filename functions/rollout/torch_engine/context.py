"""What the running sequences attend to: the prefixes that they share, and the tokens of their own.

A sequence's context is a chain of shared segments, each computed and kept once for all that go through it, then its
own slots in the row cache. A segment is shared if several sequences go through it and it is long enough.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from functions.rollout.torch_engine.attention import DecodeAttention, SharedPart
from functions.rollout.torch_engine.batch import Batch
from functions.rollout.torch_engine.row_cache import RowCache
from functions.rollout.torch_engine.shared_prefixes import SharedPrefixes
from shared.contracts.errors import InvalidInput
from shared.inference.decoder import Decoder
from shared.inference.prefix_computing import KnownPrefixes, compute_segments, joined
from shared.inference.prefix_kv import PrefixKv
from shared.inference.prefix_tree import Segment, Sharing, grow


@dataclass(slots=True, kw_only=True)
class PrefillWork:
    """What was computed beside sampled tokens; see `EngineStats`."""

    computed_tokens: int = 0
    reused_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Computed prefixes, and where they go once their sequences have rows."""

    new_shared: list[Segment]
    """Each after its parent."""
    shared: list[Segment | None]
    """For each sequence, the last segment that it shares."""
    own: list[tuple[Segment, list[int]]]
    """What follows that, and the sequences that have it."""


class Context:
    """Keys and values of everything that runs."""

    def __init__(self, decoder: Decoder, sharing: Sharing | None = None) -> None:
        self._decoder = decoder
        self._sharing = sharing or Sharing()
        self._rows = RowCache(decoder.layout, decoder.dtype, decoder.device)
        self._shared = SharedPrefixes(decoder.layout, decoder.dtype, decoder.device)
        self.drop_prefixes()
        self._parts: list[SharedPart] | None = None
        """None where rows or segments have changed."""
        self._work = PrefillWork()

    def hold_prefixes(self, prefixes: Sequence[PrefixKv]) -> None:
        """See `Engine`."""
        for prefix in prefixes:
            lengths = {len(prefix.token_ids), prefix.keys.shape[2], prefix.values.shape[2]}
            if prefix.layout != self._decoder.layout or prefix.values.shape != prefix.keys.shape or len(lengths) > 1:
                raise InvalidInput(
                    f"Keys and values of {len(prefix.token_ids)} tokens with layout {prefix.layout.name} do not fit "
                    f"this model's {self._decoder.layout.name}: were they computed for another one?"
                )
        self._held |= {prefix.token_ids: prefix for prefix in prefixes}
        self._known = KnownPrefixes(list(self._held.values()))

    def drop_prefixes(self) -> None:
        """See `Engine`."""
        self._held: dict[tuple[int, ...], PrefixKv] = {}
        self._known = KnownPrefixes()

    def take_work(self) -> PrefillWork:
        """The work since the last call of this."""
        work, self._work = self._work, PrefillWork()
        return work

    def compute(self, prefixes: Sequence[tuple[int, ...]], known: Sequence[PrefixKv] = ()) -> Placement:
        """Computes what is not there yet of the prefixes of new sequences. Nothing is kept before `enter`.

        `known` is there already beside the held prefixes.
        """
        by_parent: dict[Segment | None, list[int]] = {}
        for index, prefix in enumerate(prefixes):
            by_parent.setdefault(self._shared.find(prefix), []).append(index)
        placement = Placement(new_shared=[], shared=[None] * len(prefixes), own=[])
        segments: list[Segment] = []
        for parent, indices in by_parent.items():
            some, last = grow([prefixes[index] for index in indices], self._sharing, parent)
            segments += some
            is_shared = {segment: self._is_shared(segment) for segment in some}
            placement.new_shared.extend(segment for segment in some if is_shared[segment])
            own: dict[Segment, list[int]] = {}
            for index, segment in zip(indices, last, strict=True):
                if segment is None or is_shared.get(segment, True):
                    placement.shared[index] = segment
                else:
                    placement.shared[index] = segment.parent
                    own.setdefault(segment, []).append(index)
            placement.own.extend(own.items())
        all_known = KnownPrefixes([*self._held.values(), *known]) if known else self._known
        with self._measured():
            computed = compute_segments(self._decoder, segments, all_known)
        self._work.computed_tokens += computed
        self._work.reused_tokens += sum(map(len, prefixes)) - computed
        return placement

    def enter(self, batch: Batch, placement: Placement, first_row: int) -> None:
        """Gives computed prefixes to the rows `first_row`, `first_row + 1`, ... of their sequences."""
        self._reserve(batch)
        self._shared.keep(placement.new_shared)
        for segment in placement.shared:
            if segment:
                self._shared.acquire(segment)
        for segment, indices in placement.own:
            self._rows.write([first_row + index for index in indices], segment)
        self._parts = None

    def attention(self, batch: Batch) -> DecodeAttention:
        """For the pending tokens of all rows."""
        longest = self._reserve(batch)
        if self._parts is None:
            self._parts = self._find_parts(batch.shared())
        shortest = int(batch.counts.slots.min())
        state = batch.state
        return DecodeAttention(self._rows, state.positions, state.slots, shortest, longest, self._parts)

    def extend(self, batch: Batch, insertions: Mapping[int, tuple[int, ...]]) -> None:
        """Appends tokens that nobody sampled, at least one each, to some rows."""
        extensions = [
            (extension, self._segment(batch, extension.row, extension.start)) for extension in batch.insert(insertions)
        ]
        segments = [
            Segment(parent=past, token_ids=extension.token_ids, start=past.end if past else 0)
            for extension, past in extensions
        ]
        with self._measured():
            self._work.computed_tokens += compute_segments(self._decoder, segments, KnownPrefixes())
        self._reserve(batch)
        for (extension, _), segment in zip(extensions, segments, strict=True):
            self._rows.write([extension.row], segment, extension.start)

    def kv_of(self, batch: Batch, row: int) -> PrefixKv:
        """See `Engine`."""
        segment = self._segment(batch, row, int(batch.counts.slots[row]))
        keys, values = joined(segment, self._decoder)
        return PrefixKv(token_ids=batch.token_ids(row)[: keys.shape[2]], keys=keys, values=values)

    def remove(self, batch: Batch, rows: Sequence[int]) -> None:
        """Takes rows out of the batch and forgets what no other row shares."""
        shared = batch.shared()
        for row in rows:
            if segment := shared[row]:
                self._shared.release(segment)
        self._rows.move(*batch.remove(rows))
        self._parts = None

    def clear(self, batch: Batch) -> None:
        """Takes all rows out of the batch."""
        batch.clear()
        self._shared.clear()
        self._parts = None

    def _is_shared(self, segment: Segment) -> bool:
        return len(segment.users) > 1 and len(segment.token_ids) >= self._sharing.min_tokens

    def _segment(self, batch: Batch, row: int, num_slots: int) -> Segment | None:
        """What is computed of a row, up to so many own tokens."""
        shared = batch.shared()[row]
        if not num_slots:
            return shared
        start = shared.end if shared else 0
        keys, values = self._rows.row(row, num_slots)
        token_ids = batch.token_ids(row)[start : start + num_slots]
        return Segment(parent=shared, token_ids=token_ids, start=start, keys=keys, values=values)

    def _reserve(self, batch: Batch) -> int:
        """Makes room for the pending token of every row, and returns the last slot that one needs."""
        longest = int(batch.counts.slots.max())
        self._rows.reserve(len(batch), longest + 1, batch.max_slots)
        return longest

    def _find_parts(self, shared: Sequence[Segment | None]) -> list[SharedPart]:
        """For each slab the rows that go through its segments."""
        rows: dict[Segment, list[int]] = {}
        for row, last in enumerate(shared):
            for segment in last.chain() if last else ():
                rows.setdefault(segment, []).append(row)
        return [
            SharedPart(slab, [rows[segment] for segment in slab.segments], len(shared), self._decoder.num_heads)
            for slab in self._shared.slabs
        ]

    @contextmanager
    def _measured(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self._decoder.device.type == "cuda":
            torch.cuda.synchronize(self._decoder.device)
        self._work.seconds += time.perf_counter() - start
