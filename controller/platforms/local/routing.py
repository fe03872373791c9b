"""Which function a request is for. Pure.

As on Knative by host: ``<service>.<namespace>.<domain>`` or ``<tag>-<service>.<namespace>.<domain>``, or the first
label alone. For people with a browser or curl also by path: ``/functions/<first label>/...``.
"""

from collections.abc import Mapping
from typing import TypeVar

Routable = TypeVar("Routable")

PATH_PREFIX = "/functions/"


def find_route(functions: Mapping[str, Routable], host: str, target: bytes) -> tuple[Routable, bytes] | None:
    """The function and the target that it sees; None where no function is meant."""
    service = host.partition(":")[0].partition(".")[0].lower()
    if service in functions:
        return functions[service], target
    prefix = PATH_PREFIX.encode()
    if not target.startswith(prefix):
        return None
    path, question_mark, query = target.removeprefix(prefix).partition(b"?")
    name, _, rest = path.partition(b"/")
    function = functions.get(name.decode("latin-1"))
    return None if function is None else (function, b"/" + rest + question_mark + query)
