"""A rollout function that dies of one row, as of a prompt that takes too much memory, until a file says it is mended.

``python -m tests.e2e.killer_function``; everything else about it is the real function. A dead worker's claim and leases
end sooner than in production, so that nobody waits for them.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import functions.main
from functions.rollout import leased_work
from functions.rollout.app import RolloutHandler
from functions.rollout.engine import NextTurn, SamplingParams, SequenceRequest
from functions.rollout.policy_engine import PolicyEngine
from functions.rollout.torch_engine.engine import TorchEngine
from shared.contracts.stage import Stage
from shared.service import protocol
from shared.service.settings import FunctionSettings

ROW, MENDED, DEATHS = "KILLER_ROW", "KILLER_MENDED", "KILLER_DEATHS"
"""Environment: the deadly row's uid, the file that mends it, the file that gets a line for each death."""


class KillerEngine(TorchEngine):
    """Ends its process instead of starting a sequence of the deadly row."""

    def add(
        self, requests: Sequence[SequenceRequest], params: SamplingParams, next_turn: NextTurn | None = None
    ) -> None:
        """See ``Engine``."""
        deadly = any(request.row_uid == os.environ[ROW] for request in requests)
        if deadly and not Path(os.environ[MENDED]).exists():
            with Path(os.environ[DEATHS]).open("a") as deaths:
                deaths.write(f"{sorted({request.row_uid for request in requests})}\n")
            os._exit(1)
        super().add(requests, params, next_turn)


class KillerRollout(RolloutHandler):
    """The rollout stage on that engine."""

    def __init__(self, settings: FunctionSettings) -> None:
        super().__init__(settings, PolicyEngine(KillerEngine.for_model))


if __name__ == "__main__":
    protocol.CLAIM_TTL_S, protocol.HEARTBEAT_S = 1.0, 0.2
    leased_work.LEASE_TTL_S, leased_work.RENEW_EVERY_S = 1.0, 0.2
    functions.main.HANDLERS[Stage.ROLLOUT] = ("tests.e2e.killer_function", "KillerRollout")
    functions.main.main()
