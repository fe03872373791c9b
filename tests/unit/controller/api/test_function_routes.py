"""One function over HTTP: who may change it, with what, and when."""

from typing import Any

import pytest

from controller.runs.function_swaps import SwapState
from controller.runs.state import RunState
from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import ADMIN_TOKEN, called

TOKEN = "a-token-of-this-api"
DIGEST = f"registry.example:5000/rlhfless/function-cuda@sha256:{'ab' * 32}"
IMAGE = {"image": "rlhfless/function-cpu:0.2.0"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_function_is_shown_with_its_last_change() -> None:
    async with called(FakeService()) as client:
        shown = (await client.get("/v1/functions/rollout")).json()
        assert (shown["name"], shown["revision"], shown["change"]) == ("rollout", "rollout-00001", None)
        answer = await client.get("/v1/functions/rolout")
        assert (answer.status_code, answer.json()["code"]) == (404, "function_unknown")
        assert "there are: rollout" in answer.json()["message"]


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [
        (None, 401, "unauthenticated"),
        ("wrong", 401, "unauthenticated"),
        (TOKEN, 403, "not_allowed"),
        (ADMIN_TOKEN, 202, None),
    ],
)
async def test_only_admins_change_functions(token: str | None, status: int, code: str | None) -> None:
    service = FakeService()
    async with called(service, token=TOKEN) as client:
        headers = {} if token is None else bearer(token)
        answer = await client.put("/v1/functions/rollout", json=IMAGE, headers=headers)
        assert answer.status_code == status
        assert answer.json().get("code") == code
        shown = await client.get("/v1/functions/rollout", headers=bearer(ADMIN_TOKEN))
        assert (shown.json()["change"] is None) == (status != 202)
        assert ADMIN_TOKEN not in answer.text


async def test_the_admins_token_opens_everything_else_too() -> None:
    async with called(FakeService(), token=TOKEN) as client:
        assert (await client.get("/v1/runs", headers=bearer(ADMIN_TOKEN))).status_code == 200


async def test_on_a_machine_of_ones_own_everybody_may() -> None:
    async with called(FakeService()) as client:
        assert (await client.put("/v1/functions/rollout", json=IMAGE)).status_code == 202


async def test_a_change_is_taken_down_and_its_values_are_not_shown() -> None:
    async with called(FakeService()) as client:
        wanted = {
            "image": DIGEST,
            "env": {"LEVEL": "hidden-value", "OLD": None},
            "resources": {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": "1", "memory": "2Gi"}},
            "when": "idle",
        }
        answer = await client.put("/v1/functions/rollout", json=wanted)
        assert answer.status_code == 202
        change = answer.json()["change"]
        assert (change["state"], change["when"], change["image"]) == (SwapState.WAITING, "idle", DIGEST)
        assert change["env"] == ["LEVEL", "OLD"]
        assert change["limits"] == {"nvidia.com/gpu": "1", "memory": "2Gi"}
        assert "hidden-value" not in answer.text


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({}, "nothing is to be changed"),
        ({"image": "rlhfless/function-cpu"}, "a tag or a digest"),
        ({"image": "Upper/case:1"}, "a tag or a digest"),
        ({"image": "name:tag; rm -rf /"}, "a tag or a digest"),
        ({"image": "name@sha256:12"}, "a tag or a digest"),
        ({"image": ""}, "a tag or a digest"),
        ({"env": {"PORT": "1"}}, "PORT is set by the platform"),
        ({"env": {"K_REVISION": None}}, "K_REVISION is set by the platform"),
        ({"env": {"not a name": "1"}}, "env"),
        ({"env": {"A": 1}}, "env.A"),
        ({"env": {"A": "x\x00"}}, "env.A"),
        ({"resources": {"requests": {"cpu": "lots"}}}, "resources.requests.cpu"),
        ({"resources": {"claims": {}}}, "resources.claims"),
        ({"image": "a:1", "when": "later"}, "when"),
        ({"image": "a:1", "imagee": "b"}, "imagee"),
        ([], "body"),
    ],
)
async def test_what_no_function_can_become_is_refused(wanted: Any, said: str) -> None:
    async with called(FakeService()) as client:
        answer = await client.put("/v1/functions/rollout", json=wanted)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        assert said in answer.json()["message"]
        assert (await client.get("/v1/functions/rollout")).json()["change"] is None


@pytest.mark.parametrize(
    "image", ["a:1", "docker.io/library/a.b_c:v1.2-rc", DIGEST, "ghcr.io/x/y/z:latest", f"a:1@sha256:{'0' * 64}"]
)
async def test_images_have_a_tag_or_a_digest(image: str) -> None:
    async with called(FakeService()) as client:
        assert (await client.put("/v1/functions/rollout", json={"image": image})).status_code == 202


async def test_a_function_in_use_is_changed_later_or_not() -> None:
    service = FakeService()
    service.add("run-0", RunState.RUNNING)
    async with called(service) as client:
        answer = await client.put("/v1/functions/rollout", json=IMAGE)
        assert (answer.status_code, answer.json()["code"]) == (409, "run_conflict")
        assert "run-0 uses rollout" in answer.json()["message"]
        for when in ("idle", "step_boundary"):
            answer = await client.put("/v1/functions/rollout", json=IMAGE | {"when": when})
            assert (answer.status_code, answer.json()["change"]["state"]) == (202, "waiting")


async def test_functions_that_nobody_can_change() -> None:
    service = FakeService()
    service.editor = None
    async with called(service) as client:
        answer = await client.put("/v1/functions/rollout", json=IMAGE)
        assert (answer.status_code, answer.json()["code"]) == (409, "editing_unsupported")
        assert (await client.put("/v1/functions/none", json=IMAGE)).status_code == 404
