"""A process that stores the policy reads it back without the store."""

import pytest

from shared.contracts.errors import MissingBlob
from shared.store import recent_blobs
from shared.store.memory_blobs import MemoryBlobs
from shared.store.recent_blobs import RecentBlobs


@pytest.fixture
def behind() -> MemoryBlobs:
    return MemoryBlobs()


async def test_the_last_policy_is_read_without_the_store(behind: MemoryBlobs) -> None:
    blobs = RecentBlobs(behind)
    ref = await blobs.put("run", 3, "policy", b"weights")
    await behind.delete_run("run")
    assert await blobs.get(ref) == b"weights"
    assert bytes(await blobs.view(ref)) == b"weights"


async def test_a_view_is_the_callers_own(behind: MemoryBlobs) -> None:
    blobs = RecentBlobs(behind)
    ref = await blobs.put("run", 3, "policy", b"weights")
    view = await blobs.view(ref)
    view[0] = 0
    assert await blobs.get(ref) == b"weights"


@pytest.mark.parametrize("num_bytes", [0, 1, 7, 8, 9, 16, 20])
async def test_a_view_is_copied_in_parts(behind: MemoryBlobs, monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    monkeypatch.setattr(recent_blobs, "COPIED_BYTES", 8)
    blobs, data = RecentBlobs(behind), bytes(range(num_bytes))
    ref = await blobs.put("run", 3, "policy", data)
    await behind.delete_run("run")
    view = await blobs.view(ref)
    assert (bytes(view), view.readonly) == (data, False)


async def test_an_older_policy_and_other_kinds_are_not_remembered(behind: MemoryBlobs) -> None:
    blobs = RecentBlobs(behind)
    refs = [await blobs.put("run", step, "policy", bytes([step])) for step in range(2)]
    refs.append(await blobs.put("run", 1, "state", b"state"))
    await behind.delete_run("run")
    for ref in (refs[0], refs[2]):
        with pytest.raises(MissingBlob):
            await blobs.get(ref)


async def test_a_deleted_run_is_forgotten(behind: MemoryBlobs) -> None:
    blobs = RecentBlobs(behind)
    ref = await blobs.put("run", 3, "policy", b"weights")
    await behind.delete_run("run")
    await blobs.delete_run("run-2")
    assert await blobs.get(ref) == b"weights"
    await blobs.delete_run("run")
    with pytest.raises(MissingBlob):
        await blobs.get(ref)


async def test_what_others_stored_is_read_from_the_store(behind: MemoryBlobs) -> None:
    ref = await behind.put("run", 3, "policy", b"weights")
    assert await RecentBlobs(behind).get(ref) == b"weights"
