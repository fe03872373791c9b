"""A reward function's process as a server of the Open Inference Protocol V2."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from functions.reward.app import RewardHandler
from functions.reward.settings import V2Settings
from functions.reward.v2 import served_rewards, v2_protocol
from shared.contracts.errors import RewardFailed
from shared.contracts.reward import Scores
from shared.service.app import serve_stages
from shared.service.replica import Replica
from shared.service.settings import FunctionSettings
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs

TOKEN = "a-token-of-enough-characters"
SUMS = {
    "id": "seven",
    "inputs": [
        {"name": "completion", "shape": [3], "datatype": "BYTES", "data": ["#3", "#5", "it is #12"]},
        {"name": "prompt", "shape": [3], "datatype": "BYTES", "data": ["1+2=", "2+2=", "6+6="]},
        {"name": "ground_truth", "shape": [3], "datatype": "BYTES", "data": ["3", "4", "12"]},
    ],
    "outputs": [{"name": "score"}],
}
LENGTH = """
def length(data_source, solution_str, ground_truth, extra_info):
    if solution_str == "none":
        return None
    if solution_str == "bad":
        raise KeyError("secret")
    return len(solution_str) / 10
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """The function, with a reward of its own under the name ``length``."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "length.py").write_text(LENGTH)
    monkeypatch.setenv("RLHFLESS_V2_MODEL", "length")
    monkeypatch.setenv("RLHFLESS_V2_REWARD", '{"kind": "function", "path": "length.py", "name": "length"}')
    settings = FunctionSettings.from_environment(
        {
            "RLHFLESS_STAGES": "reward",
            "RLHFLESS_TOKEN_FILE": str(tmp_path / "token"),
            "RLHFLESS_ROOTS": str(tmp_path),
        }
    )
    replica = Replica(
        instance="reward-1",
        revision="reward-00001",
        started_at=1.0,
        ready_at=2.0,
        store=memory_store(time.time),
        blobs=MemoryBlobs(),
        executor=ThreadPoolExecutor(max_workers=1),
    )
    return serve_stages([RewardHandler(settings)], replica, token=TOKEN, close=lambda: asyncio.sleep(0))


@pytest_asyncio.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://reward", headers=headers) as client,
    ):
        yield client


def texts(*completions: str) -> dict[str, Any]:
    return {"inputs": [{"name": "text", "shape": [len(completions)], "datatype": "BYTES", "data": list(completions)}]}


async def test_a_rule_scores_texts(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v2/models/exact_number/infer", json=SUMS)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "model_name": "exact_number",
        "id": "seven",
        "outputs": [{"name": "score", "shape": [3], "datatype": "FP64", "data": [1.0, 0.0, 1.0]}],
    }


async def test_the_processs_own_reward_scores_in_order_and_names_its_answers(client: httpx.AsyncClient) -> None:
    completions = ["a" * index for index in range(1, 13)]
    first, second = [(await client.post("/v2/models/length/infer", json=texts(*completions))).json() for _ in range(2)]
    assert first["outputs"][0]["data"] == [index / 10 for index in range(1, 13)]
    assert first["id"]
    assert first["id"] != second["id"]


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready"])
async def test_health_is_open(client: httpx.AsyncClient, path: str) -> None:
    del client.headers["authorization"]
    assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("token", [None, "Bearer wrong", "Basic xyz"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2"),
        ("GET", "/v2/models/math"),
        ("GET", "/v2/models/math/ready"),
        ("POST", "/v2/models/math/infer"),
        ("GET", "/v2/health/live/x"),
        ("GET", "/v2/health"),
    ],
)
async def test_all_else_needs_the_token(client: httpx.AsyncClient, method: str, path: str, token: str | None) -> None:
    del client.headers["authorization"]
    answer = await client.request(method, path, headers={"authorization": token} if token else {})
    assert answer.status_code == 401
    assert list(answer.json()) == ["error"]


async def test_what_is_served_says_so(client: httpx.AsyncClient) -> None:
    server = (await client.get("/v2")).json()
    assert (server["name"], server["extensions"]) == ("rlhfless", [])
    assert {"math", "exact_number", "length"} <= set((await client.get("/v2/models")).json()["models"])
    assert (await client.get("/v2/models/length")).json()["name"] == "length"
    assert (await client.get("/v2/models/length/ready")).json() == {"name": "length", "ready": True}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/nothing", 404),
        ("GET", "/v2/models/nothing/ready", 404),
        ("POST", "/v2/models/nothing/infer", 404),
        ("GET", "/v2/models/math/infer", 405),
        ("GET", "/v2/nothing", 404),
        ("POST", "/v2/models/math/infer", 422),
    ],
)
async def test_refusals_are_in_the_protocols_form(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


async def test_the_binary_extension_is_refused(client: httpx.AsyncClient) -> None:
    headers = {"Inference-Header-Content-Length": "10"}
    answer = await client.post("/v2/models/math/infer", content=b"{}" * 20, headers=headers)
    assert (answer.status_code, "binary" in answer.json()["error"]) == (422, True)


@pytest.mark.parametrize(("completion", "said"), [("none", "not applicable"), ("bad", "failed on row 0")])
async def test_a_completion_without_a_reward_is_an_error_never_a_zero(
    client: httpx.AsyncClient, completion: str, said: str
) -> None:
    answer = await client.post("/v2/models/length/infer", json=texts(completion))
    assert answer.status_code == RewardFailed.status
    assert said in answer.json()["error"]


async def test_a_row_without_a_ground_truth_is_refused_by_a_rule(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v2/models/exact_number/infer", json=texts("#3"))
    assert (answer.status_code, list(answer.json())) == (422, ["error"])


async def test_a_defect_does_not_give_itself_away() -> None:
    async def score(*arguments: object) -> Scores:
        raise KeyError("hunter2")

    protocol = v2_protocol(served_rewards(V2Settings.from_environment({})), score)
    transport = httpx.ASGITransport(app=protocol.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://reward") as client:
        answer = await client.post("/v2/models/math/infer", json=texts("a"))
    assert answer.status_code == 500
    assert answer.json() == {"error": "the function failed with KeyError: see its log"}


async def test_our_own_routes_stay_as_they_are(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/info")).json()["stages"] == ["reward"]
    assert (await client.get("/v2x")).json()["code"] == "http_404"
