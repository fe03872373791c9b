from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from controller.api.event_stream import as_server_sent
from controller.cli.sse import ServerEvent, server_events
from shared.store.base import Event


async def lines_of(text: str) -> AsyncIterator[str]:
    for line in text.split("\n"):
        yield line


async def read(text: str) -> list[ServerEvent | None]:
    return [event async for event in server_events(lines_of(text))]


async def test_events_and_signs_of_life_are_told_apart() -> None:
    text = ': connected\n\nid: 1-0\nevent: step\ndata: {"step": 0}\n\n: still here\n\nid: 2-0\ndata: {}\n\n'
    assert await read(text) == [
        None,
        ServerEvent(id="1-0", kind="step", data={"step": 0}),
        None,
        ServerEvent(id="2-0", kind="message", data={}),
    ]


async def test_data_may_come_in_several_lines() -> None:
    assert await read('id:7\ndata:{"a":\ndata: 1}\n\n') == [ServerEvent(id="7", kind="message", data={"a": 1})]


async def test_an_event_that_was_cut_in_two_is_left_out() -> None:
    assert await read('id: 1-0\ndata: {"step": 0}\n\nid: 2-0\ndata: {"st') == [
        ServerEvent(id="1-0", kind="message", data={"step": 0})
    ]


@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=8) | st.integers() | st.floats(allow_nan=False), max_size=3)
)
async def test_what_the_api_sends_is_what_is_read(data: dict[str, object]) -> None:
    async def events() -> AsyncIterator[Event | None]:
        yield Event("5-1", "log", data)

    text = b"".join([chunk async for chunk in as_server_sent(events())]).decode()
    [_, event] = await read(text)
    assert event is not None
    assert (event.id, event.kind) == ("5-1", "log")
    assert event.data.keys() == data.keys()
