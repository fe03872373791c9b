"""Work items, completions, mail and progress of a batch in memory."""

from collections import deque
from collections.abc import Mapping, Sequence

from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId
from shared.contracts.rollout import WorkItem
from shared.store.base import Lease, LeasedItem, Mail, Part
from shared.store.memory_state import MemoryBatch, MemoryLease, MemoryState


class MemoryWork:
    """``WorkStore`` in memory, with the semantics of the Redis scripts."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def put_items(
        self,
        batch: BatchKey,
        *,
        fence: int,
        assigned: Sequence[Sequence[WorkItem]],
        offered: Sequence[WorkItem],
    ) -> None:
        """See ``WorkStore.put_items``."""
        self._state.refuse_stale(batch.run, fence)
        stored = self._state.batch(batch)
        if stored.put_by is None:
            stored.queues = [deque(items) for items in assigned]
            stored.offered.extend(offered)
        elif fence > stored.put_by:
            stored.offered.extend(stored.leases)
            stored.leases.clear()
            stored.deliveries.clear()
            stored.progress.clear()
        stored.put_by = fence if stored.put_by is None else max(fence, stored.put_by)

    async def lease(
        self,
        batch: BatchKey,
        *,
        shard: int,
        owner: str,
        fence: int,
        ttl_s: float,
        max_items: int,
        max_deliveries: int,
    ) -> Lease:
        """See ``WorkStore.lease``."""
        self._state.refuse_stale(batch.run, fence)
        stored, now = self._state.existing(batch), self._state.now()
        others = [item for item, lease in stored.leases.items() if lease.owner != owner]
        expired = [item for item in others if stored.leases[item].expires_at <= now]
        expired.sort(key=lambda item: (stored.leases[item].expires_at, item.to_json()))
        for item in expired:
            if stored.deliveries[item] >= max_deliveries:
                return Lease((), len(others), poisoned=item)
        handing = _HandingOut(
            stored, owner=owner, expires_at=now + ttl_s, max_items=max_items, max_deliveries=max_deliveries
        )
        for queue in [*stored.queues[shard : shard + 1], stored.offered]:
            handing.hand_out_from(queue, len(queue))
        if handing.num_held == 0:
            for other, queue in enumerate(stored.queues):
                if other != shard:
                    handing.hand_out_from(queue, -(-len(queue) // 2))
        num_reclaimed = sum([handing.hand_out(item) for item in expired])
        own = stored.queues[shard] if shard < len(stored.queues) else ()
        return Lease(tuple(handing.items), len(others) - num_reclaimed, num_queued=len(own) + len(stored.offered))

    async def renew_leases(self, batch: BatchKey, *, owner: str, ttl_s: float) -> int:
        """See ``WorkStore.renew_leases``."""
        held = [lease for lease in self._state.existing(batch).leases.values() if lease.owner == owner]
        for lease in held:
            lease.expires_at = self._state.now() + ttl_s
        return len(held)

    async def finish_item(self, batch: BatchKey, *, owner: str, item: WorkItem) -> None:
        """See ``WorkStore.finish_item``."""
        self._end_lease(batch, owner, item)

    async def return_item(
        self, batch: BatchKey, *, owner: str, item: WorkItem, parts: Sequence[Part] | None = None
    ) -> None:
        """See ``WorkStore.return_item``."""
        if not self._end_lease(batch, owner, item):
            return
        stored = self._state.batch(batch)
        count = stored.deliveries.pop(item) - 1
        for part in (Part(None, item),) if parts is None else parts:
            stored.deliveries[part.item] = count
            known = part.shard is not None and part.shard < len(stored.queues)
            (stored.queues[part.shard or 0] if known else stored.offered).append(part.item)

    def _end_lease(self, batch: BatchKey, owner: str, item: WorkItem) -> bool:
        leases = self._state.existing(batch).leases
        if item not in leases or leases[item].owner != owner:
            return False
        del leases[item]
        return True

    async def commit_samples(self, batch: BatchKey, *, fence: int, samples: Mapping[SampleId, bytes]) -> int:
        """See ``WorkStore.commit_samples``."""
        self._state.refuse_stale(batch.run, fence)
        new = {id: value for id, value in samples.items() if id not in self._state.existing(batch).samples}
        if new:
            self._state.batch(batch).samples.update(new)
        return len(new)

    async def save_partials(self, batch: BatchKey, *, fence: int, partials: Mapping[SampleId, bytes]) -> None:
        """See ``WorkStore.save_partials``."""
        self._state.refuse_stale(batch.run, fence)
        if partials:
            self._state.batch(batch).partials.update(partials)

    async def partials(self, batch: BatchKey, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        """See ``WorkStore.partials``."""
        return _among(self._state.existing(batch).partials, ids)

    async def committed(self, batch: BatchKey, ids: Sequence[SampleId]) -> set[SampleId]:
        """See ``WorkStore.committed``."""
        return set(_among(self._state.existing(batch).samples, ids))

    async def samples(self, batch: BatchKey, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        """See ``WorkStore.samples``."""
        return _among(self._state.existing(batch).samples, ids)

    async def num_samples(self, batch: BatchKey) -> int:
        """See ``WorkStore.num_samples``."""
        return len(self._state.existing(batch).samples)

    async def post(self, batch: BatchKey, *, shard: int | None, message: str) -> None:
        """See ``WorkStore.post``."""
        self._state.batch(batch).mail.append((shard, message))

    async def mail(self, batch: BatchKey, *, shard: int, after: int = 0) -> Mail:
        """See ``WorkStore.mail``."""
        new = self._state.existing(batch).mail[after:]
        return Mail(tuple(message for to, message in new if to in (shard, None)), after + len(new))

    async def report(self, batch: BatchKey, *, shard: int, fence: int, progress: bytes) -> None:
        """See ``WorkStore.report``."""
        self._state.refuse_stale(batch.run, fence)
        self._state.batch(batch).progress[shard] = progress

    async def progress(self, batch: BatchKey) -> dict[int, bytes]:
        """See ``WorkStore.progress``."""
        return dict(self._state.existing(batch).progress)

    async def offer_queues(self, batch: BatchKey, *, shards: Sequence[int]) -> int:
        """See ``WorkStore.offer_queues``."""
        stored = self._state.existing(batch)
        waiting = [item for shard in shards for queue in stored.queues[shard : shard + 1] for item in queue]
        for shard in shards:
            for queue in stored.queues[shard : shard + 1]:
                queue.clear()
        stored.offered.extend(waiting)
        return len(waiting)

    async def num_queued(self, batch: BatchKey) -> int:
        """See ``WorkStore.num_queued``."""
        stored = self._state.existing(batch)
        return sum(len(queue) for queue in (*stored.queues, stored.offered))

    async def sweep(self, batch: BatchKey) -> None:
        """See ``WorkStore.sweep``."""
        self._state.batches.pop(batch, None)


class _HandingOut:
    """One answer to a request for work, as it grows."""

    def __init__(
        self, stored: MemoryBatch, *, owner: str, expires_at: float, max_items: int, max_deliveries: int
    ) -> None:
        self.items: list[LeasedItem] = []
        self._stored = stored
        self._owner = owner
        self._expires_at = expires_at
        self._max_deliveries = max_deliveries
        held = [item for item, lease in stored.leases.items() if lease.owner == owner]
        self.num_held = len(held)
        self._num_left = 0 if any(self._is_alone(stored.deliveries[item]) for item in held) else max_items

    def hand_out_from(self, queue: deque[WorkItem], most: int) -> None:
        """Add the queue's first items, ``most`` at most."""
        for _ in range(most):
            if not self.hand_out(queue[0]):
                return
            queue.popleft()

    def hand_out(self, item: WorkItem) -> bool:
        """Add the item, unless there are enough, or it must go alone and cannot."""
        delivery = self._stored.deliveries.get(item, 0) + 1
        alone = self._is_alone(delivery)
        if self._num_left <= 0 or (alone and self.num_held):
            return False
        self._stored.leases[item] = MemoryLease(self._owner, self._expires_at)
        self._stored.deliveries[item] = delivery
        self.items.append(LeasedItem(item, delivery))
        self.num_held += 1
        self._num_left = 0 if alone else self._num_left - 1
        return True

    def _is_alone(self, delivery: int) -> bool:
        return delivery > 1 and delivery >= self._max_deliveries


def _among(stored: Mapping[SampleId, bytes], ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
    return {id: stored[id] for id in ids if id in stored}
