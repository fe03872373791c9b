"""Uploaded datasets over HTTP, with the real service behind the routes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.api.models import ApiProblem
from controller.runs.data.library import DatasetLibrary, StoredDataset
from controller.runs.datasets import Datasets
from controller.runs.state import RunState
from shared.store.base import RunRecord, RunStore
from shared.store.memory import memory_store
from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import called, served

ROWS = b'{"prompt": "p", "answer": "a"}\n' * 3
MAX_BYTES = 1000


class UploadingService(FakeService):
    """A fake service with real datasets."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.runs: RunStore = memory_store(lambda: 0.0).runs
        self.datasets = Datasets(DatasetLibrary(folder), self.runs, max_bytes=MAX_BYTES)

    def files(self) -> list[Path]:
        """Whatever is on disk."""
        return [path for path in self.folder.rglob("*") if path.is_file()]


class WatchedDatasets(Datasets):
    """Datasets that tell when an upload is under way and when it is over."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.receiving, self.ended = asyncio.Event(), asyncio.Event()

    async def add(
        self, name: str, chunks: AsyncIterator[bytes], *, num_bytes: int | None = None
    ) -> tuple[StoredDataset, bool]:
        async def watched() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                self.receiving.set()
                yield chunk

        try:
            return await super().add(name, watched(), num_bytes=num_bytes)
        finally:
            self.ended.set()


@pytest.fixture
def service(tmp_path: Path) -> UploadingService:
    return UploadingService(tmp_path / "datasets")


async def test_a_dataset_is_uploaded_listed_read_and_deleted(service: UploadingService) -> None:
    async with called(service) as client:
        response = await client.post("/v1/datasets", params={"name": "my rows.jsonl"}, content=ROWS)
        assert response.status_code == 201, response.text
        dataset = response.json()
        assert dataset["uri"] == f"dataset://{dataset['id']}"
        assert (dataset["name"], dataset["num_rows"], dataset["num_bytes"]) == ("my rows.jsonl", 3, len(ROWS))
        assert dataset["columns"] == ["prompt", "answer"]
        place = response.headers["location"]
        assert (await client.get(place)).json() == dataset
        assert (await client.get("/v1/datasets")).json() == {"datasets": [dataset]}
        assert (await client.delete(place)).status_code == 204
        gone = await client.get(place)
        assert (gone.status_code, gone.json()["code"]) == (404, "dataset_unknown")
        assert (await client.delete(place)).status_code == 404
    assert service.files() == []


async def test_the_same_upload_again_is_200_and_the_same(service: UploadingService) -> None:
    async with called(service) as client:
        first = await client.post("/v1/datasets", params={"name": "a.jsonl"}, content=ROWS)
        again = await client.post("/v1/datasets", params={"name": "b.jsonl"}, content=ROWS)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()


async def test_bad_content_names_the_row(service: UploadingService) -> None:
    async with called(service) as client:
        response = await client.post("/v1/datasets", params={"name": "a.jsonl"}, content=ROWS + b"{")
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, "dataset_invalid")
    assert "nothing was stored" in problem["message"]
    assert problem["problems"][0]["field"] == "body"
    assert "a.jsonl line 4" in problem["problems"][0]["reason"]
    assert service.files() == []


async def test_an_upload_that_is_too_large_is_413(service: UploadingService) -> None:
    async def without_length() -> AsyncIterator[bytes]:
        for _ in range(MAX_BYTES):
            yield b"{}\n"

    async with called(service) as client:
        for content in (b"{}\n" * MAX_BYTES, without_length()):
            response = await client.post("/v1/datasets", params={"name": "a.jsonl"}, content=content)
            assert (response.status_code, response.json()["code"]) == (413, "body_too_large")
    assert service.files() == []


async def test_a_form_is_not_a_file(service: UploadingService) -> None:
    async with called(service) as client:
        response = await client.post("/v1/datasets", params={"name": "a.jsonl"}, files={"file": ("a.jsonl", ROWS)})
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
    assert "--data-binary" in response.json()["message"]
    assert service.files() == []


async def test_a_dataset_that_a_run_reads_is_not_deleted(service: UploadingService) -> None:
    async with called(service) as client:
        dataset = (await client.post("/v1/datasets", params={"name": "a.jsonl"}, content=ROWS)).json()
        config = {"data": {"train_files": [dataset["uri"]], "val_files": None}}
        record = RunRecord(id="run-0", state=RunState.RUNNING, created_at=0.0, updated_at=0.0, config=config, info={})
        await service.runs.create(record, idempotency_key=None, digest="")
        refused = await client.delete(f"/v1/datasets/{dataset['id']}")
        assert (refused.status_code, refused.json()["code"]) == (409, "dataset_in_use")
        assert "run-0" in refused.json()["message"]
        await service.runs.transition("run-0", to=RunState.FAILED, allowed=(RunState.RUNNING,), info={})
        assert (await client.delete(f"/v1/datasets/{dataset['id']}")).status_code == 204


async def test_the_token_is_asked_for(service: UploadingService) -> None:
    async with called(service, token="t") as client:
        assert (await client.post("/v1/datasets", params={"name": "a.jsonl"}, content=ROWS)).status_code == 401
        allowed = {"Authorization": "Bearer t"}
        assert (await client.get("/v1/datasets", headers=allowed)).status_code == 200
    assert service.files() == []


async def test_an_upload_that_the_client_cuts_off_leaves_nothing(service: UploadingService) -> None:
    watched = service.datasets = WatchedDatasets(DatasetLibrary(service.folder), service.runs, max_bytes=MAX_BYTES)
    async with served(service) as url, asyncio.timeout(10):
        address = urlsplit(url)
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"POST /v1/datasets?name=a.jsonl HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n" + ROWS)
        await watched.receiving.wait()
        assert service.files() != []
        writer.close()
        await watched.ended.wait()
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/v1/datasets")).json() == {"datasets": []}
    assert service.files() == []


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> UploadingService:
    return UploadingService(tmp_path_factory.mktemp("fuzzed") / "datasets")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ends = st.sampled_from([".jsonl", ".JSON", ".csv", ".parquet", ".ndjson", ".txt", ""])


@settings(max_examples=120, deadline=None)
@given(st.builds("{}{}".format, texts | st.just("rows"), ends), st.binary(max_size=40) | st.just(ROWS))
@example("../../etc/passwd.jsonl", ROWS)
@example("..", ROWS)
@example("x" * 5000 + ".jsonl", ROWS)
@example("a\0.jsonl", ROWS)
@example("a.jsonl", b"[" * 100_000)
@example("a.json", b"[" * 900)
@example("a.csv", b'"' + b"x" * 900)
def test_any_upload_is_a_dataset_or_a_problem(fuzzed: UploadingService, name: str, content: bytes) -> None:
    async def once() -> None:
        before = set(fuzzed.files())
        async with called(fuzzed) as client:
            response = await client.post("/v1/datasets", params={"name": name}, content=content)
            if response.status_code in (200, 201):
                found = response.json()
                assert (await client.delete(f"/v1/datasets/{found['id']}")).status_code == 204
            else:
                assert 400 <= response.status_code < 500, response.text
                assert ApiProblem.model_validate_json(response.content).message
        assert set(fuzzed.files()) == before == set()
        assert {path.name for path in fuzzed.folder.parent.iterdir()} <= {"datasets"}

    asyncio.run(once())


@settings(max_examples=60, deadline=None)
@given(texts)
@example("%2e%2e")
@example("..%2f..%2fetc")
@example("a" * 40)
@example("a" * 5000)
@example("a%00")
def test_any_id_that_is_none_is_404(fuzzed: UploadingService, id: str) -> None:
    async def once() -> None:
        async with called(fuzzed) as client:
            for method in ("GET", "DELETE"):
                response = await client.request(method, f"/v1/datasets/{quote(id, safe='%') or 'x'}")
                assert response.status_code in (404, 405), (response.status_code, id)
                assert ApiProblem.model_validate_json(response.content).message

    asyncio.run(once())
