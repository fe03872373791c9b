"""The API as one ASGI application over the run service."""

from collections.abc import Callable, Sequence

from controller.api import (
    checkpoint_routes,
    dataset_routes,
    function_routes,
    run_routes,
    schedule_routes,
    system_routes,
)
from controller.api.auth import ApiAuth, Tokens
from controller.api.errors import add_error_handlers
from controller.api.openapi import DescribedApi
from controller.api.request import Pace
from controller.runs.function_swaps import FunctionSwaps
from controller.runs.service import RunService
from shared.service.auth import HEALTH_PATHS

OPEN_PATHS = HEALTH_PATHS | {"/docs", "/docs/oauth2-redirect", "/openapi.json"}

DESCRIPTION = """
Start, watch and end training runs. Errors are one shape everywhere: a stable `code`, a `message` that says what to do,
and for bad input the `problems`, each with its field, its reason and a suggestion.
"""


def make_api(
    service: RunService,
    *,
    token: str | None,
    admin_token: str | None = None,
    swaps: FunctionSwaps,
    pace: Pace | None = None,
    waiting_for: Callable[[], Sequence[str]] = tuple,
) -> DescribedApi:
    """The API over ``service`` and the changes of functions. With a ``token``, every route but health and documentation
    wants it as a bearer; the ``admin_token`` will do as well, and functions are changed with that one only.

    ``waiting_for``: what runs cannot be driven without and is not there yet.

    Streams end when the client leaves or the run has ended: the server should be given a short time for its shutdown.
    """
    app = DescribedApi(
        title="rlhfless", version="1", description=DESCRIPTION.strip(), redoc_url=None, redirect_slashes=False
    )
    app.state.service = service
    app.state.swaps = swaps
    app.state.waiting_for = waiting_for
    app.state.pace = pace or Pace()
    app.add_middleware(ApiAuth, tokens=Tokens(user=token, admin=admin_token), open_paths=OPEN_PATHS)
    add_error_handlers(app)
    for routes in (run_routes, schedule_routes, checkpoint_routes, dataset_routes, function_routes, system_routes):
        app.include_router(routes.router)
    return app
