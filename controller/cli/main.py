"""The ``rlhfless`` command. What a command needs is imported when it runs, so that the rest starts at once."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="rlhfless",
    help="Serverless, synchronous RLHF: start a local stack, start runs, watch them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

functions = typer.Typer(name="functions", pretty_exceptions_enable=False)
app.add_typer(functions)

Function = Annotated[str, typer.Argument(metavar="NAME", help="The function's name.", show_default=False)]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


@app.callback()
def connect(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="Address of the controller; RLHFLESS_URL, else the one that 'up' started.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Its token; RLHFLESS_TOKEN or RLHFLESS_TOKEN_FILE keep it out of sight.")
    ] = None,
) -> None:
    """Keep what was said about the controller for the command that follows."""
    context.obj = (url, token)


@app.command()
def up(verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False) -> None:
    """Run Redis, the functions and the controller on this machine, in the foreground."""
    from controller.cli.up import serve

    raise typer.Exit(serve(verbose=verbose))


@app.command()
def train(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The run's config.", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[a.b=c]...", help="Values on top of it.", show_default=False)
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="An algorithm's keys, under the config's own: grpo, ppo...")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, print the whole config.")] = False,
    follow: Annotated[bool, typer.Option("--follow/--detach", help="Show the progress until the run ends.")] = True,
    as_json: AsJson = False,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Name of this request: the same one again returns the same run.")
    ] = None,
    upload: Annotated[
        bool | None,
        typer.Option("--upload/--no-upload", help="Send data files; done if the address is another machine's."),
    ] = None,
) -> None:
    """Start a run."""
    from controller.cli import train_command
    from controller.cli.session import execute

    named = [f"preset={preset}"] if preset is not None else []
    config = train_command.read_config(file, [*named, *(overrides or [])])
    if dry_run:
        execute(context, lambda client: train_command.check(client, config, upload=upload, as_json=as_json))
    else:
        options = train_command.Options(follow=follow, as_json=as_json, idempotency_key=idempotency_key, upload=upload)
        execute(context, lambda client: train_command.start(client, config, options))


@app.command()
def runs(
    context: typer.Context,
    state: Annotated[list[str] | None, typer.Option(help="Only runs in this state; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many, the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the runs, the newest first."""
    from controller.cli import run_commands
    from controller.cli.session import execute

    execute(context, lambda client: run_commands.list_runs(client, state or [], limit, as_json=as_json))


@app.command()
def show(context: typer.Context, run: Run, as_json: AsJson = False) -> None:
    """Show what a run is, has come to and has cost."""
    from controller.cli import run_commands
    from controller.cli.session import execute

    execute(context, lambda client: run_commands.show(client, run, as_json=as_json))


@app.command()
def logs(
    context: typer.Context,
    run: Run,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
) -> None:
    """Print what happened in a run."""
    from controller.cli import run_commands
    from controller.cli.session import execute

    execute(context, lambda client: run_commands.logs(client, run, follow=follow))


@app.command()
def plan(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="RUN|FILE.yaml", help="A run's id, or a config.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[a.b=c]...", help="Values on top of a config.", show_default=False)
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Of a run: which step; the latest.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a run's step was scheduled and what came of it, or what a config's steps would take and cost."""
    from controller.cli import plan_command, train_command
    from controller.cli.session import execute

    file = Path(target)
    if file.suffix in (".yaml", ".yml", ".json") or file.is_file():
        if step is not None:
            raise typer.BadParameter("a config has no steps yet: leave it out", param_hint="--step")
        config = train_command.read_config(file, overrides or [])
        execute(
            context,
            lambda client: plan_command.expect(client, config, as_json=as_json),
            without=lambda: plan_command.expect_here(config, as_json=as_json),
        )
    if overrides:
        raise typer.BadParameter("values are for a config, and this is a run", param_hint="[a.b=c]...")
    execute(context, lambda client: plan_command.show(client, target, step=step, as_json=as_json))


@app.command()
def trace(
    context: typer.Context,
    run: Run,
    from_step: Annotated[int, typer.Option(min=0, help="Only steps from this one on.")] = 0,
) -> None:
    """Write what each completion of a run was and where it ran, as JSON lines."""
    from controller.cli import trace_command
    from controller.cli.session import execute

    execute(context, lambda client: trace_command.trace(client, run, from_step=from_step))


@app.command()
def cancel(context: typer.Context, run: Run, as_json: AsJson = False) -> None:
    """End a run. It can be resumed."""
    from controller.cli import run_commands
    from controller.cli.session import execute

    execute(context, lambda client: run_commands.cancel(client, run, as_json=as_json))


@app.command()
def resume(context: typer.Context, run: Run, as_json: AsJson = False) -> None:
    """Queue an ended run again: it goes on where it stood."""
    from controller.cli import run_commands
    from controller.cli.session import execute

    execute(context, lambda client: run_commands.resume(client, run, as_json=as_json))


@app.command()
def export(
    context: typer.Context,
    run: Run,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the model.", show_default=False)],
    step: Annotated[
        int | None, typer.Option(min=0, help="After how many steps; the newest checkpoint.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also into a folder that is not empty.")] = False,
) -> None:
    """Write a checkpoint's model as a folder that transformers loads."""
    from controller.cli import export_command
    from controller.cli.session import execute

    execute(context, lambda client: export_command.export(client, run, folder, step=step, force=force))


@app.command()
def delete(context: typer.Context, run: Run) -> None:
    """Delete an ended run's record and data. Its checkpoints on disk stay."""
    from controller.cli import run_commands
    from controller.cli.session import execute

    execute(context, lambda client: run_commands.delete(client, run))


@functions.callback(invoke_without_command=True)
def list_without_a_command(context: typer.Context, as_json: AsJson = False) -> None:
    """List, show and change the functions."""
    if context.invoked_subcommand is None:
        list_functions(context, as_json)


@functions.command("list")
def list_functions(context: typer.Context, as_json: AsJson = False) -> None:
    """List the functions and their replicas."""
    from controller.cli import functions_command
    from controller.cli.session import execute

    execute(context, lambda client: functions_command.list_functions(client, as_json=as_json))


@functions.command("show")
def show_function(context: typer.Context, name: Function, as_json: AsJson = False) -> None:
    """Show one function, its revisions and its last change."""
    from controller.cli import functions_command
    from controller.cli.session import execute

    execute(context, lambda client: functions_command.show_function(client, name, as_json=as_json))


@functions.command("set")
def set_function(
    context: typer.Context,
    name: Function,
    image: Annotated[str | None, typer.Option(help="With its tag or digest.", show_default=False)] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be repeated.")] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="May be repeated.")] = None,
    cpu: Annotated[str | None, typer.Option(help="Such as 500m.", show_default=False)] = None,
    memory: Annotated[str | None, typer.Option(help="Such as 2Gi.", show_default=False)] = None,
    gpus: Annotated[int | None, typer.Option(min=0, show_default=False)] = None,
    when: Annotated[
        str, typer.Option(help="now, idle (after the run that goes on) or step_boundary (after its step).")
    ] = "now",
    wait: Annotated[bool, typer.Option("--wait/--detach", help="Wait until it is over.")] = True,
    as_json: AsJson = False,
) -> None:
    """Change a function's image, variables or resources. Needs the admin token."""
    from controller.cli import functions_command
    from controller.cli.session import execute

    wanted = functions_command.Wanted(
        image=image,
        env=env or [],
        unset=unset or [],
        requests={"cpu": cpu, "memory": memory},
        gpus=gpus,
        when=when,
    )
    execute(context, lambda client: functions_command.set_function(client, name, wanted, wait=wait, as_json=as_json))


@app.command()
def conformance(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the function answers.", show_default=False)],
    stage: Annotated[str, typer.Option(help="Which stage it is to serve.", show_default=False)],
    host: Annotated[
        str | None, typer.Option(help="The function's name, where URL is an ingress.", show_default=False)
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="The functions' token; RLHFLESS_TOKEN_FILE.", show_default=False)
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option(help="The function's store; REDIS_URL, and REDIS_PASSWORD.", show_default=False)
    ] = None,
    blob_url: Annotated[str | None, typer.Option(help="Its blobs; RLHFLESS_BLOB_URL.", show_default=False)] = None,
    model: Annotated[str | None, typer.Option(help="A model folder as the function sees it.")] = "/models/demo",
    model_here: Annotated[
        Path | None, typer.Option(help="The same folder on this machine.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that whatever answers at a URL keeps a stage's contract. Works in the store, and leaves nothing there."""
    from controller.cli import conformance_command
    from controller.cli.session import ExitCode, fail
    from controller.conformance.settings import ConformanceInvalid, ConformanceSettings

    try:
        settings = ConformanceSettings.read(
            url=url,
            stage=stage,
            host=host,
            token=context.obj[1],
            token_file=token_file,
            redis_url=redis_url,
            blob_url=blob_url,
            model=model,
            model_here=model_here,
        )
    except ConformanceInvalid as error:
        raise typer.Exit(fail(str(error), ExitCode.USAGE)) from error
    raise typer.Exit(conformance_command.try_and_report(settings, as_json=as_json))


@app.command()
def top(
    context: typer.Context,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one table and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print JSON instead.")] = False,
) -> None:
    """Watch functions, replicas and what they cost, live."""
    from controller.cli import top_command
    from controller.cli.session import execute

    if as_json and not once:
        raise typer.BadParameter("a live display is no JSON: add --once", param_hint="--json")
    execute(context, lambda client: top_command.top(client, interval_s=interval, once=once, as_json=as_json))


def main() -> None:
    """Entry point of the command."""
    app()
