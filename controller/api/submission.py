"""The body of ``POST /v1/runs``: a config document, alone or with overrides beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from controller.api.errors import BodyTooLarge, UnsupportedMediaType
from controller.api.json_text import NotJson, fault_of, parse_json
from controller.runs.config.overrides import parse_overrides
from controller.runs.config.problems import ConfigInvalid, ConfigProblem

MAX_BODY_BYTES = 4 * 2**20
"""A config has some kilobytes."""
MAX_OVERRIDES = 1000
MAX_OVERRIDE_CHARS = 64 * 2**10
"""Characters of all overrides together: reading YAML takes its time."""
MAX_BRACKETS = 100
"""Opening brackets of one override: deep nesting takes the YAML library seconds to give up on."""
ENVELOPE = frozenset({"config", "overrides"})
"""Neither is a section of a config, so a body with one of them is no bare document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a user asks to be run: a document and the ``a.b=c`` assignments that go on top of it."""

    document: Mapping[str, Any]
    overrides: tuple[str, ...] = ()


async def read_submission(request: Request) -> Submission:
    """Read and check the request's body.

    Raises ``UnsupportedMediaType``, ``BodyTooLarge``, ``NotJson`` or ``ConfigInvalid``.
    """
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType("the body is a run's config as JSON: send it with Content-Type: application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"a config has at most {MAX_BODY_BYTES // 2**20} MiB: name data by files, not by value")
    return parse_submission(bytes(body))


def parse_submission(body: bytes) -> Submission:
    """The submission that a body stands for. Raises ``NotJson`` or ``ConfigInvalid``."""
    content = parse_json(body)
    if not isinstance(content, dict):
        raise NotJson('the body is not a JSON object: send {"config": {...}, "overrides": ["a.b=c"]}')
    if not ENVELOPE & content.keys():
        return Submission(document=content)
    document, overrides = content.get("config", {}), content.get("overrides", [])
    problems = [
        _problem(name, "it stands beside the config", "move it into config") for name in content.keys() - ENVELOPE
    ]
    if not isinstance(document, dict):
        problems.append(_problem("config", "it is not an object", 'write it as {"rollout": {"n": 8}}'))
    if not isinstance(overrides, list) or not all(isinstance(override, str) for override in overrides):
        problems.append(_problem("overrides", "it is not a list of texts", 'write it as ["rollout.n=16"]'))
    elif len(overrides) > MAX_OVERRIDES or sum(map(len, overrides)) > MAX_OVERRIDE_CHARS:
        problems.append(_problem("overrides", "there are too many, or they are too long", "write them into config"))
    else:
        problems += [problem for override in overrides if (problem := _override_problem(override)) is not None]
    if problems:
        raise ConfigInvalid(problems)
    return Submission(document=document, overrides=tuple(overrides))


def _override_problem(override: str) -> ConfigProblem | None:
    """What keeps an override from being read at all: its value is YAML, which can hold more than JSON."""
    name = override.partition("=")[0].strip()
    if override.count("[") + override.count("{") > MAX_BRACKETS:
        return _problem(name, "its value has too many brackets", "write it into config")
    # What cannot be read at all is the config's to report, with everything else that is wrong with it.
    values, _ = parse_overrides([override])
    fault = fault_of(values)
    return None if fault is None else _problem(name, f"its value {fault}", "write it plainly")


def _problem(field: str, reason: str, suggestion: str) -> ConfigProblem:
    return ConfigProblem(field=field, reason=reason, suggestion=suggestion)
