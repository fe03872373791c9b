"""Ports for replicas."""

import socket

import pytest

from controller.platforms.local.ports import NoFreePort, PortPool


def test_a_port_that_is_listened_on_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pool = PortPool(port, port)
        with pytest.raises(NoFreePort, match="all 1 ports"):
            pool.take()
    assert pool.take() == port


def test_each_is_handed_out_in_turn() -> None:
    pool = PortPool(20100, 20140)
    taken = [pool.take() for _ in range(30)]
    assert len(set(taken)) == 30


def test_pools_of_two_controllers_begin_at_different_ports() -> None:
    assert len({PortPool().take() for _ in range(8)}) > 1
