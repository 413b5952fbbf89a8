"""The demo's writer, a process of its own, because it is going to be killed.

`python -m penstock.cli.log_demo_writer DIRECTORY RECORDS` appends records from the log's end on, and writes the end offset to
stdout, eight bytes, after each append that the log has taken: that is its acknowledgement.
"""

from __future__ import annotations

import os
import struct
import sys

from penstock.base.clock import SystemClock
from penstock.base.errors import PenstockError
from penstock.base.files import SystemFiles
from penstock.cli import log_demo_records
from penstock.storage.log_directories import LogDirectories

ACKNOWLEDGEMENT = struct.Struct(">q")


def write(directory: str, records: int) -> None:
    config = log_demo_records.config(records)
    directories = LogDirectories([directory], SystemFiles(), SystemClock(), config_for=lambda _partition: config)
    directories.open()
    log = directories.get(log_demo_records.PARTITION) or directories.create(log_demo_records.PARTITION, config)
    while log.end_offset < records:
        count = min(log_demo_records.BATCH_RECORDS, records - log.end_offset)
        log.append_as_leader(log_demo_records.batch(log.end_offset, count), leader_epoch=0)
        log.set_high_watermark(log.end_offset)
        os.write(sys.stdout.fileno(), ACKNOWLEDGEMENT.pack(log.end_offset))
    complaints = directories.close()
    if complaints:
        sys.exit("; ".join(complaints))


if __name__ == "__main__":
    try:
        write(sys.argv[1], int(sys.argv[2]))
    except BrokenPipeError:
        sys.exit(1)  # nobody listens any more
    except (PenstockError, OSError) as problem:
        sys.exit(f"penstock: {problem}")
