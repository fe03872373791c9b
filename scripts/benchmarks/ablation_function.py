"""The rollout function whose completions have recorded lengths: the real one, but for the engine's ends.

Run as ``functions.main`` is. ``RLHFLESS_FORCED_LENGTHS`` names a JSON file: lengths by row, one per sample.
"""

import json
import os
from pathlib import Path

from functions import main
from functions.rollout.app import RolloutHandler
from functions.rollout.engine import Engine
from functions.rollout.policy_engine import PolicyEngine
from functions.rollout.torch_engine.engine import TorchEngine
from scripts.benchmarks.ablation_forcing import ForcedLengths
from shared.contracts.stage import Stage
from shared.service.settings import FunctionSettings

LENGTHS = "RLHFLESS_FORCED_LENGTHS"


class ForcedRolloutHandler(RolloutHandler):
    """Rollout with forced lengths."""

    def __init__(self, settings: FunctionSettings) -> None:
        lengths: dict[str, list[int]] = json.loads(Path(os.environ[LENGTHS]).read_text())

        def make_engine(model: str, *_: object) -> Engine:
            return ForcedLengths(TorchEngine.for_model(model), lambda row_uid, sample: lengths[row_uid][sample])

        super().__init__(settings, PolicyEngine(make_engine))


if __name__ == "__main__":
    main.HANDLERS[Stage.ROLLOUT] = (ForcedRolloutHandler.__module__, ForcedRolloutHandler.__name__)
    main.main()
