"""Headers on their way through the proxy. Pure.

What concerns one connection only stays behind (RFC 9110, 7.6.1); what Knative's ingress and queue-proxy tell a
function about its caller is added (RFC 7239 for ``Forwarded``).
"""

import re
import uuid
from collections.abc import Iterable

import h11

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, in the order they came."""

_ONE_CONNECTION = frozenset(
    (
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"upgrade",
    )
)
_NEEDED = frozenset((b"host", b"content-length", b"transfer-encoding"))
"""Headers that the other side needs, whatever ``Connection`` says. h11 chunks an answer of no stated length."""
_NO_TRAILERS = _NEEDED | {b"connection", b"authorization", b"content-encoding", b"content-type"}
"""What a trailer must not change once the head has been read (RFC 9110, 6.5.1)."""
_ABSOLUTE = re.compile(rb"http://([^/?]*)(.*)", re.IGNORECASE)
_KNATIVE_INTERNAL = b"knative-serving-"
_NETWORK_PROBE = b"k-network-probe"
_PROBED_COMPONENTS = (b"activator", b"queue", b"probe")
_KUBELET_AGENT = b"kube-probe/"


def addressed(request: h11.Request) -> tuple[bytes, bytes]:
    """Host and target. In ``http://host/path`` the target has its own, which overrides the header (RFC 9112, 3.2.2)."""
    absolute = _ABSOLUTE.fullmatch(request.target)
    if absolute is not None:
        host, path = absolute.groups()
        return host, path if path.startswith(b"/") else b"/" + path
    hosts = _values_of(request.headers, b"host")
    return (hosts[0] if hosts else b""), request.target


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What passes on to the other side."""
    headers = list(headers)
    one_connection = _ONE_CONNECTION | (_listed(headers, b"connection") - _NEEDED)
    return [header for header in headers if header[0] not in one_connection]


def passed_trailers(trailers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What passes on after the body."""
    return [trailer for trailer in trailers if trailer[0] not in _NO_TRAILERS]


def request_headers(request: h11.Request, host: bytes, peer: str) -> Headers:
    """What the replica gets."""
    headers = [header for header in end_to_end(request.headers) if not header[0].startswith(_KNATIVE_INTERNAL)]
    names = {name for name, _ in headers}
    caller = peer.encode("latin-1")
    proto = (_values_of(headers, b"x-forwarded-proto") or [b"http"])[0]
    if b"x-forwarded-proto" not in names:
        headers.append((b"x-forwarded-proto", proto))
    if b"x-forwarded-host" not in names:
        headers.append((b"x-forwarded-host", host))
    if b"x-request-id" not in names:
        headers.append((b"x-request-id", str(uuid.uuid4()).encode()))
    node = b'for="[%b]"' % caller if b":" in caller else b"for=" + caller
    if host:
        node += b';host="%b"' % host if b":" in host else b";host=" + host
    headers = _appended(headers, b"x-forwarded-for", caller)
    headers = _appended(headers, b"forwarded", node + b";proto=" + proto)
    return [(b"host", host), *(header for header in headers if header[0] != b"host")]


def answer_to_probe(headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str] | None:
    """Status and text for a probe of the platform, which no replica sees and no metric counts; None for a request."""
    for name, value in headers:
        if name == _NETWORK_PROBE:
            text = value.decode("latin-1")
            if value in _PROBED_COMPONENTS:
                return 200, text
            return 400, f"unexpected probe header value: {text!r}"
        if name == b"k-kubelet-probe" or (name == b"user-agent" and value.startswith(_KUBELET_AGENT)):
            return 200, "queue"
    return None


def _appended(headers: Headers, name: bytes, element: bytes) -> Headers:
    """An element at the end of a header that is a list."""
    before = _values_of(headers, name)
    others = [header for header in headers if header[0] != name]
    return [*others, (name, b", ".join([*before, element]))]


def _values_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _listed(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> set[bytes]:
    """The elements of a header that is a list of words, in lower case."""
    return {word.strip().lower() for value in _values_of(headers, name) for word in value.split(b",")}
