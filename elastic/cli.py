"""The command line: `elastic run | worker | status | report | metrics | audit | chaos | doctor`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elastic import __version__
from elastic.errors import ConfigError, ExitCode, JobError

app = typer.Typer(
    name="elastic",
    help="Elastic, fault-tolerant training for Keras 3 on Horovod and Ray.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Job = Annotated[Path, typer.Argument(help="A YAML file, or your own Python script that calls elastic.fit.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key, such as epochs=3 or data.source=mnist.npz."),
]
RunDirectory = Annotated[
    Path | None, typer.Option(help="Where the run keeps its files; an unfinished run there goes on.")
]
Extra = Annotated[Path | None, typer.Option("--config", help="A YAML file with the options of a script.")]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"elastic {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def run(job: Job, sets: Sets = None, run_dir: RunDirectory = None, config: Extra = None) -> None:
    """Train a job: start here. Exit code 0: goal reached, 1: failed, 2: configuration, 130/143: stopped."""
    from elastic.jobfile import load
    from elastic.launch.run import run_job

    raise typer.Exit(run_job(job, load(job, sets or (), config), run_dir, sets or [], config))


@app.command()
def worker(job: Job, sets: Sets = None, run_dir: RunDirectory = None, config: Extra = None) -> None:
    """Run one slot of a job: what a launcher such as horovodrun starts."""
    from elastic.agent.start import start
    from elastic.jobfile import dump, load

    found = load(job, sets or (), config)
    raise typer.Exit(start(job, found.name, found.model_dump(mode="json", by_alias=True), dump(found), run_dir))


@app.command()
def warm(
    run_dir: Annotated[Path, typer.Argument(help="The run directory of the job, on a file system of all its hosts.")],
    host: Annotated[
        str | None, typer.Option(help="As the launcher calls this host; by default its own name.", show_default=False)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only tell whether a standby is ready: exit code 1 if none is.")
    ] = False,
) -> None:
    """Keep a standby warm on a host that the job may have later, so that it joins at once; until Ctrl-C."""
    from socket import gethostname

    from elastic.agent.warm import standbys
    from elastic.agent.warm import warm as keep_warm
    from elastic.jobfile import load
    from elastic.rundir import RunDir

    directory = RunDir(run_dir.resolve())
    if check:
        ready = standbys(directory, host or gethostname())
        typer.echo(f"{ready} ready")
        raise typer.Exit(ExitCode.GOAL_REACHED if ready else ExitCode.FAILED)
    config = load(directory.config).model_dump(mode="json", by_alias=True)
    raise typer.Exit(keep_warm(directory, host or gethostname(), config))


Seen = Annotated[
    Path | None,
    typer.Argument(metavar="[RUN_DIR]", help="A run directory; by default the newest in runs/.", show_default=False),
]


@app.command()
def status(
    run_dir: Seen = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again each second, until the run has ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show how a run stands: progress, pace, workers, recoveries, where the time went."""
    from elastic.views.load import newest
    from elastic.views.status import show

    show(run_dir or newest(), watch=watch, as_json=as_json)


@app.command()
def report(
    run_dir: Seen = None,
    output: Annotated[
        Path | None, typer.Option(help="Where to; by default report.html in the run directory.", show_default=False)
    ] = None,
) -> None:
    """Write a run up as one HTML file that needs no network, and as PNG plots beside it."""
    from elastic.views.load import newest
    from elastic.views.report import write

    for path in write(run_dir or newest(), output):
        typer.echo(path)


@app.command()
def metrics(
    run_dir: Seen = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 9464,
    address: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0: everywhere.")] = "127.0.0.1",
) -> None:
    """Serve a run's metrics to Prometheus, under any launcher, until Ctrl-C."""
    from elastic.views.load import newest
    from elastic.views.metrics import serve_until_told

    serve_until_told(run_dir or newest(), address, port)


@app.command()
def audit(
    run_dir: Annotated[Path, typer.Argument(help="The run directory of a job that ran with audit: true.")],
) -> None:
    """Prove from the workers' records that every sample was used once an epoch; exit code 1 if not."""
    from elastic.rundir import RunDir
    from elastic.views.audit import audit as judge
    from elastic.views.audit import tell

    folder = RunDir(run_dir).audit
    if not any(folder.glob("*.jsonl")):
        raise ConfigError(f"{folder}: no records; run the job with audit: true (--set audit=true) to have them written")
    try:
        found = judge(folder)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    typer.echo("\n".join(tell(found)))
    raise typer.Exit(ExitCode.GOAL_REACHED if found.exact else ExitCode.FAILED)


@app.command()
def chaos(
    plan: Annotated[Path, typer.Argument(help="A YAML file with faults, such as configs/chaos/smoke.yaml.")],
    job: Job,
    sets: Sets = None,
    run_dir: RunDirectory = None,
    config: Extra = None,
    seed: Annotated[int | None, typer.Option(help="Draw with another seed than the plan's.")] = None,
) -> None:
    """Break a job by a plan and judge how it lived through it; exit code 1 when a fault was not survived.

    The job runs under `elastic run`, with audit: true and what the plan sets, until all faults are over.

    Every fault is undone at the end, on Ctrl-C too. The verdict is also chaos.json of the run directory.
    """
    from elastic.chaos.run import run_chaos

    raise typer.Exit(run_chaos(plan, job, sets or [], run_dir, config, seed))


@app.command()
def doctor() -> None:
    """Check this machine: versions, Horovod's build, network, disk, GPU; say what to do."""
    from elastic.doctor import examine, show

    raise typer.Exit(show(examine()))


def run_cli() -> int:
    """Run the command line; return the exit code."""
    try:
        app()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except ConfigError as error:
        print(f"elastic: {error}", file=sys.stderr)
        return ExitCode.CONFIG
    except JobError as error:
        print(f"elastic: {error}", file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.GOAL_REACHED
