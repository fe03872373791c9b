"""``rlhfless up``: the local stack in the foreground."""

import asyncio
import logging
import signal
from importlib import import_module

from rich.text import Text

from controller.cli.session import ExitCode, fail, result_console
from controller.settings import ControllerSettings, SettingsInvalid
from shared.observability.logging import log_to_stderr

log = logging.getLogger(__name__)


def serve(*, verbose: bool) -> ExitCode:
    """Run the stack until Ctrl-C or SIGTERM, then end it in order: on this machine Redis, the functions and the
    controller; with ``RLHFLESS_PLATFORM=knative`` the controller alone."""
    log_to_stderr("INFO" if verbose else "WARNING")
    # A line for every call to a function and to the cluster says nothing that the controller does not say better.
    logging.getLogger("httpx").setLevel("WARNING")
    try:
        asyncio.run(_serve(ControllerSettings.from_environment()))
    except SettingsInvalid as error:
        return fail(str(error), ExitCode.USAGE)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return ExitCode.OK
    except Exception as error:
        log.info("the stack ended", exc_info=error)
        return fail(f"{str(error) or type(error).__name__} (--verbose says more)", ExitCode.FAILURE)
    return ExitCode.OK


async def _serve(settings: ControllerSettings) -> None:
    # One cancellation, from the outside in. A server that handles signals itself raises them again when it is done:
    # SIGTERM would then end this process before its children are, and SIGINT would cancel the cleaning up.
    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    if serving is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, serving.cancel)
    # By name: the command is a client of the controller, and all of it but this line stays below the composition root.
    await import_module("controller.main").serve(settings, on_ready=_announce)


def _announce(url: str) -> None:
    console = result_console()
    console.print(Text(f"rlhfless is up at {url}  (API: {url}/docs)", style="bold"), soft_wrap=True)
    console.print("start a run with 'rlhfless train FILE.yaml'; end everything with Ctrl-C", soft_wrap=True)
