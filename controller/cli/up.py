"""``rlhfless up``: the local stack in the foreground."""

import asyncio
import logging
from importlib import import_module

from rich.text import Text

from controller.cli.session import ExitCode, fail, result_console
from controller.settings import ControllerSettings, SettingsInvalid
from shared.observability.logging import log_to_stderr

log = logging.getLogger(__name__)


def serve(*, verbose: bool) -> ExitCode:
    """Run Redis, the functions and the controller until Ctrl-C or SIGTERM."""
    log_to_stderr("INFO" if verbose else "WARNING")
    # By name: the command is a client of the controller, and all of it but this line stays below the composition root.
    stack = import_module("controller.main")
    try:
        asyncio.run(stack.serve_local(ControllerSettings.from_environment(), on_ready=_announce))
    except SettingsInvalid as error:
        return fail(str(error), ExitCode.USAGE)
    except KeyboardInterrupt:
        return ExitCode.OK
    except Exception as error:
        log.info("the stack ended", exc_info=error)
        return fail(f"{error or type(error).__name__} (--verbose says more)", ExitCode.FAILURE)
    return ExitCode.OK


def _announce(url: str) -> None:
    console = result_console()
    console.print(Text(f"rlhfless is up at {url}  (API: {url}/docs)", style="bold"), soft_wrap=True)
    console.print("start a run with 'rlhfless train FILE.yaml'; end everything with Ctrl-C", soft_wrap=True)
