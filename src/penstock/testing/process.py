"""The process behind `BrokerProcess`: serves until SIGTERM, or until whoever started it closes its stdin by dying.

Says `ready HOST:PORT` on stdout, and where it listens besides; takes faults on stdin, one JSON object a line, and answers each with `ok` or a sentence.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from typing import Any

import uvloop

from penstock.app.broker import Broker
from penstock.app.config import BrokerConfig
from penstock.base.errors import PenstockError
from penstock.base.files import Files
from penstock.base.memory_kernels import keep_freed_memory
from penstock.base.open_files import raise_open_files_limit
from penstock.testing.faults import Faults


def obey(faults: Faults, line: str) -> str:
    command: dict[str, Any] = json.loads(line)
    set_fault = getattr(faults, command.pop("fault"))
    try:
        set_fault(**command)
    except ValueError as error:
        return str(error)
    return "ok"


async def serve(config: BrokerConfig, files: Files | None) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    faults = Faults()
    broker = Broker(config, intercept=lambda dispatch: faults.wrap(dispatch, loop.call_later), files=files)
    try:
        await broker.start()
    except (PenstockError, OSError) as error:
        print(f"penstock: {error}", file=sys.stderr)
        await broker.stop()
        return 1
    first = broker.advertised(broker.endpoints[0])
    others = "".join(f" {bound.host}:{bound.port}" for bound in broker.endpoints[1:])
    print(f"ready {first.host}:{first.port}{others}", flush=True)
    pending = b""

    def read() -> None:
        nonlocal pending
        data = os.read(0, 65536)
        if not data:
            loop.remove_reader(0)
            stop.set()
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            print(obey(faults, line.decode()), flush=True)

    loop.add_reader(0, read)
    failed = asyncio.ensure_future(broker.failed.wait())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
    complaints = await broker.stop()
    for complaint in complaints:
        print(f"penstock: {complaint}", file=sys.stderr)
    failed.cancel()
    stopped.cancel()
    return 1 if complaints or broker.failed.is_set() else 0


def main(files: Files | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    raise_open_files_limit()
    keep_freed_memory()
    try:
        config = BrokerConfig(json.loads(sys.argv[1]))
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(config, files))


if __name__ == "__main__":
    sys.exit(main())
