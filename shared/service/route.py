"""One stage's route: a request becomes a call, the protocol's reply or error becomes the answer."""

import logging
import time
from typing import Any

from fastapi import Request, Response

from shared.contracts.call import CallKey, StageCall
from shared.contracts.errors import StageError
from shared.observability.metrics import CALL_SECONDS, CALLS, CALLS_IN_FLIGHT
from shared.service.beside import beside
from shared.service.errors import problem_response, unexpected_response
from shared.service.handler import StageHandler
from shared.service.protocol import StageProtocol
from shared.service.replica import Replica
from shared.service.request import read_call
from shared.service.stop_flag import StopFlag

log = logging.getLogger(__name__)


class StageRoute:
    """Answers the calls of one stage, counts them and writes a line about each."""

    def __init__(self, handler: StageHandler[Any, Any], replica: Replica) -> None:
        self._stage = handler.stage
        self._call_type = StageCall[handler.inputs]  # type: ignore[name-defined]  # a type that is a value here
        self._protocol = StageProtocol(handler, replica)

    async def serve(self, request: Request) -> Response:
        """Serve one call."""
        began = time.perf_counter()
        with CALLS_IN_FLIGHT.labels(self._stage).track_inprogress():
            response = await self._answer(request)
        CALLS.labels(self._stage, str(response.status_code)).inc()
        CALL_SECONDS.labels(self._stage).observe(time.perf_counter() - began)
        return response

    async def _answer(self, request: Request) -> Response:
        key: CallKey | None = None
        began = time.perf_counter()
        try:
            call = await read_call(request, self._stage, self._call_type)
            key, stop = call.key, StopFlag()
            async with beside(watch_caller(request, stop)):
                reply = await self._protocol.serve(call, stop)
        except StageError as error:
            log.info("refused %s: %s", key or self._stage, error.message, extra=self._fields(key, code=error.code))
            return problem_response(error)
        except Exception as error:
            log.exception("failed on %s", key or self._stage, extra=self._fields(key))
            return unexpected_response(error)
        log.info("answered %s in %.3f s", key, time.perf_counter() - began, extra=self._fields(key))
        return Response(reply, media_type="application/json")

    def _fields(self, key: CallKey | None, **more: str) -> dict[str, object]:
        of_call = {"run": key.run, "step": key.step} if key is not None else {}
        return {"stage": str(self._stage), **of_call, **more}


async def watch_caller(request: Request, stop: StopFlag) -> None:
    """Stop computing when the caller is gone: the platform then counts this replica as idle."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stop.set("the caller is gone")
