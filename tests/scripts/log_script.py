"""Runs a golden script over one partition's log: plain-text commands, then `---`, then what they have to say.

A word of `append` is a batch, its records joined by commas: `a` (key and value), `k:v`, `k:` (a tombstone). Options are
`name=value`. The disk is one that forgets what was not synced; the clock stands still but for `tick MS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_checks import Row, check_log, rows_of

from penstock.base.clock import ManualClock
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.records.build import Record, build_batch, build_end_marker
from penstock.storage import names
from penstock.storage.answers import Bound
from penstock.storage.config import log_config
from penstock.storage.load import LoadReport
from penstock.storage.log_directories import LogDirectories
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin
from penstock.storage.timestamps import offset_for_timestamp
from penstock.storage.upkeep import compact, remove_files, retain

HOME = "/logs"
PARTITION = TopicPartition("t", 0)
T0 = 1_700_000_000_000


class LogScript:
    def __init__(self) -> None:
        self._files = ForgetfulFiles()
        self._clock = ManualClock(T0)
        self._settings = {"segment.bytes": "10000", "index.interval.bytes": "0", "segment.index.bytes": "1000"}
        self._directories: LogDirectories | None = None
        self._epoch = 0
        self._clean_offset: int | None = None
        self.said: list[str] = []

    def run(self, line: str) -> None:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word and ":" not in word)
        plain = [word for word in words if "=" not in word or ":" in word]
        method: Callable[[list[str], dict[str, str]], None] = getattr(self, f"do_{command.replace('-', '_')}")
        try:
            method(plain, options)
        except PenstockError as error:
            self.said.append(f"refused {type(error).__name__.removesuffix('Error')}: {error}")

    @property
    def _log(self) -> PartitionLog:
        assert self._directories is not None, "open first"
        return self._directories.logs[PARTITION]

    # Opening and ending.
    def do_open(self, _words: list[str], options: dict[str, str]) -> None:
        self._settings.update(options)
        config = log_config(self._settings)
        self._directories = LogDirectories([HOME], self._files, self._clock, config_for=lambda _partition: config)
        for report in self._directories.open():
            self._tell(report)
        if PARTITION not in self._directories.logs:
            self._directories.create(PARTITION, config)
        self._files.sync_directory("")
        check_log(self._log, self._files)

    def _tell(self, report: LoadReport) -> None:
        for segment in report.recovered:
            line = f"recovered segment={segment.base_offset} end_offset={segment.end_offset}"
            if segment.cut_bytes:
                line += f" cut_bytes={segment.cut_bytes} ({segment.reason})"
            self.said.append(line)
        for base, name in zip(report.cut_segments, report.cut_names, strict=True):
            self.said.append(f"set_aside segment={base} as={name}")
        if not report.recovered:
            self.said.append("clean")

    def do_close(self, _words: list[str], _options: dict[str, str]) -> None:
        assert self._directories is not None
        assert self._directories.close() == []

    def do_kill(self, _words: list[str], _options: dict[str, str]) -> None:
        """The process ends; what it wrote is in the page cache."""
        self._files.kill()

    def do_crash(self, _words: list[str], options: dict[str, str]) -> None:
        """The power fails. Of what was not synced, the active segment keeps its first so many bytes."""
        path = self._log.log.active.path(names.LOG)
        written = self._files.read(path)
        self._files.forget_everything_unsynced()
        kept = self._files.size(path)
        file = self._files.open(path)
        file.pwrite(written[kept : kept + int(options.get("keep-unsynced", 0))], kept)
        file.sync()

    def do_damage(self, words: list[str], options: dict[str, str]) -> None:
        """`damage 0.log flip=70`, `cut=40` or `remove=yes`: a file by its name, leading zeroes left out."""
        path = f"{HOME}/t-0/{re.sub(r'^[0-9]+', lambda found: f'{int(found[0]):020d}', words[0])}"
        if "remove" in options:
            self._files.remove(path)
            return
        data = bytearray(self._files.read(path))
        file = self._files.open(path)
        if "flip" in options:
            data[int(options["flip"])] ^= 1
            file.pwrite(data, 0)
        else:
            file.truncate(int(options["cut"]))
        file.sync()

    def do_tick(self, words: list[str], _options: dict[str, str]) -> None:
        self._clock.advance(int(words[0]))

    def do_configure(self, _words: list[str], options: dict[str, str]) -> None:
        self._settings.update(options)
        self._log.update_config(log_config(self._settings))

    # Writing.
    def do_append(self, words: list[str], options: dict[str, str]) -> None:
        for word in words:
            batch = build_batch(
                [self._record(text, options) for text in word.split(",")],
                producer_id=int(options.get("producer", -1)),
                producer_epoch=int(options.get("producer-epoch", 0)) if "producer" in options else -1,
                base_sequence=int(options.get("sequence", 0)) if "producer" in options else -1,
                transactional="transaction" in options,
            )
            result = self._log.append_as_leader(batch, leader_epoch=self._epoch)
            if result.duplicate:
                self.said.append(f"duplicate offsets={result.base_offset}..{result.last_offset}")
        if options.get("replicated", "yes") == "yes":
            self._log.set_high_watermark(self._log.end_offset)

    def _record(self, text: str, options: dict[str, str]) -> Record:
        key, colon, value = text.partition(":")
        stamp = self._clock.wall_ms() + int(options.get("time", 0))
        return stamp, key.encode(), (value.encode() or None) if colon else key.encode(), ()

    def do_end(self, words: list[str], options: dict[str, str]) -> None:
        """`end commit producer=9` or `end abort producer=9`."""
        marker = build_end_marker(
            words[0] == "commit",
            int(options["producer"]),
            int(options.get("producer-epoch", 0)),
            0,
            self._clock.wall_ms(),
        )
        self._log.append_as_leader(marker, leader_epoch=self._epoch, origin=Origin.COORDINATOR)
        self._log.set_high_watermark(self._log.end_offset)

    def do_lead(self, words: list[str], _options: dict[str, str]) -> None:
        self._epoch = int(words[0])
        self._log.assign_epoch(self._epoch)

    def do_high_watermark(self, words: list[str], _options: dict[str, str]) -> None:
        self._log.set_high_watermark(int(words[0]))

    def do_roll(self, _words: list[str], _options: dict[str, str]) -> None:
        self._log.roll()

    def do_flush(self, _words: list[str], _options: dict[str, str]) -> None:
        assert self._directories is not None
        self._log.flush()
        self._directories.checkpoint()

    # Trimming.
    def do_truncate(self, words: list[str], _options: dict[str, str]) -> None:
        assert self._directories is not None
        self._directories.truncate(PARTITION, int(words[0]))

    def do_delete_records(self, words: list[str], _options: dict[str, str]) -> None:
        self._log.delete_records(int(words[0]))

    def do_retain(self, _words: list[str], _options: dict[str, str]) -> None:
        self.said.append(f"retention removed={retain(self._log, self._clock)}")

    def do_remove_due(self, _words: list[str], _options: dict[str, str]) -> None:
        remove_files(self._files, self._log.removals.take_due())

    def do_compact(self, _words: list[str], _options: dict[str, str]) -> None:
        self._log.flush()
        found = compact(self._log, self._files, self._clock, last_clean_offset=self._clean_offset, map_bytes=4096)
        self._clean_offset = self._clean_offset if found is None else found
        self.said.append("nothing dirty" if found is None else f"compacted below={found}")

    def do_expire(self, words: list[str], _options: dict[str, str]) -> None:
        self.said.append(f"expired producers={self._log.expire_producers(int(words[0]))}")

    # Looking.
    def do_segments(self, _words: list[str], _options: dict[str, str]) -> None:
        self.said.append("segments " + " ".join(str(segment.base_offset) for segment in self._log.log.segments))

    def do_offsets(self, _words: list[str], _options: dict[str, str]) -> None:
        log = self._log
        self.said.append(
            f"start={log.log_start_offset} recovery_point={log.recovery_point} stable={log.last_stable_offset} "
            f"high_watermark={log.high_watermark} end={log.end_offset}"
        )

    def do_read(self, _words: list[str], options: dict[str, str]) -> None:
        bound = Bound(options.get("bound", "log_end"))
        rows = rows_of(self._log, from_offset=int(options["from"]) if "from" in options else None, bound=bound)
        self.said.append(" ".join(["read", *map(_row, rows)]))

    def do_index(self, words: list[str], _options: dict[str, str]) -> None:
        segment = self._log.log.floor(int(words[0]))
        assert segment is not None
        offsets, times = segment.indexes()
        self.said.append(
            f"index offsets={','.join(str(offsets.entry(slot).offset) for slot in range(offsets.entries)) or '-'} "
            f"times={','.join(str(times.entry(slot).timestamp - T0) for slot in range(times.entries)) or '-'}"
        )

    def do_epochs(self, _words: list[str], _options: dict[str, str]) -> None:
        entries = self._log.leader_epochs.entries
        self.said.append(" ".join(["epochs", *(f"{entry.epoch}@{entry.start_offset}" for entry in entries)]))

    def do_epoch_end(self, words: list[str], _options: dict[str, str]) -> None:
        found = self._log.leader_epochs.end_offset_for(int(words[0]), self._log.end_offset)
        self.said.append(f"epoch_end {found.epoch}@{found.start_offset}")

    def do_producers(self, _words: list[str], _options: dict[str, str]) -> None:
        found = [
            f"{producer.producer_id}/{producer.epoch}:{producer.last_sequence}"
            for producer in sorted(self._log.producers.values(), key=lambda producer: producer.producer_id)
        ]
        self.said.append(" ".join(["producers", *found]))

    def do_aborted(self, _words: list[str], _options: dict[str, str]) -> None:
        found = self._log.aborted_transactions(self._log.log_start_offset, self._log.end_offset)
        self.said.append(
            " ".join(
                ["aborted", *(f"{entry.producer_id}:{entry.first_offset}..{entry.last_offset}" for entry in found)]
            )
        )

    def do_find_time(self, words: list[str], _options: dict[str, str]) -> None:
        found = offset_for_timestamp(self._log, T0 + int(words[0]))
        self.said.append(
            "found nothing" if found is None else f"found offset={found.offset} time={found.timestamp - T0}"
        )

    def do_files(self, words: list[str], _options: dict[str, str]) -> None:
        """Those whose names end so, leading zeroes left out."""
        found = [re.sub(r"\b0+(?=\d)", "", name) for name in self._files.list(f"{HOME}/t-0")]
        self.said.append(" ".join(["files", *(name for name in found if name.endswith(tuple(words)))]))

    def finish(self) -> None:
        """Said at the end of every script, after everything that must hold of any log was looked at."""
        check_log(self._log, self._files)
        self.said.append(f"end_offset={self._log.end_offset}")


def _row(row: Row) -> str:
    if row.control:
        return f"{row.offset}=marker"
    key, value = (row.key or b"").decode(), None if row.value is None else row.value.decode()
    return f"{row.offset}={key}" if value == key else f"{row.offset}={key}:{'' if value is None else value}"
