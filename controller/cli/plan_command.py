"""``rlhfless plan``: how a run's step was scheduled and what came of it, or what a config's steps would take."""

from collections.abc import Mapping
from typing import Any

from controller.cli.client import ControllerClient
from controller.cli.plan_tables import expectation_report, plan_report
from controller.cli.run_commands import print_json
from controller.cli.session import ExitCode, result_console
from controller.cli.train_command import Config, located, located_here


async def show(client: ControllerClient, run: str, *, step: int | None, as_json: bool) -> ExitCode:
    """The plans of one step of a run."""
    record = await client.plan(run, step=step)
    if as_json:
        print_json(record)
    else:
        result_console().print(plan_report(record))
    return ExitCode.OK


async def expect(client: ControllerClient, config: Config, *, as_json: bool) -> ExitCode:
    """What a step with the config is expected to take and to cost. Data files go where those of a start would."""
    config = await located(client, config, upload=None)
    return _said(await client.expect(config.document, config.overrides), as_json=as_json)


async def expect_here(config: Config, *, as_json: bool) -> ExitCode:
    """The same without a controller: by this machine's manifests, and defaults where only an earlier run would tell."""
    # Imported where it is needed: the planner brings numpy.
    from controller.cli.offline import expectation_here

    config = located_here(config)
    return _said(await expectation_here(config.document, config.overrides), as_json=as_json)


def _said(expected: Mapping[str, Any], *, as_json: bool) -> ExitCode:
    if as_json:
        print_json(expected)
    else:
        result_console().print(expectation_report(expected))
    return ExitCode.OK
