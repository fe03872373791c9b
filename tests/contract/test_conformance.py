"""``rlhfless conformance``: our own functions pass, and one that is wrong fails just where it is."""

import json
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from typer.testing import CliRunner, Result

from controller.cli.main import app
from controller.conformance.checks import Finding, Verdict
from controller.conformance.settings import ConformanceSettings
from controller.conformance.trial import try_function
from controller.platforms.local.redis_server import RedisServer
from shared.contracts.info import CONTRACT_VERSION
from shared.store.base import Store
from tests.contract.batch import MODEL
from tests.contract.function_process import FunctionProcess, Functions

STAGES_WITHOUT_WEIGHTS = "prefill,reference,critic,learner"


def rlhfless(function: FunctionProcess, functions: Functions, redis: RedisServer, *options: str) -> Result:
    """Run the command as a user does."""
    return CliRunner().invoke(
        app,
        ["conformance", function.url, "--token-file", str(functions.folder / "token"), *options],
        env={
            "REDIS_URL": redis.url,
            "REDIS_PASSWORD": redis.password,
            "RLHFLESS_BLOB_URL": functions.blobs.as_uri(),
            "RLHFLESS_TOKEN": "",
        },
        catch_exceptions=False,
    )


def verdicts(findings: list[Finding]) -> dict[str, Verdict]:
    return {finding.check: finding.verdict for finding in findings}


def test_our_own_reward_passes(
    reward: FunctionProcess, functions: Functions, redis_server: RedisServer, store: Store
) -> None:
    done = rlhfless(reward, functions, redis_server, "--stage", "reward", "--model", str(MODEL))
    assert done.exit_code == 0, done.output
    assert "0 failed, 0 skipped" in done.stdout
    assert "4 completions, mean reward 0.5" in done.stdout


async def test_nothing_is_left_in_the_store(
    reward: FunctionProcess, functions: Functions, redis_server: RedisServer, store: Store
) -> None:
    await try_function(settings_of(reward, functions, redis_server))
    assert await store.runs.list() == []
    assert not [path for path in functions.blobs.glob("conformance-*") if any(path.iterdir())]


def test_our_own_rollout_passes(
    rollout: FunctionProcess, functions: Functions, redis_server: RedisServer, store: Store
) -> None:
    done = rlhfless(rollout, functions, redis_server, "--stage", "rollout", "--model", str(MODEL), "--json")
    assert done.exit_code == 0, done.output
    assert {finding["verdict"] for finding in json.loads(done.stdout)} == {"passed"}


def test_every_other_stage_passes_as_far_as_no_weights_are_needed(
    functions: Functions, redis_server: RedisServer, store: Store
) -> None:
    with functions.running("learner", RLHFLESS_STAGES=STAGES_WITHOUT_WEIGHTS) as function:
        for stage in STAGES_WITHOUT_WEIGHTS.split(","):
            done = rlhfless(function, functions, redis_server, "--stage", stage, "--json")
            found = {finding["check"]: finding for finding in json.loads(done.stdout)}
            assert done.exit_code == 0, [entry for entry in found.values() if entry["verdict"] == "failed"]
            assert [name for name, entry in found.items() if entry["verdict"] == "skipped"] == [
                f"does the work of {stage}, once"
            ]


def test_without_a_store_or_a_model_it_says_what_it_left_out(
    reward: FunctionProcess, functions: Functions, redis_server: RedisServer, store: Store
) -> None:
    bare = CliRunner().invoke(
        app,
        ["conformance", reward.url, "--stage", "reward", "--token-file", str(functions.folder / "token")],
        env={"REDIS_URL": "", "RLHFLESS_TOKEN": ""},
    )
    assert (bare.exit_code, "name it with --redis-url" in " ".join(bare.stdout.split())) == (0, True)
    no_model = rlhfless(reward, functions, redis_server, "--stage", "reward", "--model", "/no/such/folder", "--json")
    skipped = [entry for entry in json.loads(no_model.stdout) if entry["verdict"] == "skipped"]
    assert [("--model" in entry["said"]) for entry in skipped] == [True, True]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--stage", "trainer"], "there is no stage 'trainer'"),
        (["--stage", "reward", "--token-file", "/no/such/file"], "cannot be read"),
    ],
)
def test_wrong_options_are_named(reward: FunctionProcess, options: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["conformance", reward.url, *options], env={"RLHFLESS_TOKEN": ""})
    assert (done.exit_code, says in done.output) == (2, True)


def settings_of(function: FunctionProcess, functions: Functions, redis: RedisServer) -> ConformanceSettings:
    return ConformanceSettings.read(
        url=function.url,
        stage="reward",
        token=function.token,
        redis_url=redis.url,
        blob_url=functions.blobs.as_uri(),
        model=str(MODEL),
        environment={"REDIS_PASSWORD": redis.password},
    )


def wrong_function() -> FastAPI:
    """Says that it is a reward function and does what an unwary author would."""
    wrong = FastAPI()

    @wrong.get("/healthz")
    @wrong.get("/readyz")
    async def healthy() -> dict[str, str]:
        return {}

    @wrong.get("/v1/info")
    async def info() -> dict[str, object]:
        return {"stages": ["reward"], "contract_version": CONTRACT_VERSION, "instance": "a", "revision": "b"}

    @wrong.post("/v1/reward")
    async def reward(request: Request) -> Response:
        body = await request.json()  # 500 for what is no JSON
        if "surprise" in body:
            return JSONResponse({"task": "started"}, status_code=202)
        return JSONResponse({"score": 1.0})

    return wrong


async def test_one_that_is_wrong_fails_where_it_is(
    reward: FunctionProcess, functions: Functions, redis_server: RedisServer, store: Store
) -> None:
    transport = httpx.ASGITransport(app=wrong_function(), raise_app_exceptions=False)
    findings = await try_function(settings_of(reward, functions, redis_server), transport=transport)
    assert {check for check, verdict in verdicts(findings).items() if verdict is Verdict.PASSED} == {
        "health needs no token",
        "says what it is",
        "serves no other route",
    }
    assert Verdict.SKIPPED not in verdicts(findings).values()
    [never] = [finding for finding in findings if finding.check.startswith("never")]
    assert never.said.startswith("202 to POST /v1/reward")


async def test_one_that_refuses_everybody_passes_where_it_has_to_refuse(
    reward: FunctionProcess, functions: Functions, redis_server: RedisServer, store: Store
) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(401))
    findings = await try_function(settings_of(reward, functions, redis_server), transport=transport)
    assert {check for check, verdict in verdicts(findings).items() if verdict is Verdict.PASSED} == {
        "refuses without the token",
        "refuses a wrong token",
        "serves no other route",
        "never 202, 502, 503 or 504",
    }


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({"stages": ["critic"], "contract_version": CONTRACT_VERSION}, "it serves critic, not reward"),
        ({"stages": ["reward"], "contract_version": CONTRACT_VERSION + 1}, f"it speaks version {CONTRACT_VERSION + 1}"),
        ({"stages": ["reward"]}, "/v1/info lacks contract_version"),
    ],
)
async def test_what_it_says_of_itself_is_read(info: dict[str, object], says: str) -> None:
    settings = ConformanceSettings.read(url="http://reward", stage="reward", token="t", environment={})
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=info))
    findings = await try_function(settings, transport=transport)
    [found] = [finding for finding in findings if finding.check == "says what it is"]
    assert (found.verdict, says in found.said) == (Verdict.FAILED, True)


async def test_an_ingress_is_asked_by_the_functions_name() -> None:
    hosts: set[str] = set()

    def note(request: httpx.Request) -> httpx.Response:
        hosts.add(request.headers["host"])
        return httpx.Response(404)

    settings = ConformanceSettings.read(
        url="http://127.0.0.1:8080", stage="reward", host="reward.rlhfless.svc.cluster.local", token="t", environment={}
    )
    await try_function(settings, transport=httpx.MockTransport(note))
    assert hosts == {"reward.rlhfless.svc.cluster.local"}


async def test_nobody_there_fails_every_check_and_breaks_none(
    reward: FunctionProcess, functions: Functions, redis_server: RedisServer, store: Store
) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    findings = await try_function(settings_of(reward, functions, redis_server), transport=httpx.MockTransport(refuse))
    assert {finding.verdict for finding in findings[:-1]} == {Verdict.FAILED}


async def test_a_store_that_is_not_the_functions_is_seen(
    reward: FunctionProcess, functions: Functions, own_redis_server: RedisServer, tmp_path: Path
) -> None:
    """The function looks elsewhere, so it finds neither claims nor inputs."""
    settings = ConformanceSettings.read(
        url=reward.url,
        stage="reward",
        token=reward.token,
        redis_url=own_redis_server.url,
        blob_url=(tmp_path / "blobs").as_uri(),
        model=str(MODEL),
        environment={"REDIS_PASSWORD": own_redis_server.password},
    )
    found = verdicts(await try_function(settings))
    for check in ("answers a stored result again", "refuses a lower fence", "does the work of reward, once"):
        assert found[check] is Verdict.FAILED
    assert found["answers junk with a typed 4xx"] is Verdict.PASSED
