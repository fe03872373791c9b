"""What a real replica refuses, whoever asks: callers without the token, and owners that others have followed."""

import json
from typing import Any

import httpx
import pytest

from shared.contracts.call import CallKey, StageCall
from shared.contracts.learner import InitInputs, LearnerInputs
from shared.contracts.policy import ModelRef
from shared.contracts.stage import Purpose, Stage
from tests.e2e.in_process import Parts
from tests.e2e.stack import Stack
from tests.e2e.workspace import Workspace


@pytest.mark.parametrize("function", [Stage.ROLLOUT, Stage.REWARD, Stage.LEARNER])
def test_a_call_without_the_token(stack: Stack, function: str) -> None:
    url = stack.api.functions()[function]["url"]

    def call(path: str, **headers: str) -> httpx.Response:
        return httpx.post(f"{url}{path}", json={}, headers=headers, timeout=60, trust_env=False)

    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {stack.token()}"}):
        answer = call(f"/v1/{function}", **headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
    # It was the token that was missed: with it, the same call is refused for its body.
    answer = call(f"/v1/{function}", authorization=f"Bearer {stack.token()}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    for path in ("/metrics", "/v1/info"):
        assert httpx.get(f"{url}{path}", trust_env=False).status_code == 401


@pytest.mark.asyncio(loop_scope="package")
async def test_a_call_of_an_owner_that_another_has_followed(parts: Parts, workspace: Workspace) -> None:
    run = (await parts.run(workspace.config({"trainer.total_training_steps": 1}))).record.id
    owned = await parts.store.runs.acquire(run, owner="the next one", ttl_s=60)
    assert owned is not None

    async def call(fence: int) -> tuple[int, dict[str, Any]]:
        key = CallKey(run=run, purpose=Purpose.INIT, step=0, stage=Stage.LEARNER, segment=7)
        inputs = LearnerInputs(operation=InitInputs(model=ModelRef(path=str(workspace.model))))
        body = StageCall[LearnerInputs](key=key, fence=fence, deadline_at=parts.platform.now() + 60, inputs=inputs)
        reply = await parts.platform.invoke(
            Stage.LEARNER,
            Stage.LEARNER.route,
            body.model_dump_json().encode(),
            headers={"authorization": f"Bearer {parts.token}", "content-type": "application/json"},
            timeout_s=60,
        )
        return reply.status, json.loads(reply.body)

    status, problem = await call(owned.fence - 1)
    assert (status, problem["code"], problem["retryable"]) == (409, "stale_fence", False)
    assert problem["details"]["fence"] == owned.fence
    status, _ = await call(owned.fence)
    assert status == 200
    # Also when the result is there: the old owner has no business with it.
    status, problem = await call(owned.fence - 1)
    assert (status, problem["code"]) == (409, "stale_fence")
    for stage in Stage.LEARNER, Stage.ROLLOUT, Stage.REWARD:
        await parts.platform.release(stage)
