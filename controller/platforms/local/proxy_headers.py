"""Headers on their way through the proxy. Pure.

What concerns one connection only stays behind (RFC 9110, 7.6.1); what Knative's ingress and queue-proxy tell a
function about its caller is added (RFC 7239 for ``Forwarded``).
"""

import re
import uuid

from controller.platforms.local.http_body import FRAMING
from controller.platforms.local.http_message import Headers, RequestHead, listed, values_of

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
_ABSOLUTE = re.compile(rb"http://([^/?]*)(.*)", re.IGNORECASE)
_KNATIVE_INTERNAL = b"knative-serving-"
_NETWORK_PROBE = b"k-network-probe"
_PROBED_COMPONENTS = (b"activator", b"queue", b"probe")
_KUBELET_AGENT = b"kube-probe/"
_CHUNKED = (b"transfer-encoding", b"chunked")


def addressed(request: RequestHead) -> tuple[bytes, bytes]:
    """Host and target. In ``http://host/path`` the target has its own, which overrides the header (RFC 9112, 3.2.2)."""
    absolute = _ABSOLUTE.fullmatch(request.target)
    if absolute is not None:
        host, path = absolute.groups()
        return host, path if path.startswith(b"/") else b"/" + path
    hosts = values_of(request.headers, b"host")
    return (hosts[0] if hosts else b""), request.target


def host_is_clear(request: RequestHead) -> bool:
    """Whether there is one Host header, as there must be; HTTP/1.0 may do without."""
    num_hosts = len(values_of(request.headers, b"host"))
    return num_hosts == 1 or (num_hosts == 0 and request.minor_version == 0)


def end_to_end(headers: Headers) -> Headers:
    """What passes on to the other side, without the body's framing."""
    one_connection = _ONE_CONNECTION | FRAMING | (listed(headers, b"connection") - {b"host"})
    return [header for header in headers if header[0] not in one_connection]


def framing(headers: Headers, *, chunked: bool) -> Headers:
    """How the body is delimited on the other side: in chunks, or by the length that was stated, if any."""
    return [_CHUNKED] if chunked else [header for header in headers if header[0] == b"content-length"]


def request_headers(request: RequestHead, host: bytes, peer: str, *, chunked: bool) -> Headers:
    """What the replica gets."""
    headers = [header for header in end_to_end(request.headers) if not header[0].startswith(_KNATIVE_INTERNAL)]
    names = {name for name, _ in headers}
    caller = peer.encode("latin-1")
    proto = (values_of(headers, b"x-forwarded-proto") or [b"http"])[0]
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
    if _ABSOLUTE.fullmatch(request.target):
        headers = [(b"host", host), *(header for header in headers if header[0] != b"host")]
    return headers + framing(request.headers, chunked=chunked)


def answer_to_probe(headers: Headers) -> tuple[int, str] | None:
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
    before = values_of(headers, name)
    others = [header for header in headers if header[0] != name]
    return [*others, (name, b", ".join([*before, element]))]
