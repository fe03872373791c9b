"""The Open Inference Protocol V2 (KServe, Triton, MLServer) before a reward: texts in, scores out.

A model is a reward by its name: each built-in rule, and one of the process's own (``functions.reward.settings``).
Nothing is stored here: who asks by this protocol asks again.
"""

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from functions.reward.outcome import CompletionText
from functions.reward.settings import V2Settings
from functions.reward.v2_messages import infer_response, model_metadata, read_request, read_rows
from shared.contracts.errors import InvalidInput, StageError, Unauthenticated
from shared.contracts.policy import BlobRef, ModelRef
from shared.contracts.prompt import Prompt
from shared.contracts.reward import RewardInputs, RewardSpec, RuleName, RuleReward, Scores
from shared.service.beside import beside
from shared.service.request import read_body
from shared.service.route import watch_caller
from shared.service.side_protocol import SideProtocol
from shared.service.stop_flag import StopFlag

log = logging.getLogger(__name__)

PREFIX = "/v2"
OPEN_PATHS = frozenset({"/v2/health/live", "/v2/health/ready"})
_NEEDS_MORE = frozenset({"regex", "reasoning_gym"})
"""Rules that need a pattern, or the columns of a row."""
_BINARY_HEADER = "inference-header-content-length"

Score = Callable[[list[Prompt], list[CompletionText], RewardInputs], Awaitable[Scores]]
"""Scores the completions of a request. Raises ``StageError``."""


def served_rewards(settings: V2Settings) -> dict[str, RewardSpec]:
    """Rewards by model name: the rules that need no more than texts, and the process's own."""
    rewards: dict[str, RewardSpec] = {
        name: RuleReward(name=name) for name in get_args(RuleName) if name not in _NEEDS_MORE
    }
    if settings.model is not None and settings.reward is not None:
        rewards[settings.model] = settings.reward
    return rewards


def v2_protocol(rewards: Mapping[str, RewardSpec], score: Score) -> SideProtocol:
    """The protocol before ``score``, for the rewards by model name."""
    app = FastAPI(title="rlhfless reward, V2", openapi_url=None)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(StageError, _stage_error)
    _add_information(app, rewards)

    @app.post("/v2/models/{model}/infer")
    async def infer(model: str, request: Request) -> Response:
        reward = _reward(rewards, model)
        if _BINARY_HEADER in request.headers:
            raise InvalidInput("the binary extension is not spoken here: send tensors as JSON")
        asked = read_request(await read_body(request))
        prompts, completions = read_rows(asked)
        inputs = _inputs(prompts, reward)
        stop = StopFlag()
        try:
            async with beside(watch_caller(request, stop)), stop.interrupting():
                scores = await score(prompts, completions, inputs)
        except StageError:
            raise
        except Exception as error:
            log.exception("failed on model %s", model)
            # Its type, but nothing that its message may give away.
            return _error(500, f"the function failed with {type(error).__name__}: see its log")
        by_row = {entry.row_uid: entry.reward for entry in scores.scores}
        log.info("answered %d rows of model %s", len(prompts), model)
        return JSONResponse(
            infer_response(model, asked.id or uuid.uuid4().hex, [by_row[prompt.row_uid] for prompt in prompts])
        )

    refusal = Unauthenticated("send the shared token as 'Authorization: Bearer ...'")
    return SideProtocol(
        prefix=PREFIX, app=app, open_paths=OPEN_PATHS, refusal=lambda: _error(refusal.status, refusal.message)
    )


def _add_information(app: FastAPI, rewards: Mapping[str, RewardSpec]) -> None:
    @app.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.get("/v2")
    async def server() -> dict[str, Any]:
        return {"name": "rlhfless", "version": _version(), "extensions": []}

    @app.get("/v2/models")
    async def models() -> dict[str, list[str]]:
        return {"models": sorted(rewards)}

    @app.get("/v2/models/{model}")
    async def metadata(model: str) -> dict[str, Any]:
        _reward(rewards, model)
        return model_metadata(model)

    @app.get("/v2/models/{model}/ready")
    async def model_ready(model: str) -> dict[str, str | bool]:
        _reward(rewards, model)
        return {"name": model, "ready": True}


def _reward(rewards: Mapping[str, RewardSpec], model: str) -> RewardSpec:
    if model not in rewards:
        raise HTTPException(404, f"there is no model {model!r} here, but {', '.join(sorted(rewards))}")
    return rewards[model]


def _inputs(prompts: list[Prompt], reward: RewardSpec) -> RewardInputs:
    """What the scorer is told. The texts are here already, so it reads neither blob nor tokenizer."""
    return RewardInputs(
        prompts=BlobRef(id="v2/none", num_bytes=0, sha256=sha256(b"").hexdigest()),
        model=ModelRef(path="none"),
        row_uids=tuple(prompt.row_uid for prompt in prompts),
        num_samples=1,
        reward=reward,
    )


def _version() -> str:
    try:
        return version("rlhfless")
    except PackageNotFoundError:
        return "source"


def _error(status: int, message: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": message}, status_code=status, headers=headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"{request.method} {request.url.path}: {error.detail}")


async def _stage_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StageError)
    log.info("refused %s: %s", request.url.path, error.message)
    return _error(error.status, error.message)
