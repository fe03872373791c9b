"""Ports for replicas."""

import socket
from collections.abc import Callable

import pytest

from controller.platforms.local.ports import NoFreePort, PortPool


def test_a_port_that_is_listened_on_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pool = PortPool(port, port)
        with pytest.raises(NoFreePort, match="all 1 ports"):
            pool.take()
    assert pool.take() == port
    pool.give_back(port)


def test_a_port_is_one_controllers_until_it_is_given_back(unused_port: Callable[[], int]) -> None:
    port = unused_port()
    ours, theirs = PortPool(port, port), PortPool(port, port)
    assert ours.take() == port
    with pytest.raises(NoFreePort):
        theirs.take()
    ours.give_back(port)
    assert theirs.take() == port
    theirs.give_back(port)


def test_each_is_handed_out_in_turn() -> None:
    pool = PortPool(31900, 31999)
    taken = [pool.take() for _ in range(3)]
    assert len(set(taken)) == 3
    assert taken == sorted(taken)
    for port in taken:
        pool.give_back(port)
    again = pool.take()
    assert again > taken[-1]
    pool.give_back(again)
