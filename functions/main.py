"""A function's process: the stages that ``RLHFLESS_STAGES`` names, served over HTTP.

Usually one stage; learner, prefill and rollout may share a process and its weights. Run it as
``python -m functions.main``.
"""

import asyncio
import sys
from importlib import import_module
from typing import Any

import uvicorn
from fastapi import FastAPI

from shared.contracts.stage import Stage
from shared.observability.logging import log_to_stderr
from shared.observability.process_start import process_started_at
from shared.service.app import make_app
from shared.service.handler import StageHandler
from shared.service.settings import FunctionSettings, SettingsInvalid

HANDLERS: dict[Stage, tuple[str, str]] = {
    Stage.PREFILL: ("functions.prefill.app", "PrefillHandler"),
    Stage.ROLLOUT: ("functions.rollout.app", "RolloutHandler"),
    Stage.REWARD: ("functions.reward.app", "RewardHandler"),
    Stage.REFERENCE: ("functions.reference.app", "ReferenceHandler"),
    Stage.CRITIC: ("functions.critic.app", "CriticHandler"),
    Stage.LEARNER: ("functions.learner.app", "LearnerHandler"),
}
"""Where each stage lives. Imported only when it is served: the reward image holds no torch."""


KEEP_ALIVE_S = 120
"""Longer than proxies keep idle connections: one that we close while a call is on its way is a call lost."""


def make_handler(stage: Stage, settings: FunctionSettings) -> StageHandler[Any, Any]:
    """The stage's handler."""
    module, name = HANDLERS[stage]
    handler: StageHandler[Any, Any] = getattr(import_module(module), name)(settings)
    return handler


def build(settings: FunctionSettings, *, started_at: float) -> FastAPI:
    """The application of this process. Raises ``SettingsInvalid``."""
    handlers = [make_handler(stage, settings) for stage in settings.stages]
    return make_app(settings, handlers, started_at=started_at)


def main() -> None:
    """Serve until SIGTERM, then finish the calls in flight; no graceful timeout cuts them, Knative does in the end."""
    try:
        settings = FunctionSettings.from_environment()
        log_to_stderr(instance=settings.instance)
        app = build(settings, started_at=process_started_at())
    except SettingsInvalid as error:
        sys.exit(f"functions.main: {error}")
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
        )
    )
    asyncio.run(server.serve())


if __name__ == "__main__":
    main()
