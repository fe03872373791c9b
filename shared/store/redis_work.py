"""Work items, completions and mail of a batch in Redis."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId
from shared.contracts.errors import StaleFence
from shared.contracts.rollout import WorkItem
from shared.store import keys
from shared.store.base import Lease, LeasedItem
from shared.store.redis_connection import Argument, RedisConnection, text


class RedisWork:
    """``WorkStore`` in Redis. An item is kept as its JSON, which also names it."""

    def __init__(self, redis: RedisConnection) -> None:
        self._redis = redis

    async def put_items(
        self,
        batch: BatchKey,
        *,
        fence: int,
        assigned: Sequence[Sequence[WorkItem]],
        offered: Sequence[WorkItem],
    ) -> None:
        """See ``WorkStore.put_items``."""
        arguments: list[Argument] = [fence, len(assigned), len(offered)]
        arguments += [item.model_dump_json() for item in offered]
        for items in assigned:
            arguments.append(len(items))
            arguments += [item.model_dump_json() for item in items]
        reply = await self._redis.script(
            "put_items",
            [
                keys.fence(batch.run),
                keys.plan(batch),
                keys.batch_index(batch),
                keys.offered(batch),
                keys.leases(batch),
                keys.holders(batch),
                keys.deliveries(batch),
                *(keys.queue(batch, shard) for shard in range(len(assigned))),
            ],
            arguments,
        )
        refuse_stale(batch, reply)

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
        num_queues = int(await self._redis.command("HGET", keys.plan(batch), "queues") or 0)
        others = [keys.queue(batch, other) for other in range(num_queues) if other != shard]
        reply = await self._redis.script(
            "lease",
            [
                keys.fence(batch.run),
                keys.leases(batch),
                keys.holders(batch),
                keys.deliveries(batch),
                keys.lease_replies(batch),
                keys.batch_index(batch),
                keys.queue(batch, shard),
                keys.offered(batch),
                *others,
            ],
            [owner, fence, round(ttl_s * 1000), max_items, max_deliveries, secrets.token_hex(8)],
        )
        refuse_stale(batch, reply)
        _, elsewhere, poisoned, *handed_out = reply
        return Lease(
            items=tuple(
                LeasedItem(WorkItem.model_validate_json(item), int(delivery))
                for item, delivery in zip(handed_out[::2], handed_out[1::2], strict=True)
            ),
            num_elsewhere=int(elsewhere),
            poisoned=WorkItem.model_validate_json(poisoned) if poisoned else None,
        )

    async def renew_leases(self, batch: BatchKey, *, owner: str, ttl_s: float) -> int:
        """See ``WorkStore.renew_leases``."""
        reply = await self._redis.script(
            "renew_leases", [keys.leases(batch), keys.holders(batch)], [owner, round(ttl_s * 1000)]
        )
        return int(reply)

    async def finish_item(self, batch: BatchKey, *, owner: str, item: WorkItem) -> None:
        """See ``WorkStore.finish_item``."""
        await self._end_lease(batch, owner=owner, item=item, again=False)

    async def return_item(self, batch: BatchKey, *, owner: str, item: WorkItem) -> None:
        """See ``WorkStore.return_item``."""
        await self._end_lease(batch, owner=owner, item=item, again=True)

    async def _end_lease(self, batch: BatchKey, *, owner: str, item: WorkItem, again: bool) -> None:
        await self._redis.script(
            "end_lease",
            [
                keys.leases(batch),
                keys.holders(batch),
                keys.deliveries(batch),
                keys.offered(batch),
            ],
            [owner, item.model_dump_json(), int(again)],
        )

    async def commit_samples(self, batch: BatchKey, *, fence: int, samples: Mapping[SampleId, bytes]) -> int:
        """See ``WorkStore.commit_samples``."""
        return await self._put(batch, keys.samples(batch), fence, samples, first_wins=True)

    async def save_partials(self, batch: BatchKey, *, fence: int, partials: Mapping[SampleId, bytes]) -> None:
        """See ``WorkStore.save_partials``."""
        await self._put(batch, keys.partials(batch), fence, partials, first_wins=False)

    async def _put(
        self,
        batch: BatchKey,
        key: str,
        fence: int,
        values: Mapping[SampleId, bytes],
        *,
        first_wins: bool,
    ) -> int:
        if not values:
            return 0
        arguments: list[Argument] = [fence, int(first_wins)]
        for sample, value in values.items():
            arguments += [str(sample), value]
        reply = await self._redis.script("put_fields", [keys.fence(batch.run), key, keys.batch_index(batch)], arguments)
        refuse_stale(batch, reply)
        return int(reply[1])

    async def partials(self, batch: BatchKey, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        """See ``WorkStore.partials``."""
        return await self._get(keys.partials(batch), ids)

    async def committed(self, batch: BatchKey, ids: Sequence[SampleId]) -> set[SampleId]:
        """See ``WorkStore.committed``."""
        if not ids:
            return set()
        found = await self._redis.script("present", [keys.samples(batch)], [str(id) for id in ids])
        return {id for id, there in zip(ids, found, strict=True) if there}

    async def samples(self, batch: BatchKey, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        """See ``WorkStore.samples``."""
        return await self._get(keys.samples(batch), ids)

    async def _get(self, key: str, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        if not ids:
            return {}
        values = await self._redis.command("HMGET", key, *map(str, ids))
        return {id: value for id, value in zip(ids, values, strict=True) if value is not None}

    async def num_samples(self, batch: BatchKey) -> int:
        """See ``WorkStore.num_samples``."""
        return int(await self._redis.command("HLEN", keys.samples(batch)))

    async def post(self, batch: BatchKey, *, shard: int | None, message: str) -> None:
        """See ``WorkStore.post``."""
        earlier: list[tuple[Argument, ...]] = [("UNLINK", keys.mail(batch))] if shard is None else []
        await self._redis.pipeline(
            [
                *earlier,
                ("HSET", keys.mail(batch), "all" if shard is None else shard, message),
                ("SADD", keys.batch_index(batch), keys.mail(batch)),
            ],
            atomic=True,
        )

    async def mail(self, batch: BatchKey, *, shard: int) -> str | None:
        """See ``WorkStore.mail``."""
        own, to_all = await self._redis.command("HMGET", keys.mail(batch), shard, "all")
        message = own if own is not None else to_all
        return None if message is None else text(message)

    async def sweep(self, batch: BatchKey) -> None:
        """See ``WorkStore.sweep``."""
        await self._redis.script("sweep", [keys.batch_index(batch)], [])


def refuse_stale(batch: BatchKey, reply: Sequence[Any]) -> None:
    """Raise ``StaleFence`` if the script's verdict says so."""
    if text(reply[0]) == "stale":
        raise StaleFence(f"run {batch.run} has a newer owner: stop working for this one", fence=int(reply[1]))
