"""Which headers reach the other side, and what a function is told about its caller."""

import h11
import pytest

from controller.platforms.local.proxy_headers import (
    Headers,
    addressed,
    answer_to_probe,
    end_to_end,
    passed_trailers,
    request_headers,
)


def request_with(*lines: bytes, first: bytes = b"GET /x HTTP/1.1") -> h11.Request:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"\r\n".join([first, *lines]) + b"\r\n\r\n")
    request = connection.next_event()
    assert isinstance(request, h11.Request)
    return request


def sent(request: h11.Request, *, peer: str = "10.0.0.9") -> dict[bytes, bytes]:
    headers = request_headers(request, addressed(request)[0], peer)
    assert len(headers) == len(dict(headers))
    return dict(headers)


def test_headers_of_one_connection_stay_behind() -> None:
    headers: Headers = [
        *((b"connection", b"X-Mine, close, Host"), (b"x-mine", b"1"), (b"keep-alive", b"9"), (b"te", b"trailers")),
        *((b"upgrade", b"h2c"), (b"proxy-authorization", b"secret"), (b"expect", b"100-continue")),
        *((b"proxy-connection", b"x"), (b"host", b"a"), (b"x-a", b"1"), (b"x-a", b"2")),
    ]
    assert end_to_end(headers) == [(b"host", b"a"), (b"x-a", b"1"), (b"x-a", b"2")]


@pytest.mark.parametrize("framing", [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")])
def test_no_caller_can_take_the_framing_away(framing: tuple[bytes, bytes]) -> None:
    assert end_to_end([(b"connection", framing[0].title()), framing]) == [framing]


def test_a_trailer_changes_nothing_that_the_head_said() -> None:
    assert passed_trailers([(b"x-sum", b"1"), (b"host", b"b"), (b"authorization", b"x")]) == [(b"x-sum", b"1")]


def test_a_function_is_told_about_its_caller() -> None:
    headers = sent(request_with(b"Host: rollout:8080", b"Knative-Serving-Revision: x", b"Knative-Serving-Tag: y"))
    assert len(headers.pop(b"x-request-id")) == 36
    assert headers == {
        b"host": b"rollout:8080",
        b"x-forwarded-for": b"10.0.0.9",
        b"x-forwarded-host": b"rollout:8080",
        b"x-forwarded-proto": b"http",
        b"forwarded": b'for=10.0.0.9;host="rollout:8080";proto=http',
    }


def test_what_other_proxies_said_is_kept() -> None:
    headers = sent(
        request_with(
            *(b"Host: rollout", b"X-Forwarded-For: 1.1.1.1", b"X-Forwarded-For: 2.2.2.2, 3.3.3.3"),
            *(b"X-Forwarded-Proto: https", b"X-Forwarded-Host: outside", b"Forwarded: for=1.1.1.1"),
            b"X-Request-Id: mine",
        ),
        peer="::1",
    )
    assert headers == {
        b"host": b"rollout",
        b"x-forwarded-for": b"1.1.1.1, 2.2.2.2, 3.3.3.3, ::1",
        b"x-forwarded-proto": b"https",
        b"x-forwarded-host": b"outside",
        b"forwarded": b'for=1.1.1.1, for="[::1]";host=rollout;proto=https',
        b"x-request-id": b"mine",
    }


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/x?y", (b"a", b"/x?y")),
        (b"*", (b"a", b"*")),
        (b"http://b:1/x?y", (b"b:1", b"/x?y")),
        (b"HTTP://b", (b"b", b"/")),
        (b"http://b?y=/z", (b"b", b"/?y=/z")),
    ],
)
def test_a_target_with_a_host_overrides_the_header(target: bytes, expected: tuple[bytes, bytes]) -> None:
    request = request_with(b"Host: a", first=b"GET " + target + b" HTTP/1.1")
    assert addressed(request) == expected
    assert sent(request)[b"host"] == expected[0]


def test_http_1_0_may_do_without_a_host() -> None:
    assert sent(request_with(first=b"GET / HTTP/1.0"))[b"host"] == b""


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ((b"k-network-probe", b"queue"), (200, "queue")),
        ((b"k-network-probe", b"activator"), (200, "activator")),
        ((b"k-network-probe", b"else"), (400, "unexpected probe header value: 'else'")),
        ((b"user-agent", b"kube-probe/1.34"), (200, "queue")),
        ((b"k-kubelet-probe", b"x"), (200, "queue")),
        ((b"user-agent", b"curl/8 kube-probe/"), None),
    ],
)
def test_probes(header: tuple[bytes, bytes], expected: tuple[int, str] | None) -> None:
    assert answer_to_probe([(b"host", b"a"), header]) == expected
