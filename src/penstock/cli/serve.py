"""`penstock serve`: a broker in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.errors import PenstockError
from penstock.base.open_files import raise_open_files_limit


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


HURRY = "a second signal: stopping at once"


def serve(
    data: Annotated[str | None, typer.Option(help="Directory for the logs (log.dirs).")] = None,
    listen: Annotated[str | None, typer.Option(help="HOST:PORT to listen on; port 0 takes a free one.")] = None,
    config: Annotated[Path | None, typer.Option(help="A server.properties file, as Kafka's.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; beats every other source.")] = None,
    log_format: Annotated[LogFormat, typer.Option(help="Of the log on stderr.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="Least level of what is logged.")] = LogLevel.INFO,
) -> None:
    """Run a broker until SIGTERM or SIGINT. Prints `ready PROTOCOL://host:port` on stdout when it serves."""
    from penstock.app.config import BrokerConfig, merge

    _set_up_logging(log_format, log_level)
    try:
        content = None if config is None else _read(config)
        given = listen if listen is not None or config is not None else "127.0.0.1:9092"
        broker_config = BrokerConfig(merge(content, data, given, set_ or ()))
    except (PenstockError, OSError) as error:
        typer.echo(f"penstock: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(_run(broker_config))


def _read(path: Path) -> str:
    """A properties file: Java's are in Latin-1, which never fails; most are UTF-8 today."""
    content = path.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _run(broker_config: object) -> int:
    import uvloop

    raise_open_files_limit()

    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(broker_config))
    return 1


async def _serve(broker_config: object) -> int:
    from penstock.app.broker import Broker
    from penstock.app.config import BrokerConfig

    assert isinstance(broker_config, BrokerConfig)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def signalled() -> None:
        if stop.is_set():
            logging.getLogger(__name__).warning(HURRY)
            sys.stderr.flush()
            signal.raise_signal(signal.SIGKILL)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    broker = Broker(broker_config)
    try:
        await broker.start()
    except (PenstockError, OSError) as error:
        typer.echo(f"penstock: {error}", err=True)
        await broker.stop()
        return 1
    gc.collect()
    gc.freeze()  # what a start made stays: no collection walks through it again
    for bound in broker.endpoints:
        print(f"ready {broker.advertised(bound)}", flush=True)
    failed = asyncio.ensure_future(broker.failed.wait())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
    complaints = await broker.stop()
    # What comes after a clean end is no reason for another exit code.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    for complaint in complaints:
        typer.echo(f"penstock: {complaint}", err=True)
    failed.cancel()
    stopped.cancel()
    return 1 if complaints or broker.failed.is_set() else 0


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time_ms": round(record.created * 1000),
            "level": record.levelname.lower(),
            "room": record.name.removeprefix("penstock."),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _TextFormatter(logging.Formatter):
    """One record, one line: what a client sent cannot begin a line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.exc_info:
            return text
        return text.replace("\r", "\\r").replace("\n", "\\n")


def _set_up_logging(log_format: LogFormat, log_level: LogLevel) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if log_format is LogFormat.JSON
        else _TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
