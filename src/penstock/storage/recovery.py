"""Recovery of one segment after an unclean stop (row S16): what is good is kept, what follows it is cut.

Walks the batches from the segment's first byte, one kernel call a stretch: size, magic, CRC and offsets are checked, both
indexes written anew, and what producers and epochs need to know is noted. Cut bytes are kept beside the segment as `.cut`.
Safe on any thread: it touches one segment's files only. A crash in the middle is recovered by running it again.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from penstock.base.errors import UnsupportedForMessageFormatError
from penstock.base.files import File, Files
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD, STOP_SENTENCES, Stop
from penstock.storage import cuts, names
from penstock.storage.checkpoints import EpochStart
from penstock.storage.harvest import Harvest, Limits, ProducerNotes
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.segment import RELATIVE_OFFSET_MAX
from penstock.storage.stretches import Stretches
from penstock.storage.time_index import TimeIndex

_OLD_HEAD = struct.Struct(">qiIb")  # offset, size, CRC-32, magic: formats 0 and 1
_OLD_SIZE_MIN = 14


class SegmentReport(NamedTuple):
    """What recovery found in one segment."""

    base_offset: int
    end_offset: int
    size_bytes: int
    cut_bytes: int
    reason: str
    """Why it was cut; '' where nothing was."""
    epochs: list[EpochStart]
    producers: ProducerNotes
    kept_as: str = ""
    """The file to which what was cut went; '' where nothing but zeroes was, if anything."""
    overflows: bool = False
    """Good batches follow whose offsets this segment cannot hold: nothing was cut, it has to be split."""

    @property
    def cut_is_padding(self) -> bool:
        """Nothing but zeroes was cut, if anything."""
        return not self.kept_as


def old_format_bytes(file: File, position: int) -> int:
    """Size of the message of format 0 or 1 at `position`; 0 where its own CRC-32 does not prove one."""
    head = file.pread(_OLD_HEAD.size, position)
    if len(head) < _OLD_HEAD.size:
        return 0
    _, size, crc, magic = _OLD_HEAD.unpack(head)
    if magic not in (0, 1) or not _OLD_SIZE_MIN <= size <= file.size() - position - LOG_OVERHEAD:
        return 0
    return LOG_OVERHEAD + size if zlib.crc32(file.pread(size - 4, position + LOG_OVERHEAD + 4)) == crc else 0


def refuse_old_format(file: File, position: int) -> None:
    """Raises where a message of format 0 or 1 begins, by its own CRC-32: it is good, and cutting it would lose it.

    Without that proof it is a torn header like any other, and no reason to refuse.
    """
    if old_format_bytes(file, position):
        raise UnsupportedForMessageFormatError(
            f"{file.path} holds record format 0 or 1 at position {position}, which is not supported; "
            "let Kafka 3.x rewrite it first (nothing was cut)"
        )


def recover_segment(
    files: Files, directory: str, base_offset: int, index_interval_bytes: int, log_start_offset: int = 0
) -> SegmentReport:
    """Makes one segment whole. Its indexes are rebuilt, its tail is cut at the first bad batch.

    Producers are noted from `log_start_offset` on.
    """
    path = f"{directory}/{names.segment_file(base_offset, names.LOG)}"
    offset_index = OffsetIndex(files, f"{directory}/{names.segment_file(base_offset, names.OFFSET_INDEX)}", base_offset)
    time_index = TimeIndex(files, f"{directory}/{names.segment_file(base_offset, names.TIME_INDEX)}", base_offset)
    file = files.open(path)
    try:
        refuse_old_format(file, 0)
        for index in (offset_index, time_index):
            if files.exists(index.path):
                files.truncate(index.path, 0)
        size_before = file.size()
        entries_max = size_before // max(index_interval_bytes, HEADER_BYTES) + 4
        offset_index.open_active(entries_max * 8)
        time_index.open_active((entries_max + 1) * 12)
        limits = Limits(base_offset + RELATIVE_OFFSET_MAX, log_start_offset, index_interval_bytes)
        harvest = Harvest(base_offset, limits, offset_index, time_index)
        position = _walk(file, size_before, harvest)
        harvest.finish()
        cut_bytes = 0 if harvest.overflows else size_before - position
        kept_as = None
        if cut_bytes:
            kept_as = cuts.keep_tail(files, file, position)
            file.truncate(position)
    finally:
        file.close()
        offset_index.close()
        time_index.close()
    return SegmentReport(
        base_offset,
        harvest.end_offset,
        position,
        cut_bytes,
        harvest.reason,
        harvest.epochs,
        harvest.producers,
        (kept_as or "").rpartition("/")[2],
        harvest.overflows,
    )


def _walk(file: File, size_bytes: int, harvest: Harvest) -> int:
    """Feeds the whole file to `harvest`; where its good batches end."""
    stretches = Stretches(file, size_bytes)
    while data := stretches.read():
        end, stop = harvest.take(data, stretches.position)
        final = stretches.took(data, end, stop)
        if final is not Stop.COMPLETE:
            if final is not stop:
                harvest.reason = STOP_SENTENCES[final]
            if stop is Stop.OLD_MAGIC:
                refuse_old_format(file, stretches.position)
            break
    return stretches.position
