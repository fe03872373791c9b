"""A function's application: what it says of itself, what it does not serve, how it begins and ends."""

from operator import attrgetter
from pathlib import Path

import pytest

from shared.contracts.errors import Problem
from shared.contracts.info import CONTRACT_VERSION
from shared.modeling.tokenizer import Tokenizer
from shared.service.app import make_app, serve_stages
from shared.service.settings import FunctionSettings, SettingsInvalid
from tests.unit.shared.service.stage_fakes import (
    TOKEN,
    EchoHandler,
    World,
    called,
    echo_app,
)

DEMO_MODEL = Path(__file__).resolve().parents[4] / "scripts" / "demo" / "model"


def settings_with(folder: Path, **variables: str) -> FunctionSettings:
    (folder / "token").write_text(TOKEN)
    return FunctionSettings.from_environment(
        {"RLHFLESS_STAGES": "reward", "RLHFLESS_TOKEN_FILE": str(folder / "token"), **variables}
    )


async def test_information_names_what_runs_here(world: World) -> None:
    async with called(echo_app(world)) as client:
        answer = await client.get("/v1/info")
    assert answer.json() == {
        "stages": ["reward"],
        "contract_version": CONTRACT_VERSION,
        "instance": "echo-1",
        "revision": "echo-00001",
    }


async def test_information_names_the_model_that_the_image_carries(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, RLHFLESS_MODEL=str(DEMO_MODEL))
    async with called(make_app(settings, [EchoHandler()], started_at=0.0)) as client:
        says = (await client.get("/v1/info")).json()
    assert says["model"] == str(DEMO_MODEL)
    assert says["tokenizer_hash"] == Tokenizer.load(DEMO_MODEL).fingerprint


def test_a_model_that_is_not_there_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"^RLHFLESS_MODEL is .*nowhere.*No such file"):
        make_app(settings_with(tmp_path, RLHFLESS_MODEL=str(tmp_path / "nowhere")), [], started_at=0.0)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/v1/learner", 404),
        ("GET", "/v1/reward", 405),
        ("GET", "/openapi.json", 404),
        ("GET", "/docs", 404),
    ],
)
async def test_unknown_routes_are_problems(world: World, method: str, path: str, status: int) -> None:
    async with called(echo_app(world)) as client:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = Problem.model_validate_json(answer.content)
    assert (problem.code, problem.retryable) == (f"http_{status}", False)
    assert f"{method} {path}" in problem.message


async def test_the_end_of_a_process_closes_all_it_holds(world: World) -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("store")

    class Stubborn(EchoHandler):
        async def close(self) -> None:
            raise OSError("cannot close")

    replica, last = world.replica(), EchoHandler()
    app = serve_stages([last, Stubborn()], replica, token=TOKEN, close=close)
    with pytest.raises(OSError, match="cannot close"):
        async with app.router.lifespan_context(app):
            assert not closed
    assert (closed, last.closed) == (["store"], True)
    with pytest.raises(RuntimeError):
        replica.executor.submit(print)


@pytest.mark.parametrize(
    ("field", "value", "variable"),
    [
        ("redis_url", "http://:hunter2@redis", "REDIS_URL"),
        ("redis_url", "redis://:hunter2@redis:not-a-port/0", "REDIS_URL"),
        ("blob_url", "s3://key:hunter2@bucket", "RLHFLESS_BLOB_URL"),
        ("blob_url", "file://hunter2/folder", "RLHFLESS_BLOB_URL"),
        ("prefix_kv.cache_url", "http://:hunter2@redis", "REDIS_CACHE_URL"),
        ("prefix_kv.url", "s3://key:hunter2@bucket", "RLHFLESS_PREFIX_KV_URL"),
    ],
)
def test_urls_that_name_no_store_are_refused_without_repeating_them(
    tmp_path: Path, field: str, value: str, variable: str
) -> None:
    settings = settings_with(tmp_path, **{variable: value})
    assert attrgetter(field)(settings) == value
    with pytest.raises(SettingsInvalid) as refused:
        make_app(settings, [], started_at=0.0)
    assert str(refused.value).startswith(variable)
    assert "hunter2" not in str(refused.value)
