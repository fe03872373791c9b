"""One prefill call: compute round after round, and store each before the next.

prompts ─▶ distinct prefixes ─▶ rounds ─▶ compute ─▶ pieces ─▶ store, handles
                                  ▲                              │ refused: the rest is left out
                                  └───── deadline: continue ─────┘
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from functions.prefill.rounds import PrefillPlan, Tokens
from shared.contracts.errors import Cancelled, StoreRefused, StoreUnavailable
from shared.contracts.prefill import PrefillOutputs, PrefixKvScope
from shared.inference.block_hash import blocks_of
from shared.inference.decoder import Decoder
from shared.inference.prefix_computing import compute_tree
from shared.inference.prefix_pieces import shared_by
from shared.inference.prefix_storing import store_prefixes
from shared.inference.prefix_tree import TreePrefix
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext
from shared.store.prefix_kv import PutReport

SAVE_S = 1.0
"""Kept free before the deadline for the reply."""


@dataclass(slots=True, kw_only=True)
class Prefilling:
    """One call's work. What has been stored by an earlier attempt is not computed again."""

    run: str
    scope: PrefixKvScope
    plan: PrefillPlan
    decoder: Decoder
    context: CallContext
    threads: int
    sharers: Counter[str] = field(init=False)
    known: list[TreePrefix] = field(init=False, default_factory=list)
    num_prefixes: int = 0
    num_prefix_tokens: int = 0
    computed_tokens: int = 0
    compute_s: float = 0.0
    store_s: float = 0.0
    put: PutReport = field(default_factory=PutReport)

    def __post_init__(self) -> None:
        """Counts how many prefixes share each block, over all rounds: what later ones share is a piece of its own."""
        self.sharers = shared_by(prefix for prefixes in self.plan.rounds for prefix in prefixes)

    async def work(self, first_round: int) -> PrefillOutputs:
        """Work from this round on, until all are done, the store refuses, or the deadline is near.

        Raises ``Cancelled``; what is stored by then stays.
        """
        for number in range(first_round, len(self.plan.rounds)):
            if self.context.stop.is_set():
                raise Cancelled(f"stopped: {self.context.stop.reason}; stored prefixes are kept")
            if number > first_round and not self._has_time_for(self.plan.rounds[number]):
                return self._outputs(next_round=number)
            await self._work_off(self.plan.rounds[number])
            if self.put.num_refused:
                break
        return self._outputs(next_round=None)

    async def _work_off(self, prefixes: Sequence[Tokens]) -> None:
        self.num_prefixes += len(prefixes)
        self.num_prefix_tokens += sum(map(len, prefixes))
        stored = await self._stored(prefixes)
        missing = [prefix for prefix in prefixes if any(block.hash not in stored for block in blocks_of(prefix))]
        if not missing:
            return
        began = time.perf_counter()
        with self.context.watch.measure("compute"):
            computed = await self.context.compute(self._compute, missing)
        self.compute_s += time.perf_counter() - began
        began = time.perf_counter()
        with self.context.watch.measure("store"):
            self.put += await store_prefixes(self.context, self.run, self.scope, computed, self.sharers, stored)
        self.store_s += time.perf_counter() - began

    async def _stored(self, prefixes: Sequence[Tokens]) -> set[str]:
        """Blocks of these prefixes that are stored already. A store that does not answer has none."""
        hashes = list(shared_by(prefixes))
        try:
            return set(await self.context.store.prefix_kv.find(self.run, self.scope, hashes))
        except (StoreRefused, StoreUnavailable):
            return set()

    def _compute(self, prefixes: Sequence[Tokens]) -> list[TreePrefix]:
        """On the compute thread."""
        use_threads(self.threads)
        if self.plan.shared and not self.known:
            self.known, num_shared = compute_tree(self.decoder, self.plan.shared)
            self.computed_tokens += num_shared
        computed, num_computed = compute_tree(self.decoder, prefixes, self.known)
        self.computed_tokens += num_computed
        if self.decoder.device.type == "cuda":
            # What is only queued is neither computed nor to be counted as the time of storing it.
            torch.cuda.synchronize(self.decoder.device)
        return computed

    def _has_time_for(self, prefixes: Sequence[Tokens]) -> bool:
        """Whether a round fits before the deadline, at the pace of those before."""
        pace_s = (self.compute_s + self.store_s) / max(1, self.computed_tokens)
        return self.context.remaining_s() > SAVE_S + pace_s * sum(map(len, prefixes))

    def _outputs(self, next_round: int | None) -> PrefillOutputs:
        return PrefillOutputs(
            num_prefixes=self.num_prefixes,
            num_prefix_tokens=self.num_prefix_tokens,
            computed_tokens=self.computed_tokens,
            num_handles=self.put.num_handles,
            stored_bytes=self.put.stored_bytes,
            num_refused=self.put.num_refused,
            compute_s=self.compute_s,
            store_s=self.store_s,
            next_round=next_round,
        )
