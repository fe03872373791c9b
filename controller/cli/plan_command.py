"""``rlhfless plan``: how a run's step was scheduled and what came of it, or what a config's steps would take."""

from controller.cli.client import ControllerClient
from controller.cli.plan_tables import expectation_report, plan_report
from controller.cli.run_commands import print_json
from controller.cli.session import ExitCode, result_console
from controller.cli.train_command import Config, located


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
    expected = await client.expect(config.document, config.overrides)
    if as_json:
        print_json(expected)
    else:
        result_console().print(expectation_report(expected))
    return ExitCode.OK
