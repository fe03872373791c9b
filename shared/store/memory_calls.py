"""Claims and results of stage calls in memory."""

from shared.contracts.call import CallKey
from shared.store.base import Busy, ClaimOutcome, CommitOutcome, Conflict, Granted, Stale, Stored
from shared.store.memory_state import MemoryCall, MemoryState


class MemoryCalls:
    """``CallStore`` in memory, with the semantics of the Redis scripts."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def claim(self, key: CallKey, *, digest: str, owner: str, fence: int, ttl_s: float) -> ClaimOutcome:
        """See ``CallStore.claim``."""
        now, current = self._state.now(), self._state.fence(key.run)
        if fence < current:
            return Stale(current)
        call = self._call(key)
        if call is not None and call.digest != digest:
            return Conflict()
        if call is not None and call.reply is not None:
            return Stored(call.reply)
        if call is not None and call.owner not in (None, owner) and call.expires_at > now and call.fence >= fence:
            return Busy(call.expires_at - now)
        self._state.batch(key.batch).calls[key] = MemoryCall(
            digest=digest, owner=owner, fence=fence, expires_at=now + ttl_s
        )
        return Granted()

    async def renew(self, key: CallKey, *, owner: str, fence: int, ttl_s: float) -> bool:
        """See ``CallStore.renew``."""
        call = self._call(key)
        if self._state.fence(key.run) > fence or call is None or call.owner != owner or call.reply is not None:
            return False
        call.expires_at = self._state.now() + ttl_s
        return True

    async def commit(self, key: CallKey, *, owner: str, fence: int, reply: bytes) -> CommitOutcome:
        """See ``CallStore.commit``."""
        current = self._state.fence(key.run)
        if fence < current:
            return Stale(current)
        call = self._call(key)
        if call is not None and call.reply is not None:
            return Stored(call.reply)
        if call is None or call.owner is None:
            return Busy(0.0)
        if call.owner != owner:
            return Busy(max(0.0, call.expires_at - self._state.now()))
        call.reply = reply
        return Granted()

    async def release(self, key: CallKey, *, owner: str) -> None:
        """See ``CallStore.release``."""
        call = self._call(key)
        if call is not None and call.owner == owner:
            call.owner = None

    def _call(self, key: CallKey) -> MemoryCall | None:
        return self._state.existing(key.batch).calls.get(key)
