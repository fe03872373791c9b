"""A config without its secrets, for whatever is written to files and sent to trackers. Pure.

A config has no place for a secret, yet people put some where they do not belong: in an address, in a free text.
"""

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"(^|[_\-.])(api_?key|access_?key|secret|secrets|passw(or)?d|credentials?|authorization|bearer|token|headers)$",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_IN_QUERY = re.compile(r"(?<=[?&;])([\w-]*(?:key|token|secret|password|signature|sig|auth))=[^&;\s]+", re.IGNORECASE)
_LOOKS_SECRET = re.compile(
    r"\b(?:(?:sk|pk)[-_][\w-]{16,}|(?:hf|ghp|gho)_[A-Za-z0-9]{16,}|(?:glpat|xox[abp])-[\w-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{16,}|Bearer\s+\S+|eyJ[\w-]{10,}\.[\w-]+\.[\w-]+)"
)
"""Keys of OpenAI, Hugging Face, GitHub, GitLab, Slack, AWS and Google; a bearer's token; a JSON web token."""


def scrubbed(value: Any, name: str = "") -> Any:
    """The JSON value without what looks like a secret, by its key or by itself. ``name`` is the value's own key."""
    if value is not None and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: scrubbed(part, str(key)) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(part) for part in value]
    return scrubbed_text(value) if isinstance(value, str) else value


def scrubbed_text(text: str) -> str:
    """The text with passwords of addresses, secret query values and well-known forms of keys hidden."""
    text = _IN_ADDRESS.sub(HIDDEN, text)
    text = _IN_QUERY.sub(rf"\1={HIDDEN}", text)
    return _LOOKS_SECRET.sub(HIDDEN, text)
