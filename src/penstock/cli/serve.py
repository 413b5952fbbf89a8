"""`penstock serve`: a broker in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from penstock.base.errors import PenstockError
from penstock.base.memory_kernels import keep_freed_memory
from penstock.base.open_files import raise_open_files_limit
from penstock.cli import kernels_notice
from penstock.cli.escapes import printable

LEVELS = ("debug", "info", "warning", "error")
STOPPING = "a signal: stopping; a second one does not wait for the logs"
HURRY = "a second signal: stopping at once"
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"penstock: {message} (see penstock serve --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="penstock serve",
        description="Run a broker until SIGTERM, SIGINT or SIGHUP. Prints `ready PROTOCOL://host:port` on stdout when it serves.",
        allow_abbrev=False,
    )
    parser.add_argument("--data", metavar="DIR", help="directory for the logs (log.dirs)")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where to listen, and what clients are told unless advertised.listeners is --set; port 0 takes a free one",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="a server.properties file, as Kafka's")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="beats every other source; may be repeated"
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="of the log on stderr")
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="least level of what is logged")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs a broker and returns the exit code. Its options are argparse's: the commands' library would double the start."""
    try:
        given = _parser().parse_args(arguments)
    except SystemExit as ended:  # help was given, or a mistake named
        return int(ended.code or 0)
    _open_standard_streams()
    kernels_notice.give()
    gc.disable()  # until the broker serves: what a start makes is no garbage
    from penstock.app.config import BrokerConfig, merge

    _set_up_logging(given.log_format, given.log_level)
    try:
        content = None if given.config is None else _read(given.config)
        listen = given.listen if given.listen is not None or given.config is not None else "127.0.0.1:9092"
        broker_config = BrokerConfig(merge(content, given.data, listen, given.set))
    except OSError as error:
        _complain(f"{given.config}: {error.strerror or error}")
        return 2
    except PenstockError as error:
        _complain(str(error))
        return 2
    return _run(broker_config)


def _open_standard_streams() -> None:
    """A stream that was closed before the start would give its number to a log or a socket."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def _say_ready(*lines: str) -> None:
    try:
        print("\n".join(lines), flush=True)
    except OSError as error:
        logging.getLogger(__name__).info("nobody reads stdout (%s): %s", error.strerror, ", ".join(lines))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains at its end


def _complain(sentence: str) -> None:
    print(f"penstock: {sentence}", file=sys.stderr, flush=True)


def _read(path: Path) -> str:
    """A properties file: Java's are in Latin-1, which never fails; most are UTF-8 today."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _run(broker_config: object) -> int:
    import uvloop

    raise_open_files_limit()
    keep_freed_memory()

    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(broker_config))
    return 1


async def _serve(broker_config: object) -> int:
    from penstock.app.broker import Broker
    from penstock.app.config import BrokerConfig

    assert isinstance(broker_config, BrokerConfig)
    stop = asyncio.Event()
    _heed_signals(asyncio.get_running_loop(), stop)
    broker = Broker(broker_config)
    starting = asyncio.ensure_future(broker.start())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        starting.cancel()  # it may wait for ZooKeeper
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await starting
    except (PenstockError, OSError) as error:
        _complain(str(error))
        await broker.stop()
        return 1
    gc.freeze()  # what a start made stays: no collection walks through it again
    gc.enable()
    await asyncio.sleep(0)  # a signal that came meanwhile is heard of in the loop's next turn
    if not stop.is_set():
        _say_ready(*(f"ready {broker.advertised(bound)}" for bound in broker.endpoints))
    failed = asyncio.ensure_future(broker.failed.wait())
    await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
    complaints = await broker.stop()
    # What comes after a clean end is no reason for another exit code.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    for complaint in complaints:
        _complain(complaint)
    failed.cancel()
    stopped.cancel()
    return 1 if complaints or broker.failed.is_set() else 0


def _heed_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """A first one sets `stop`, a second one ends the process. By Python's own handlers: they are called also while the
    loop is busy with recovering or flushing logs, which is when somebody is in a hurry."""
    has_come = False

    def signalled(*_: object) -> None:
        nonlocal has_come
        if not has_come:
            has_come = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended by itself
                loop.call_soon_threadsafe(stop.set)
            logging.getLogger(__name__).info(STOPPING)
            return
        try:
            logging.getLogger(__name__).warning(HURRY)
            sys.stderr.flush()
        finally:
            signal.raise_signal(signal.SIGKILL)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has SIGHUP
            signal.signal(number, signalled)


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
    """One record, one line: what a client sent can neither begin a line of its own nor speak to a terminal.

    The lines of a trace are set in, for the same reason.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {printable(line)}" for line in lines)


def _set_up_logging(log_format: str, log_level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter() if log_format == "json" else _TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
