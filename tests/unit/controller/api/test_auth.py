import pytest

from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import called

TOKEN = "a-token-of-this-api"
CLOSED = [
    *("/v1/runs", "/v1/runs/run-0", "/v1/runs/run-0/events", "/v1/functions", "/v1/functions/rollout"),
    *("/metrics", "/nothing", "/docs/"),
]


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
    ],
)
async def test_a_request_without_the_token_is_refused(path: str, header: str | None) -> None:
    async with called(FakeService(), token=TOKEN) as client:
        response = await client.get(path, headers={} if header is None else {"Authorization": header})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["code"] == "unauthenticated"
    assert TOKEN not in response.text


async def test_a_token_in_other_bytes_is_refused() -> None:
    async with called(FakeService(), token=TOKEN) as client:
        response = await client.get("/v1/runs", headers={b"authorization": b"Bearer \xff\xfe"})
    assert response.status_code == 401


async def test_an_unauthenticated_post_starts_nothing() -> None:
    service = FakeService()
    async with called(service, token=TOKEN) as client:
        assert (await client.post("/v1/runs", content=b"x" * 2**23)).status_code == 401
    assert not service.records


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_the_token_opens_the_api(scheme: str) -> None:
    async with called(FakeService(), token=TOKEN) as client:
        response = await client.get("/v1/runs", headers={"Authorization": f"{scheme} {TOKEN}"})
    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/docs", "/openapi.json"])
async def test_health_and_documentation_are_open(path: str) -> None:
    async with called(FakeService(), token=TOKEN) as client:
        assert (await client.get(path)).status_code == 200


async def test_without_a_token_everything_is_open() -> None:
    async with called(FakeService()) as client:
        assert (await client.get("/v1/runs")).status_code == 200
