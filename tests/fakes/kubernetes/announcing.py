"""Stage functions that also say what they are, as every real function does at ``/v1/info``."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.platforms.base import PlatformReply
from controller.platforms.simulated.function_spec import ReplicaView, StageFunction
from shared.contracts.info import CONTRACT_VERSION
from shared.contracts.stage import Stage


@dataclass
class Announcing:
    """Wraps stage functions. What a revision announces may be changed by its name."""

    functions: Mapping[Stage, StageFunction]
    says: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields by function or revision, over the usual ones; ``status`` is that of the answer."""
    asked: list[str] = field(default_factory=list)
    """Revision of every answer to ``/v1/info``."""
    authorizations: set[str] = field(default_factory=set)

    def answers(self) -> dict[Stage, StageFunction]:
        """The functions to give to a platform."""
        return {stage: self._answering(stage, function) for stage, function in self.functions.items()}

    def _answering(self, stage: Stage, function: StageFunction) -> StageFunction:
        async def answer(path: str, body: bytes, headers: Mapping[str, str], replica: ReplicaView) -> PlatformReply:
            if path != "/v1/info":
                return await function(path, body, headers, replica)
            await asyncio.sleep(0.01)
            self.asked.append(replica.revision)
            self.authorizations.add(headers.get("authorization", ""))
            told = {
                "stages": [stage.value],
                "contract_version": CONTRACT_VERSION,
                "instance": replica.instance,
                "revision": replica.revision,
                **self.says.get(replica.revision.rpartition("-")[0], {}),
                **self.says.get(replica.revision, {}),
            }
            return PlatformReply(status=told.pop("status", 200), headers={}, body=json.dumps(told).encode())

        return answer
