"""The reward function's process: the protocol as the controller meets it, and an end that loses no call."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.platforms.local.redis_server import RedisServer
from shared.contracts.call import StageReply
from shared.contracts.completion import SampleId
from shared.contracts.errors import Problem
from shared.contracts.info import FunctionInfo
from shared.contracts.reward import FunctionReward, RewardOutputs, Scores
from shared.contracts.stage import Stage
from shared.store.base import RunRecord, Store
from shared.store.directory_blobs import DirectoryBlobs
from shared.store.opening import redis_store
from shared.store.redis_connection import RedisConnection
from tests.contract.batch import MODEL, Batch
from tests.contract.function_process import FunctionProcess, Functions

GOLDEN = Path(__file__).with_name("golden")
SLOW_REWARD = """
import pathlib, time
def slow(data_source, solution_str, ground_truth, extra_info):
    pathlib.Path(__file__).with_suffix(".started").touch()
    time.sleep(0.1)
    return 1.0
"""


@pytest.fixture
def batch(store: Store, blobs: DirectoryBlobs) -> Batch:
    return Batch(store, blobs, run="run-reward")


async def have_completions(batch: Batch) -> None:
    """One right and one wrong answer per row."""
    answers = {prompt.row_uid: prompt.ground_truth for prompt in batch.prompts()}
    await batch.commit({id: f"1=1#{answers[id.row_uid]}" if id.sample == 0 else "#7" for id in batch.ids})


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text().replace("$MODEL", str(MODEL)))


async def test_the_golden_call_gets_the_golden_reply(reward: FunctionProcess, batch: Batch) -> None:
    await have_completions(batch)
    # Stores what the golden call refers to; the digest in the reference holds the two together.
    assert (await batch.reward_call())["inputs"]["prompts"] == golden("reward_call.json")["inputs"]["prompts"]
    answer = await reward.call(golden("reward_call.json"), stage="reward")
    assert answer.status_code == 200, answer.text
    reply = StageReply[RewardOutputs].model_validate_json(answer.content)
    assert reply.served.instance == reward.instance
    assert reply.served.started_at < reply.served.ready_at < reply.timings.started_at <= reply.timings.ended_at
    assert answer.json() | dict.fromkeys(("served", "timings")) == golden("reward_reply.json")
    scores = Scores.model_validate_json(await batch.blobs.get(reply.outputs.scores))
    assert {SampleId(score.row_uid, score.sample): score.reward for score in scores.scores} == {
        id: float(id.sample == 0) for id in batch.ids
    }


async def test_a_call_again_is_answered_from_the_store_also_by_another_replica(
    reward: FunctionProcess, functions: Functions, batch: Batch
) -> None:
    await have_completions(batch)
    first = await reward.call(await batch.reward_call(), stage="reward")
    again = await reward.call(await batch.reward_call(attempt=1, threads=2, trace_id="again"), stage="reward")
    with functions.running("reward") as restarted:
        elsewhere = await restarted.call(await batch.reward_call(attempt=2), stage="reward")
    assert first.status_code == again.status_code == elsewhere.status_code == 200
    assert first.content == again.content == elsewhere.content


async def test_what_is_refused(reward: FunctionProcess, batch: Batch, store: Store) -> None:
    await have_completions(batch)
    body = await batch.reward_call(fence=2)
    await store.runs.create(
        RunRecord(id="run-reward", state="running", created_at=1.0, updated_at=1.0, config={}, info={}),
        idempotency_key=None,
        digest="d",
    )
    for _ in range(2):
        await store.runs.acquire("run-reward", owner="controller", ttl_s=60)

    async def code(body: Any, stage: str = "reward", headers: dict[str, str] | None = None) -> tuple[int, str]:
        answer = await reward.call(body, stage=stage, headers=headers)
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.status_code, Problem.model_validate_json(answer.content).code

    assert await code(body, headers={}) == (401, "unauthenticated")
    assert await code(body, headers={"authorization": "Bearer wrong"}) == (401, "unauthenticated")
    assert await code(body | {"fence": 1}) == (409, "stale_fence")
    assert await code(body | {"surprise": 1}) == (422, "invalid_input")
    assert await code(body, stage="learner") == (404, "http_404")
    missing = body | {"inputs": body["inputs"] | {"num_samples": 3}}
    assert await code(missing) == (422, "invalid_input")
    # A key that failed keeps standing for its body.
    assert await code(body) == (409, "call_conflict")


async def test_it_says_what_it_serves(reward: FunctionProcess) -> None:
    async with reward.client() as client:
        info = FunctionInfo.model_validate_json((await client.get("/v1/info")).content)
        metrics = (await client.get("/metrics")).text
    assert (info.stages, info.instance, info.revision) == ((Stage.REWARD,), reward.instance, "reward-00001")
    assert "rlhfless_stage_calls_in_flight" in metrics


async def test_a_replica_that_is_told_to_end_finishes_its_call(functions: Functions, batch: Batch) -> None:
    await have_completions(batch)
    code = functions.folder / "slow.py"
    code.write_text(SLOW_REWARD)
    body = await batch.reward_call(reward=FunctionReward(path=str(code), name="slow"))
    with functions.running("reward") as function:
        calling = asyncio.create_task(function.call(body, stage="reward"))
        await until_exists(code.with_suffix(".started"))
        function.terminate()
        answer = await calling
        assert answer.status_code == 200, answer.text
        assert StageReply[RewardOutputs].model_validate_json(answer.content).outputs.mean_reward == 1.0
        assert await asyncio.to_thread(function.process.wait, 30) == -signal.SIGTERM
        async with function.client() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("/readyz")


async def test_a_call_outlives_a_restart_of_redis(functions: Functions, tmp_path: Path, blobs: DirectoryBlobs) -> None:
    server = RedisServer(tmp_path)
    await server.start()
    redis = RedisConnection(server.url, password=server.password)
    batch = Batch(redis_store(redis), blobs, run="run-restarted")
    await have_completions(batch)
    code = tmp_path / "slow.py"
    code.write_text(SLOW_REWARD)
    body = await batch.reward_call(reward=FunctionReward(path=str(code), name="slow"))
    try:
        settings = {"REDIS_URL": server.url, "REDIS_PASSWORD": server.password, "RLHFLESS_ROOTS": f"{tmp_path}:{MODEL}"}
        with functions.running("reward", **settings) as function:
            calling = asyncio.create_task(function.call(body, stage="reward"))
            await until_exists(code.with_suffix(".started"))
            pid = server.pid
            assert pid is not None
            # Whoever watches the server starts it again, in its place.
            os.kill(pid, signal.SIGTERM)
            answer = await calling
            assert server.pid != pid
            assert answer.status_code == 200, answer.text
            again = await function.call(body | {"attempt": 1}, stage="reward")
            assert again.content == answer.content
    finally:
        await redis.close()
        await server.stop()


async def until_exists(path: Path) -> None:
    for _ in range(3000):
        if await asyncio.to_thread(path.exists):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path} was not made")


async def test_no_secret_is_in_the_log_of_a_replica_that_cannot_log_in(
    functions: Functions, redis_server: RedisServer, batch: Batch
) -> None:
    wrong = "hunter2-hunter2"
    with functions.running("reward", REDIS_URL=redis_server.url.replace("://", f"://:{wrong}@")) as function:
        answer = await function.call(await batch.reward_call(), stage="reward")
        problem = Problem.model_validate_json(answer.content)
        assert (answer.status_code, problem.code, problem.retryable) == (500, "store_unavailable", True)
        log = function.log.read_text()
    assert "store_unavailable" in log
    for secret in (wrong, redis_server.password, functions.token):
        assert secret not in log + answer.text


async def test_the_log_is_lines_of_json(reward: FunctionProcess, batch: Batch) -> None:
    await have_completions(batch)
    await reward.call(await batch.reward_call(), stage="reward")
    lines = [json.loads(line) for line in reward.log.read_text().splitlines()]
    assert {line["instance"] for line in lines} == {reward.instance}
    assert any(line.get("run") == "run-reward" and line.get("stage") == "reward" for line in lines)
