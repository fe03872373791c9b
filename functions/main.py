"""A function's process: the stages that ``RLHFLESS_STAGES`` names, served over HTTP.

Usually one stage; learner, prefill and rollout may share a process and its weights. Run it as
``python -m functions.main``.
"""

import asyncio
import time
from importlib import import_module
from typing import Any

import uvicorn
from fastapi import FastAPI

from shared.contracts.stage import Stage
from shared.observability.logging import log_to_stderr
from shared.service.app import make_app
from shared.service.handler import StageHandler
from shared.service.settings import FunctionSettings

HANDLERS: dict[Stage, tuple[str, str]] = {
    Stage.ROLLOUT: ("functions.rollout.app", "RolloutHandler"),
    Stage.REWARD: ("functions.reward.app", "RewardHandler"),
    Stage.LEARNER: ("functions.learner.app", "LearnerHandler"),
}
"""Where each stage lives. Imported only when it is served: the reward image holds no torch."""


def make_handler(stage: Stage, settings: FunctionSettings) -> StageHandler[Any, Any]:
    """The stage's handler. Raises ``KeyError`` for a stage that has no function yet."""
    module, name = HANDLERS[stage]
    handler: StageHandler[Any, Any] = getattr(import_module(module), name)(settings)
    return handler


def build(settings: FunctionSettings, *, started_at: float) -> FastAPI:
    """The application of this process."""
    handlers = [make_handler(stage, settings) for stage in settings.stages]
    return make_app(settings, handlers, started_at=started_at)


def main() -> None:
    """Serve until SIGTERM, then finish the calls in flight; no graceful timeout cuts them, Knative does in the end."""
    started_at = time.time()
    settings = FunctionSettings.from_environment()
    log_to_stderr(instance=settings.instance)
    server = uvicorn.Server(
        uvicorn.Config(
            build(settings, started_at=started_at),
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
        )
    )
    asyncio.run(server.serve())


if __name__ == "__main__":
    main()
