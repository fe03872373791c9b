"""Routes of one function: look at it, change it."""

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Request, status

from controller.api.auth import AdminOnly
from controller.api.function_models import FunctionChangeRequest, FunctionDetail
from controller.api.request import Service
from controller.platforms.base import FunctionState, FunctionUnknown
from controller.runs.function_swaps import FunctionSwaps
from controller.runs.service import RunService

router = APIRouter(prefix="/v1/functions", tags=["functions"])


def _swaps(request: Request) -> FunctionSwaps:
    return cast(FunctionSwaps, request.app.state.swaps)


Swaps = Annotated[FunctionSwaps, Depends(_swaps)]
FunctionName = Annotated[str, Path(description="The name of its Knative Service.", examples=["rollout"])]


@router.get("/{name}")
async def get_function(name: FunctionName, service: Service, swaps: Swaps) -> FunctionDetail:
    """One function, its replicas, and how its last change has gone."""
    return FunctionDetail.of_both(await _state(service, name), swaps.swaps.get(name))


@router.put("/{name}", status_code=status.HTTP_202_ACCEPTED)
async def change_function(
    name: FunctionName, wanted: FunctionChangeRequest, _: AdminOnly, service: Service, swaps: Swaps
) -> FunctionDetail:
    """Change a function's image, variables or resources. Needs the admin token.

    The answer comes at once; `GET` shows how it goes on. The old revision is drained to zero and gone before the new
    one starts, for both would need the same GPU. The new one gets the requests when it is ready and says that it serves
    the same stages by the same contract; otherwise the old one gets them again.
    """
    state = await _state(service, name)
    return FunctionDetail.of_both(state, await swaps.request(name, wanted.change(), wanted.when))


async def _state(service: RunService, name: str) -> FunctionState:
    states = await service.functions()
    for state in states:
        if state.name == name:
            return state
    known = ", ".join(state.name for state in states) or "none"
    raise FunctionUnknown(f"there is no function of this name; there are: {known}")
