"""`penstock`: the entry point. Commands are thin here and import what they need when they run, so that help is quick.

Exit codes: 0 it went well, 1 it failed (or found what it looks for), 2 it was called wrongly. What the world does to us is
one sentence on stderr, never a traceback.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
import typer.main
from typer.exceptions import TyperException

from penstock.base.errors import PenstockError
from penstock.cli.configs import app as configs_app
from penstock.cli.elect import elect
from penstock.cli.groups import app as groups_app
from penstock.cli.local_cluster import app as local_cluster_app
from penstock.cli.log import app as log_app
from penstock.cli.messages import consume, produce
from penstock.cli.pipeline import app as pipeline_app
from penstock.cli.topics import app as topics_app
from penstock.cli.transactions import app as transactions_app
from penstock.cli.zookeeper import zookeeper

OK, FAILED, USAGE = 0, 1, 2
_INTERRUPTED = 130

app = typer.Typer(
    name="penstock",
    help="A Kafka-compatible log broker, and tools for the files of its logs.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(log_app, name="log")
app.add_typer(topics_app, name="topics")
app.add_typer(groups_app, name="groups")
app.add_typer(configs_app, name="configs")
app.add_typer(transactions_app, name="transactions")
app.add_typer(pipeline_app, name="pipeline")
app.command()(produce)
app.command()(consume)
app.command()(elect)
app.add_typer(local_cluster_app, name="cluster")
app.command()(zookeeper)


def _print_version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit(OK)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def doctor(
    log_dir: Annotated[list[str] | None, typer.Option(help="A log directory to look at; may be repeated.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Say what this machine offers: Python, compiled kernels, Java, limits, directories."""
    from penstock.cli.doctor import run
    from penstock.cli.output import open_output

    raise typer.Exit(run(log_dir or [], open_output(as_json=json)))


@app.command()
def demo(
    records: Annotated[int, typer.Option(min=2_400, help="How many orders and clicks are made.")] = 120_000,
    short: Annotated[bool, typer.Option("--short", help="A tenth of them, for CI.")] = False,
    data: Annotated[
        str | None, typer.Option(help="An empty or new directory to work in; default: a temporary one.")
    ] = None,
    picture: Annotated[str, typer.Option(help="Where the picture of throughput and lag goes.")] = "penstock-demo.png",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the broker up to play with, and the files.")] = False,
) -> None:
    """Watch the whole at work: broker, generator, pipeline on Spark, exactly once, proved at the end."""
    from penstock.cli.demo import run

    raise typer.Exit(run(records // 10 if short else records, data, picture, keep=keep))


def _register_serve() -> None:
    """`serve` brings the whole broker with it: it is imported when it is called, and reads its options itself."""
    if importlib.util.find_spec("penstock.cli.serve") is None:
        return

    @app.command(
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
        help="Run a broker in the foreground.",
    )
    def serve(context: typer.Context) -> None:
        from penstock.cli.serve import main as run

        raise typer.Exit(run(context.args))


_register_serve()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a path may hold what no encoding knows
    try:
        code = typer.main.get_command(app).main(
            args=None if arguments is None else list(arguments), prog_name="penstock", standalone_mode=False
        )
        sys.stdout.flush()
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = "penstock" if context is None else context.command_path
        if message := error.format_message():
            _complain(f"{message.rstrip('.')} (see {command} --help)")
        return error.exit_code
    except typer.Abort:
        return _complain("interrupted")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        return FAILED
    except OSError as error:
        return _complain(_os_sentence(error))
    except PenstockError as error:
        return _complain(str(error))
    except UnicodeEncodeError as error:  # an argument in another encoding than the system's
        return _complain(f"{error.object!a} is no text that can be sent")
    if code == _INTERRUPTED:
        return _complain("interrupted")
    return code if isinstance(code, int) else OK


def _open_closed_streams() -> None:
    """A stream that was closed before the start is nobody's: what comes from it is nothing, what goes to it is not read."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 for as long as the process lives


def _complain(sentence: str) -> int:
    print(f"penstock: {sentence}", file=sys.stderr)
    return FAILED


def _os_sentence(error: OSError) -> str:
    """The file first, then what is wrong with it in the system's words."""
    reason = (error.strerror or str(error)).lower()
    if error.errno == errno.ENOSPC:
        reason = "the disk is full"
    return f"{error.filename}: {reason}" if error.filename is not None else reason
