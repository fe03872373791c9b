"""What is refused although h11 takes it."""

import h11
import pytest

from controller.platforms.local.http_refusal import MAX_HEAD_BYTES, refusal

CHUNKED = (b"Transfer-Encoding", b"chunked")
SIZED = (b"Content-Length", b"5")


def request(*headers: tuple[bytes, bytes], version: str = "1.1", method: str = "POST") -> h11.Request:
    return h11.Request(method=method, target="/", headers=[(b"Host", b"a"), *headers], http_version=version)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (request(SIZED, CHUNKED), 400),
        (request(CHUNKED, SIZED), 400),
        (request(CHUNKED, version="1.0"), 400),
        (request(method="CONNECT"), 501),
        (request(version="2.0"), 505),
        (request(version="0.9"), 505),
        (request((b"X", b"x" * MAX_HEAD_BYTES)), 431),
        (h11.Response(status_code=200, headers=[SIZED, CHUNKED]), 400),
        (h11.Response(status_code=200, headers=[CHUNKED], http_version="1.0"), 400),
    ],
)
def test_refused(head: h11.Request | h11.Response, status: int) -> None:
    refused = refusal(head)
    assert refused is not None
    assert refused[0] == status


@pytest.mark.parametrize(
    "head",
    [
        request(SIZED),
        request(CHUNKED),
        request(SIZED, version="1.0"),
        request((b"X", b"x" * (MAX_HEAD_BYTES - 100))),
        h11.Response(status_code=200, headers=[CHUNKED]),
        h11.Response(status_code=200, headers=[], http_version="1.0"),
    ],
)
def test_passed_on(head: h11.Request | h11.Response) -> None:
    assert refusal(head) is None
