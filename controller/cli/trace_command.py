"""``rlhfless trace``: what every completion of a run was and where it ran, for a simulator to replay."""

import sys

from controller.cli.client import ControllerClient
from controller.cli.session import ExitCode, fail


async def trace(client: ControllerClient, run: str, *, from_step: int) -> ExitCode:
    """Write the run's trace to standard output, as JSON lines."""
    out = sys.stdout.buffer
    num_bytes = 0
    async for chunk in client.trace(run, from_step=from_step):
        num_bytes += out.write(chunk)
    out.flush()
    if num_bytes == 0:
        text = f"run {run} has no trace from step {from_step} on: no such step is done yet, or trainer.trace is false"
        return fail(text, ExitCode.FAILURE)
    return ExitCode.OK
