import socket
import threading
from collections.abc import Iterator

import pytest

from functions.learner.ranks.channel import Channel, ChannelClosed, Message


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    left, right = socket.socketpair()
    with left, right:
        yield Channel(left), Channel(right)


def test_messages_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    sent = [Message({"a": [1.5, None]}, (b"", b"x" * 3_000_000)), Message({}), Message({"b": "ü"}, (b"\x00",))]

    def send() -> None:
        for message in sent:
            ends[0].send(message)

    sender = threading.Thread(target=send)
    sender.start()
    received = [ends[1].receive() for _ in sent]
    sender.join()

    assert received == sent


def test_the_end_of_the_other_side_is_told_apart_from_its_silence(ends: tuple[Channel, Channel]) -> None:
    with pytest.raises(TimeoutError):
        ends[1].receive(0.01)
    ends[0].send(Message({"kind": "last"}))
    ends[0].close()

    assert ends[1].receive().body == {"kind": "last"}
    with pytest.raises(ChannelClosed):
        ends[1].receive()
    with pytest.raises(ChannelClosed):
        ends[1].send(Message({}))
