import io
import tarfile
from pathlib import Path

import httpx
import pytest

from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import called, served


@pytest.fixture
def service(tmp_path: Path) -> FakeService:
    service = FakeService()
    service.add("run-0")
    folder = tmp_path / "global_step_4"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    service.folders["run-0"][4] = folder
    return service


async def test_checkpoints_are_listed_with_their_download(service: FakeService) -> None:
    async with called(service) as client:
        [checkpoint] = (await client.get("/v1/runs/run-0/checkpoints")).json()["checkpoints"]
        assert checkpoint["step"] == 4
        assert checkpoint["folder"] == str(service.folders["run-0"][4])
        assert (await client.get(checkpoint["download"])).status_code == 200


async def test_a_checkpoint_is_downloaded_from_a_real_server(service: FakeService) -> None:
    async with served(service) as url, httpx.AsyncClient(base_url=url) as client:
        response = await client.get("/v1/runs/run-0/checkpoints/4/download")
    assert response.headers["content-type"] == "application/x-tar"
    assert response.headers["content-disposition"] == 'attachment; filename="run-0-step-4.tar"'
    assert int(response.headers["content-length"]) == len(response.content)
    with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
        assert archive.getnames() == ["global_step_4/model.safetensors"]
        assert archive.extractfile("global_step_4/model.safetensors").read() == b"weights"


async def test_the_model_alone_is_downloaded(service: FakeService) -> None:
    folder = service.folders["run-0"][4]
    (folder / "huggingface").mkdir()
    (folder / "huggingface" / "config.json").write_text("{}")
    async with called(service) as client:
        response = await client.get("/v1/runs/run-0/checkpoints/4/download", params={"part": "model"})
        refused = await client.get("/v1/runs/run-0/checkpoints/4/download", params={"part": "state"})
    with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
        assert archive.getnames() == ["huggingface/config.json"]
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("step", "status", "code"),
    [
        ("5", 404, "checkpoint_unknown"),
        ("-1", 422, "invalid_request"),
        ("x", 422, "invalid_request"),
        ("4.5", 422, "invalid_request"),
        ("%2e%2e%2f4", 404, "not_found"),
        ("9" * 5000, 422, "invalid_request"),
        (str(2**64), 422, "invalid_request"),
    ],
)
async def test_a_step_without_a_checkpoint_is_refused(service: FakeService, step: str, status: int, code: str) -> None:
    async with called(service) as client:
        response = await client.get(f"/v1/runs/run-0/checkpoints/{step}/download")
    assert (response.status_code, response.json()["code"]) == (status, code)


async def test_a_checkpoint_with_a_link_is_not_sent(service: FakeService) -> None:
    (service.folders["run-0"][4] / "link").symlink_to("/etc/passwd")
    async with called(service) as client:
        response = await client.get("/v1/runs/run-0/checkpoints/4/download")
    assert (response.status_code, response.json()["code"]) == (409, "run_conflict")


async def test_a_checkpoint_that_was_deleted_from_disk_is_404(service: FakeService) -> None:
    service.folders["run-0"][4] = Path("/nowhere/global_step_4")
    async with called(service) as client:
        response = await client.get("/v1/runs/run-0/checkpoints/4/download")
    assert (response.status_code, response.json()["code"]) == (404, "checkpoint_unknown")
