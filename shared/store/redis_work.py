"""Work items, completions, mail and progress of a batch in Redis."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId
from shared.contracts.errors import StaleFence
from shared.contracts.rollout import WorkItem
from shared.store import keys
from shared.store.base import Lease, LeasedItem, Mail, Part
from shared.store.redis_connection import Argument, RedisConnection, text

TO_ALL = "*"


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
        arguments += [item.to_json() for item in offered]
        for items in assigned:
            arguments.append(len(items))
            arguments += [item.to_json() for item in items]
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
                keys.progress(batch),
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
        _, elsewhere, poisoned, queued, *handed_out = reply
        return Lease(
            items=tuple(
                LeasedItem(WorkItem.from_json(item), int(delivery))
                for item, delivery in zip(handed_out[::2], handed_out[1::2], strict=True)
            ),
            num_elsewhere=int(elsewhere),
            poisoned=WorkItem.from_json(poisoned) if poisoned else None,
            num_queued=int(queued),
        )

    async def renew_leases(self, batch: BatchKey, *, owner: str, ttl_s: float) -> int:
        """See ``WorkStore.renew_leases``."""
        reply = await self._redis.script(
            "renew_leases", [keys.leases(batch), keys.holders(batch)], [owner, round(ttl_s * 1000)]
        )
        return int(reply)

    async def finish_item(self, batch: BatchKey, *, owner: str, item: WorkItem) -> None:
        """See ``WorkStore.finish_item``."""
        await self._end_lease(batch, owner, item, ())

    async def return_item(
        self, batch: BatchKey, *, owner: str, item: WorkItem, parts: Sequence[Part] | None = None
    ) -> None:
        """See ``WorkStore.return_item``."""
        await self._end_lease(batch, owner, item, (Part(None, item),) if parts is None else parts)

    async def _end_lease(self, batch: BatchKey, owner: str, item: WorkItem, parts: Sequence[Part]) -> None:
        queues = [keys.offered(batch) if part.shard is None else keys.queue(batch, part.shard) for part in parts]
        await self._redis.script(
            "end_lease",
            [
                keys.leases(batch),
                keys.holders(batch),
                keys.deliveries(batch),
                keys.plan(batch),
                keys.batch_index(batch),
                keys.offered(batch),
                *queues,
            ],
            [
                owner,
                item.to_json(),
                *(argument for part in parts for argument in (_shard(part.shard), part.item.to_json())),
            ],
        )

    async def commit_samples(self, batch: BatchKey, *, fence: int, samples: Mapping[SampleId, bytes]) -> int:
        """See ``WorkStore.commit_samples``."""
        return await self._put(batch, keys.samples(batch), fence, by_name(samples), first_wins=True)

    async def save_partials(self, batch: BatchKey, *, fence: int, partials: Mapping[SampleId, bytes]) -> None:
        """See ``WorkStore.save_partials``."""
        await self._put(batch, keys.partials(batch), fence, by_name(partials), first_wins=False)

    async def _put(
        self,
        batch: BatchKey,
        key: str,
        fence: int,
        fields: Mapping[str, bytes],
        *,
        first_wins: bool,
    ) -> int:
        if not fields:
            return 0
        arguments: list[Argument] = [fence, int(first_wins)]
        for name, value in fields.items():
            arguments += [name, value]
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
        await self._redis.pipeline(
            [
                ("RPUSH", keys.mail(batch), f"{_shard(shard)} {message}"),
                ("SADD", keys.batch_index(batch), keys.mail(batch)),
            ],
            atomic=True,
        )

    async def mail(self, batch: BatchKey, *, shard: int, after: int = 0) -> Mail:
        """See ``WorkStore.mail``."""
        new = [text(entry) for entry in await self._redis.command("LRANGE", keys.mail(batch), after, -1)]
        addressed = [entry.partition(" ") for entry in new]
        wanted = {_shard(shard), TO_ALL}
        return Mail(tuple(message for to, _, message in addressed if to in wanted), after + len(new))

    async def report(self, batch: BatchKey, *, shard: int, fence: int, progress: bytes) -> None:
        """See ``WorkStore.report``."""
        await self._put(batch, keys.progress(batch), fence, {_shard(shard): progress}, first_wins=False)

    async def progress(self, batch: BatchKey) -> dict[int, bytes]:
        """See ``WorkStore.progress``."""
        found: Mapping[bytes, bytes] = await self._redis.command("HGETALL", keys.progress(batch))
        return {int(shard): said for shard, said in found.items()}

    async def offer_queues(self, batch: BatchKey, *, shards: Sequence[int]) -> int:
        """See ``WorkStore.offer_queues``."""
        queues = [keys.queue(batch, shard) for shard in shards]
        return int(await self._redis.script("offer_queues", [keys.offered(batch), *queues], []))

    async def num_queued(self, batch: BatchKey) -> int:
        """See ``WorkStore.num_queued``."""
        num_queues = int(await self._redis.command("HGET", keys.plan(batch), "queues") or 0)
        queues = [keys.offered(batch), *(keys.queue(batch, shard) for shard in range(num_queues))]
        return sum(map(int, await self._redis.pipeline([("LLEN", queue) for queue in queues])))

    async def sweep(self, batch: BatchKey) -> None:
        """See ``WorkStore.sweep``."""
        await self._redis.script("sweep", [keys.batch_index(batch)], [])


def by_name(values: Mapping[SampleId, bytes]) -> dict[str, bytes]:
    """The values under the names of their fields."""
    return {str(id): value for id, value in values.items()}


def _shard(shard: int | None) -> str:
    return TO_ALL if shard is None else str(shard)


def refuse_stale(batch: BatchKey, reply: Sequence[Any]) -> None:
    """Raise ``StaleFence`` if the script's verdict says so."""
    if text(reply[0]) == "stale":
        raise StaleFence(f"run {batch.run} has a newer owner: stop working for this one", fence=int(reply[1]))
