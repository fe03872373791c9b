"""What a function says of itself (``GET /v1/info``), and whether a run can work with it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from controller.platforms.base import FunctionState, PlatformReply
from controller.runs.stage_client import parse_problem
from shared.contracts.info import CONTRACT_VERSION

INFO_PATH = "/v1/info"


class Announcement(BaseModel):
    """The part of the answer that counts. A function may say more: not all of them are ours."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    stages: tuple[str, ...]
    contract_version: int
    instance: str = ""
    revision: str = ""
    model: str | None = None
    """The model that its image carries, if it carries one."""
    tokenizer_hash: str | None = None
    """Of that model's tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What a function of the platform announces."""

    function: FunctionState
    says: Announcement


class FunctionUnfit(Exception):
    """A function answers, but no run can work with it."""


def read_announcement(function: FunctionState, answer: PlatformReply) -> Announced:
    """The announcement in an answer of status 200 that fits the function. Raises ``FunctionUnfit``."""
    if answer.status != 200:
        raise FunctionUnfit(
            f"{function.name} answers {INFO_PATH} with {answer.status}: {parse_problem(answer).message}"
        )
    try:
        says = Announcement.model_validate_json(answer.body)
    except ValidationError as error:
        raise FunctionUnfit(
            f"{function.name} does not say what it is: {INFO_PATH} lacks {_places(error)}; "
            "is its image one of this system?"
        ) from error
    missing = [stage.value for stage in function.stages if stage.value not in says.stages]
    if missing:
        raise FunctionUnfit(
            f"{function.name} serves {', '.join(says.stages) or 'nothing'}, not {', '.join(missing)}: "
            "its image or its RLHFLESS_STAGES is another function's"
        )
    if says.contract_version != CONTRACT_VERSION:
        raise FunctionUnfit(
            f"{function.name} speaks version {says.contract_version} of the stage contract and this controller version "
            f"{CONTRACT_VERSION}: use images of one release"
        )
    return Announced(function=function, says=says)


def tokenizer_disagreement(announced: Iterable[Announced], *, own: str | None = None) -> str | None:
    """Which functions carry models of different tokenizers; None where they agree or say nothing.

    ``own`` is the hash of the run's own tokenizer.
    """
    hashes = {each.function.name: each.says.tokenizer_hash for each in announced if each.says.tokenizer_hash}
    said: Mapping[str, Any] = {**({"the run's model": own} if own and hashes else {}), **hashes}
    if len(set(said.values())) < 2:
        return None
    listed = ", ".join(f"{name} {value[:12]}" for name, value in sorted(said.items()))
    return f"token ids would mean different words to different functions; their tokenizers are: {listed}"


def _places(error: ValidationError) -> str:
    return ", ".join(sorted({".".join(map(str, fault["loc"])) or "JSON" for fault in error.errors()}))
