"""Prefix KV in every adapter: found by its whole key only, within a budget, and gone when its version ends."""

import asyncio
from pathlib import Path

import pytest

from shared.contracts.errors import MissingBlob
from shared.contracts.prefill import PrefixKvScope
from shared.store.memory_prefix_kv import MemoryPrefixKv
from shared.store.opening import open_prefix_kv
from shared.store.prefix_kv import KvBlock, KvPiece, NoPrefixKv, PrefixKvStore, PutReport
from shared.store.prefix_kv_settings import PrefixKvSettings
from shared.store.redis_connection import RedisConnection

SCOPE = PrefixKvScope(
    weights_digest="ab" * 32, tokenizer_fingerprint="t" * 64, dtype="float32", layout="l2-k2-d8-float32"
)
OTHERS = {
    "weights_digest": "cd" * 32,
    "tokenizer_fingerprint": "u" * 64,
    "dtype": "bfloat16",
    "layout": "l4-k2-d8-float32",
}
BUDGET = 100


@pytest.fixture(params=["memory", "redis://", "file", "memory://kv"])
def store(request: pytest.FixtureRequest, redis: RedisConnection, tmp_path: Path) -> PrefixKvStore:
    if request.param == "memory":
        return MemoryPrefixKv(budget_bytes=BUDGET)
    url = (tmp_path / "kv").as_uri() if request.param == "file" else f"{request.param}"
    url = f"{url}/{tmp_path.name}" if url.startswith("memory") else url
    settings = {"RLHFLESS_PREFIX_KV_URL": url, "RLHFLESS_PREFIX_KV_BYTES": str(BUDGET)}
    return open_prefix_kv(PrefixKvSettings.from_environment(settings), redis)


def piece(name: str, num_bytes: int = 10) -> KvPiece:
    """Two blocks, of 64 tokens and of 5."""
    return KvPiece((KvBlock(f"{name}-1", 0, 64), KvBlock(f"{name}-2", 64, 5)), name[:1].encode() * num_bytes)


def of_version(digest: str) -> PrefixKvScope:
    return SCOPE.model_copy(update={"weights_digest": digest * 32})


async def test_what_is_put_is_found_block_by_block_and_read(store: PrefixKvStore) -> None:
    assert await store.put("run-1", SCOPE, [piece("a"), piece("b", 20)]) == PutReport(4, 30, 0)
    found = await store.find("run-1", SCOPE, ["b-2", "a-1", "c-1"])
    assert {hash: (handle.offset, handle.num_tokens) for hash, handle in found.items()} == {
        "b-2": (64, 5),
        "a-1": (0, 64),
    }
    assert all(handle.scope == SCOPE for handle in found.values())
    data = await store.read(found["b-2"].blob)
    assert (bytes(data), data.readonly) == (b"b" * 20, False)


async def test_nothing_is_asked_for_nothing(store: PrefixKvStore) -> None:
    assert await store.put("run-1", SCOPE, []) == PutReport()
    assert await store.find("run-1", SCOPE, []) == {}


@pytest.mark.parametrize("field", OTHERS)
async def test_kv_of_another_policy_tokenizer_precision_or_layout_is_never_found(
    store: PrefixKvStore, field: str
) -> None:
    await store.put("run-1", SCOPE, [piece("a")])
    other = SCOPE.model_copy(update={field: OTHERS[field]})
    assert await store.find("run-1", other, ["a-1", "a-2"]) == {}
    assert await store.find("run-2", SCOPE, ["a-1", "a-2"]) == {}


@pytest.mark.parametrize("field", OTHERS)
async def test_kv_of_two_kinds_is_kept_side_by_side(store: PrefixKvStore, field: str) -> None:
    other = SCOPE.model_copy(update={field: OTHERS[field]})
    for scope, name in ((SCOPE, "first"), (other, "second")):
        blocks = piece("a").blocks
        await store.put("run-1", scope, [KvPiece(blocks, name.encode())])
    for scope, name in ((SCOPE, "first"), (other, "second")):
        [handle] = (await store.find("run-1", scope, ["a-1"])).values()
        assert bytes(await store.read(handle.blob)) == name.encode()


async def test_over_the_budget_what_does_not_fit_is_refused_and_counted(store: PrefixKvStore) -> None:
    report = await store.put("run-1", SCOPE, [piece("a", 60), piece("b", 60), piece("c", 40)])
    assert report == PutReport(4, 100, 1)
    assert set(await store.find("run-1", SCOPE, ["a-1", "b-1", "c-1"])) == {"a-1", "c-1"}
    assert await store.put("run-1", SCOPE, [piece("d", 1)]) == PutReport(0, 0, 1)
    assert await store.put("run-2", SCOPE, [piece("d", 100)]) == PutReport(2, 100, 0)


async def test_a_piece_that_is_put_again_counts_once(store: PrefixKvStore) -> None:
    for _ in range(3):
        assert (await store.put("run-1", SCOPE, [piece("a", 60)])).num_refused == 0
    assert (await store.put("run-1", SCOPE, [piece("b", 40)])).num_refused == 0


async def test_other_versions_go_for_room_the_oldest_first(store: PrefixKvStore) -> None:
    first, second, third = (of_version(digest) for digest in ("01", "02", "03"))
    await store.put("run-1", first, [piece("a", 30)])
    await store.put("run-1", second, [piece("b", 30)])
    old = (await store.find("run-1", first, ["a-1"]))["a-1"]
    assert await store.put("run-1", third, [piece("c", 60)]) == PutReport(2, 60, 0)
    assert await store.find("run-1", first, ["a-1", "a-2"]) == {}
    with pytest.raises(MissingBlob):
        await store.read(old.blob)
    assert set(await store.find("run-1", second, ["b-1"])) == {"b-1"}


async def test_a_version_is_as_old_as_what_was_last_put_of_it(store: PrefixKvStore) -> None:
    first, second, third = (of_version(digest) for digest in ("01", "02", "03"))
    for scope, name in ((first, "a"), (second, "b"), (first, "c")):
        await store.put("run-1", scope, [piece(name, 30)])
        await asyncio.sleep(0.005)  # ages are in milliseconds
    await store.put("run-1", third, [piece("d", 40)])
    assert await store.find("run-1", second, ["b-1"]) == {}
    assert set(await store.find("run-1", first, ["a-1", "c-1"])) == {"a-1", "c-1"}


async def test_what_can_never_fit_drops_nothing(store: PrefixKvStore) -> None:
    await store.put("run-1", of_version("01"), [piece("a", 90)])
    assert await store.put("run-1", of_version("02"), [piece("b", 101)]) == PutReport(0, 0, 1)
    assert set(await store.find("run-1", of_version("01"), ["a-1"])) == {"a-1"}


async def test_a_purge_keeps_what_it_is_told_and_says_what_it_freed(store: PrefixKvStore) -> None:
    old, new = of_version("01"), of_version("02")
    await store.put("run-1", old, [piece("a", 30), piece("b", 20)])
    await store.put("run-1", new, [piece("a", 40)])
    blob = (await store.find("run-1", old, ["a-1"]))["a-1"].blob
    assert await store.purge("run-1", keep={new.weights_digest, "ef" * 32}) == 50
    assert await store.find("run-1", old, ["a-1", "b-1"]) == {}
    with pytest.raises(MissingBlob):
        await store.read(blob)
    assert set(await store.find("run-1", new, ["a-1"])) == {"a-1"}
    assert await store.purge("run-1", keep={new.weights_digest}) == 0


async def test_a_run_is_deleted_with_all_its_versions(store: PrefixKvStore, redis: RedisConnection) -> None:
    for digest in ("01", "02"):
        await store.put("run-1", of_version(digest), [piece("a", 30)])
    await store.put("run-2", SCOPE, [piece("a", 30)])
    await store.delete_run("run-1")
    for digest in ("01", "02"):
        assert await store.find("run-1", of_version(digest), ["a-1"]) == {}
    assert set(await store.find("run-2", SCOPE, ["a-1"])) == {"a-1"}
    await store.delete_run("run-2")
    assert await redis.keys("") == []


async def test_what_nobody_knows_of_goes_with_its_version_or_its_run(redis: RedisConnection, tmp_path: Path) -> None:
    store = open_prefix_kv(PrefixKvSettings.from_environment({"RLHFLESS_PREFIX_KV_URL": tmp_path.as_uri()}), redis)
    old, new = (of_version(digest) for digest in ("01", "02"))
    folders = [tmp_path / "run-1" / scope.weights_digest for scope in (old, new)]
    for scope, folder in zip((old, new), folders, strict=True):
        await store.put("run-1", scope, [piece("a")])
        (folder / ".kv-cut-off").write_bytes(b"a")
    await store.purge("run-1", keep={new.weights_digest})
    assert [folder.exists() for folder in folders] == [False, True]
    await store.delete_run("run-1")
    assert not (tmp_path / "run-1").exists()


async def test_without_a_store_nothing_is_kept_and_nobody_fails() -> None:
    store = NoPrefixKv()
    assert await store.put("run-1", SCOPE, [piece("a"), piece("b")]) == PutReport(0, 0, 2)
    assert await store.find("run-1", SCOPE, ["a-1"]) == {}
    assert await store.purge("run-1", keep=()) == 0
    await store.delete_run("run-1")


def test_a_pods_own_memory_is_refused() -> None:
    for url in ("file:///dev/shm/kv", "file://localhost/dev/shm"):
        PrefixKvSettings.from_environment({"RLHFLESS_PREFIX_KV_URL": url})
        with pytest.raises(ValueError, match=r"^RLHFLESS_PREFIX_KV_URL .* pods do not share"):
            PrefixKvSettings.from_environment({"RLHFLESS_PREFIX_KV_URL": url, "KUBERNETES_SERVICE_HOST": "10.0.0.1"})


@pytest.mark.parametrize(
    "url", ["/kv", "file://host/kv", "redis://other:6379", "s3://key:hunter2@bucket", "http://host/kv"]
)
async def test_another_url_is_refused_without_showing_it(url: str, redis: RedisConnection) -> None:
    with pytest.raises(ValueError, match=r"^RLHFLESS_PREFIX_KV_URL") as refused:
        open_prefix_kv(PrefixKvSettings.from_environment({"RLHFLESS_PREFIX_KV_URL": url}), redis)
    assert "hunter2" not in str(refused.value)


async def test_the_cache_server_has_variables_of_its_own() -> None:
    env = {"REDIS_CACHE_URL": "redis://cache/1", "REDIS_PASSWORD": "hunter2", "RLHFLESS_PREFIX_KV_BYTES": "5"}
    settings = PrefixKvSettings.from_environment(env)
    assert (settings.cache_url, settings.cache_password, settings.budget_bytes) == ("redis://cache/1", "hunter2", 5)
    assert "hunter2" not in repr(settings)
    assert PrefixKvSettings.from_environment(env | {"REDIS_CACHE_PASSWORD": "hunter3"}).cache_password == "hunter3"
