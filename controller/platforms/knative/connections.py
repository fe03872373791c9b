"""TCP connections that stay silent for minutes: calls that compute, watches on which nothing happens."""

import socket
import ssl

import httpx

IDLE_S, ASK_EVERY_S, NUM_ASKED = 30, 10, 6
"""After this silence the other side is asked for a sign of life; it counts as gone without one. So what lies between
keeps the connection, and a server that has vanished without a word is noticed within 90 s."""


def kept_alive(*, verify: ssl.SSLContext | bool = True, num_idle: int = 20) -> httpx.AsyncHTTPTransport:
    """A transport without a limit of connections; ``num_idle`` of them are kept for the next requests."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", IDLE_S), ("TCP_KEEPINTVL", ASK_EVERY_S), ("TCP_KEEPCNT", NUM_ASKED)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=num_idle)
    return httpx.AsyncHTTPTransport(verify=verify, limits=limits, socket_options=options, trust_env=False)
