"""What recovery and repair cut off stays beside the log as `.cut`: bytes of a tail, or whole segments. Nothing is overwritten.

Names: `LOG.POSITION.cut` for a tail, `LOG.cut` for a segment, `LOG.POSITION.2.cut` and so on where such a name is taken. No
start reads them and nothing here removes them.
"""

from __future__ import annotations

from penstock.base.files import File, Files
from penstock.storage import names

_COPY_BYTES = 4 * 1024 * 1024


def keep_tail(files: Files, file: File, position: int) -> str | None:
    """Copies a file from `position` on, synced; the copy's path, None for a tail of zeroes, which is not data.

    Where that very tail was kept already, as by a recovery that was cut short, the copy is the one that stands there.
    """
    length = file.size() - position
    if _is_zero(file, position, length):
        return None
    number = 1
    while files.exists(target := _path(f"{file.path}.{position}", number)):
        if _is_copy(files, target, file, position, length):
            return target
        number += 1
    copy = files.create(target)
    try:
        copied = 0
        while copied < length:
            data = file.pread(min(_COPY_BYTES, length - copied), position + copied)
            copy.pwrite(data, copied)
            copied += len(data)
        copy.sync()
    except OSError:
        copy.close()
        files.remove(target)
        raise
    copy.close()
    return target


def set_aside(files: Files, path: str) -> str:
    """Renames a whole file; the path it has then. The caller syncs the directory."""
    number = 1
    while files.exists(target := _path(path, number)):
        number += 1
    files.rename(path, target)
    return target


def set_segment_aside(files: Files, directory: str, base_offset: int) -> str:
    """Renames a segment's log; its indexes and snapshot, which are of no use to anyone then, go. The log's path then."""
    for kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.SNAPSHOT):
        path = f"{directory}/{names.segment_file(base_offset, kind)}"
        if files.exists(path):
            files.remove(path)
    return set_aside(files, f"{directory}/{names.segment_file(base_offset, names.LOG)}")


def _path(stem: str, number: int) -> str:
    return f"{stem}{names.CUT}" if number == 1 else f"{stem}.{number}{names.CUT}"


def _is_zero(file: File, position: int, length: int) -> bool:
    end = position + length
    while position < end:
        data = file.pread(min(_COPY_BYTES, end - position), position)
        if not data or data.strip(b"\0"):
            return not data
        position += len(data)
    return True


def _is_copy(files: Files, path: str, file: File, position: int, length: int) -> bool:
    other = files.open_read(path)
    try:
        if other.size() != length:
            return False
        compared = 0
        while compared < length:
            data = file.pread(min(_COPY_BYTES, length - compared), position + compared)
            if other.pread(len(data), compared) != data:
                return False
            compared += len(data)
        return True
    finally:
        other.close()
