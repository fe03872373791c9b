"""The platform port in virtual time: stages are functions of this process, replicas are bookkeeping."""

import asyncio
from collections.abc import Mapping, Sequence

from controller.platforms.base import (
    FunctionState,
    FunctionUnknown,
    FunctionUnreachable,
    PlatformFigures,
    PlatformReply,
    ReplicaLife,
)
from controller.platforms.simulated.clock import virtual_now
from controller.platforms.simulated.function import Function, Hold
from controller.platforms.simulated.function_spec import FunctionSpec, StageFunction
from controller.platforms.stage_routing import function_of
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage


class SimulatedPlatform:
    """Runs stage functions on replicas that start, wait, drain and die in virtual time (``clock.run_virtual``)."""

    def __init__(self, specs: Sequence[FunctionSpec], functions: Mapping[Stage, StageFunction]) -> None:
        """``functions`` answer the calls of the stages that the specs name. Needs the running loop: minima start."""
        self._specs = tuple(specs)
        self._functions = {spec.name: Function(spec) for spec in specs}
        self._stages = {spec.name: spec.stages for spec in specs}
        self._answers = functions

    def now(self) -> float:
        """Unix time in virtual seconds."""
        return virtual_now()

    async def sleep(self, duration_s: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(duration_s)

    def figures(self) -> PlatformFigures:
        """What the slowest of the functions costs. See ``Platform.figures``."""
        return PlatformFigures(
            cold_start_s=max((spec.cold_start_s for spec in self._specs), default=0.0),
            drain_s=max((spec.drain_s for spec in self._specs), default=0.0),
        )

    async def invoke(
        self,
        stage: Stage,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        beside: Stage | None = None,
    ) -> PlatformReply:
        """Queue the request at the stage's function and run it on a replica. See ``Platform.invoke``."""
        function = self._function_of(stage, beside)
        try:
            async with asyncio.timeout(timeout_s):
                return await function.answer(self._answers[stage], path, body, headers)
        except TimeoutError as error:
            raise FunctionUnreachable(f"{stage}: no answer within {timeout_s:g} s") from error

    async def scale(self, stage: Stage, num_replicas: int, *, hold_until: float) -> None:
        """Raise the minimum of the stage's function. See ``Platform.scale``."""
        self._function_of(stage).hold(stage, Hold(num_replicas, hold_until) if num_replicas > 0 else None)

    async def retire(self, stage: Stage, instances: Sequence[InstanceId]) -> None:
        """Let these replicas leave before the others. See ``Platform.retire``."""
        self._function_of(stage).retire(instances)

    async def release(self, stage: Stage) -> None:
        """End the function's replicas; requests that run or wait are answered 503. See ``Platform.release``."""
        self._function_of(stage).release()

    async def replicas(self) -> Sequence[ReplicaLife]:
        """Lives of all replicas there ever were."""
        return [life for function in self._functions.values() for life in function.lives()]

    async def functions(self) -> Sequence[FunctionState]:
        """All functions and their state."""
        return [function.state() for function in self._functions.values()]

    def kill(self, instance: str, *, answered: bool = True) -> None:
        """End a replica without warning. Its callers get a 502, or, unless ``answered``, ``FunctionUnreachable``.

        Raises ``KeyError`` if no living replica has this name.
        """
        for function in self._functions.values():
            for replica in function.replicas:
                if replica.instance == instance and replica.is_alive:
                    replica.kill("killed by signal 9", answered=answered)
                    return
        raise KeyError(instance)

    def _function_of(self, stage: Stage, beside: Stage | None = None) -> Function:
        name = function_of(self._stages, stage, beside=beside)
        if name is None:
            raise FunctionUnknown(f"no function serves the stage {stage}")
        return self._functions[name]
