"""Which requests a side protocol gets, and who may make them."""

import httpx
import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from shared.service.app import serve_stages
from shared.service.replica import Replica
from shared.service.side_protocol import SideProtocol
from tests.unit.shared.service.stage_fakes import TOKEN, EchoHandler, World, called, nothing_to_close


async def aside(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(f"aside: {scope['path']}")(scope, receive, send)


class TwoTongues(EchoHandler):
    """The small stage, with another protocol below ``/other``."""

    def side_protocol(self, replica: Replica) -> SideProtocol:
        return SideProtocol(
            prefix="/other",
            app=aside,
            open_paths=frozenset({"/other/health"}),
            refusal=lambda: Response("who are you?", status_code=401),
        )


async def get(world: World, path: str, *, token: str | None = TOKEN) -> httpx.Response:
    app = serve_stages([TwoTongues()], world.replica(), token=TOKEN, close=nothing_to_close)
    async with app.router.lifespan_context(app), called(app, token=token) as client:
        return await client.get(path)


@pytest.mark.parametrize(
    ("path", "is_aside"),
    [
        ("/other", True),
        ("/other/", True),
        ("/other/a/b", True),
        ("/others", False),
        ("/v1/info", False),
        ("/", False),
        ("/a/other", False),
    ],
)
async def test_it_gets_what_is_below_its_prefix(world: World, path: str, is_aside: bool) -> None:
    answer = await get(world, path)
    assert (answer.text == f"aside: {path}") is is_aside


async def test_a_caller_without_the_token_is_refused_in_its_own_words(world: World) -> None:
    refused = await get(world, "/other/a", token="wrong")
    assert (refused.status_code, refused.text) == (401, "who are you?")
    assert (await get(world, "/other/health", token=None)).text == "aside: /other/health"
    assert (await get(world, "/v1/info", token=None)).json()["code"] == "unauthenticated"


async def test_a_stage_without_one_has_none(world: World) -> None:
    app = serve_stages([EchoHandler()], world.replica(), token=TOKEN, close=nothing_to_close)
    async with called(app) as client:
        assert (await client.get("/other")).status_code == 404
