"""Checks of a function's edge: health, information, token, and what is no call. They need no store."""

import json
from collections.abc import Sequence

from pydantic import ValidationError

from controller.conformance.checks import Check, expect
from controller.conformance.subject import Answer, Subject
from controller.runs.function_info import INFO_PATH, Announcement
from shared.contracts.info import CONTRACT_VERSION
from shared.contracts.stage import Stage

HEALTH = ("/healthz", "/readyz")
JUNK = (
    b"",
    b"null",
    b"[]",
    b"{",
    b"{}",
    b"\xff\xfe",
    b'"text"',
    b"[" * 2000,
    b'{"key": 1, "fence": 0, "deadline_at": 0, "inputs": {}}',
    b'{"key": {"run": "../x", "purpose": "train", "step": 0, "stage": "reward"}, "fence": 0}',
    json.dumps({"key": "x" * 100_000}).encode(),
)


def edge_checks(subject: Subject) -> Sequence[Check]:
    """The checks, in order."""
    return (
        Check("health needs no token", lambda: health(subject)),
        Check("says what it is", lambda: information(subject)),
        Check("refuses without the token", lambda: refuses(subject, None)),
        Check("refuses a wrong token", lambda: refuses(subject, "not-the-token-of-this-function")),
        Check("answers junk with a typed 4xx", lambda: junk(subject)),
        Check("serves no other route", lambda: other_routes(subject)),
    )


async def health(subject: Subject) -> str:
    """``/healthz`` and ``/readyz`` answer 200 to anybody."""
    for path in HEALTH:
        answer = await subject.get(path, token=None)
        expect(answer.status == 200, f"{path} answers {answer} and not 200: the platform would never send a call")
    return ", ".join(HEALTH)


async def information(subject: Subject) -> str:
    """``/v1/info`` names this stage and this version of the contract."""
    answer = await subject.get(INFO_PATH)
    expect(answer.status == 200, f"{INFO_PATH} answers {answer} and not 200")
    try:
        says = Announcement.model_validate_json(answer.body)
    except ValidationError as error:
        names = ", ".join(sorted({".".join(map(str, fault["loc"])) or "JSON" for fault in error.errors()}))
        expect(False, f"{INFO_PATH} lacks {names}")
        raise
    expect(subject.stage in says.stages, f"it serves {', '.join(says.stages) or 'nothing'}, not {subject.stage}")
    expect(
        says.contract_version == CONTRACT_VERSION,
        f"it speaks version {says.contract_version} of the contract, and this is version {CONTRACT_VERSION}",
    )
    model = f", model {says.model}" if says.model else ""
    return f"stages {', '.join(says.stages)}, contract {says.contract_version}{model}"


async def refuses(subject: Subject, token: str | None) -> str:
    """A call and the information are for those who have the token; the call is not even read."""
    answers = [await subject.get(INFO_PATH, token=token), await subject.post(b"{}", token=token)]
    for answer in answers:
        expect(answer.status == 401, f"{answer.what} answers {answer} and not 401")
    return "401"


async def junk(subject: Subject) -> str:
    """What is no call is the caller's mistake, and is named as a problem."""
    for body in JUNK:
        expect_typed(await subject.post(body), f"a body of {body[:40]!r}")
    return f"{len(JUNK)} bodies"


async def other_routes(subject: Subject) -> str:
    """What is not served is 4xx."""
    answers = [
        await subject.get("/v1/no-such-thing"),
        await subject.get(subject.stage.route),
        await subject.post(b"{}", path=f"{Stage.REWARD.route}/no-such-thing"),
    ]
    for answer in answers:
        expect(400 <= answer.status < 500, f"{answer.what} answers {answer} and not 4xx")
    return "4xx"


def expect_typed(answer: Answer, to: str) -> None:
    """Raises ``CheckFailed`` unless the answer is a 4xx with a problem in it."""
    expect(400 <= answer.status < 500, f"it answers {answer} to {to}, and not 4xx")
    expect(answer.problem() is not None, f'its answer to {to} is no problem {{"code", "message", ...}}: {answer}')
