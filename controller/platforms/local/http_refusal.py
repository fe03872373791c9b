"""Heads that h11 takes and a front door must not: another reader could see the message's end elsewhere. Pure."""

import h11

MAX_HEAD_BYTES = 61440
"""Envoy's default limit for a request's head."""


def refusal(head: h11.Request | h11.Response) -> tuple[int, str] | None:
    """Status and reason where a message is not passed on (RFC 9112, 2.3, 6.1 and 6.3; RFC 9110, 9.3.6)."""
    headers = list(head.headers)
    names = {name for name, _ in headers}
    if head.http_version not in (b"1.1", b"1.0"):
        return 505, "the version is neither 1.1 nor 1.0"
    if b"transfer-encoding" in names and (b"content-length" in names or head.http_version == b"1.0"):
        return 400, "Transfer-Encoding contradicts Content-Length or HTTP/1.0"
    if sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES:
        return 431, f"the head is longer than {MAX_HEAD_BYTES} bytes"
    if isinstance(head, h11.Request) and head.method == b"CONNECT":
        return 501, "CONNECT asks for a tunnel; there is none to a function"
    return None
