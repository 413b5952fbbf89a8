"""`penstock pipeline …`: the signatures of its commands. What they do stands in `pipeline_run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.cluster import Json

app = typer.Typer(help="Run pipelines over topics with Spark.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="The pipeline, in YAML or Python.", show_default=False)]
Master = Annotated[str, typer.Option(help="Spark's master: local[*] is this machine, spark://… or yarn a cluster.")]
Noisy = Annotated[bool, typer.Option("--noisy", help="Show what Spark's JVM prints.")]


@app.command()
def init(file: File) -> None:
    """Write a pipeline to begin with; by the file's end in YAML or in Python."""
    from penstock.cli.pipeline_run import run_init

    raise typer.Exit(run_init(file))


@app.command()
def check(file: File, master: Master = "local[1]", noisy: Noisy = False) -> None:
    """Find mistakes without running: unknown columns, bad SQL, topics that are not there."""
    from penstock.cli.pipeline_run import run_check

    raise typer.Exit(run_check(file, master, is_noisy=noisy))


@app.command()
def run(file: File, master: Master = "local[*]", noisy: Noisy = False, json: Json = False) -> None:
    """Run it from where it stopped last time, until it is done or told to stop."""
    from penstock.cli.pipeline_run import run_run

    raise typer.Exit(run_run(file, master, is_noisy=noisy, as_json=json))


@app.command()
def status(file: File, json: Json = False) -> None:
    """What its run does, or did when it last ran."""
    from penstock.cli.output import open_output
    from penstock.cli.pipeline_run import run_status

    raise typer.Exit(run_status(file, open_output(as_json=json)))
