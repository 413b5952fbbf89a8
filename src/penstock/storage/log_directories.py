"""Log directories (row S17): where partitions live, who may open them, and what is remembered between starts.

Per directory: `.lock` keeps other processes out; `.kafka_cleanshutdown` says that everything was flushed (removed before
anything is loaded, so that a crash while loading counts as unclean, KAFKA-10471); four checkpoints hold recovery points,
high watermarks, log starts and how far compaction came. A directory that fails goes offline, and the others go on.
Who may call: the app, from one thread; loading and recovery run on the threads of `jobs`, the last flushes on those of `closing_jobs`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import NamedTuple

from penstock.base.clock import Clock
from penstock.base.errors import CorruptFileError, LogDirectoryError, PenstockError, StorageError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition, check_topic_name
from penstock.base.jobs import InlineJobs, Jobs
from penstock.base.open_files import sealed_files_max
from penstock.storage import checkpoints, names
from penstock.storage.config import LogConfig, log_config
from penstock.storage.directory_contents import Remembered, owner_of, partitions_in, read_offsets, read_remembered
from penstock.storage.directory_state import DirectoryState
from penstock.storage.load import LoadReport, LoadRequest, load_partition
from penstock.storage.new_logs import NewLogs, Wanted
from penstock.storage.offset_files import FrozenOffsets
from penstock.storage.partition_log import PartitionLog
from penstock.storage.recovery import SegmentReport
from penstock.storage.segment import OpenFiles
from penstock.storage.upkeep import remove_files


class Recovery(Enum):
    """What is recovered when a directory is opened."""

    IF_UNCLEAN = "if_unclean"
    """From the recovery points on, unless the clean marker is there."""
    ALWAYS = "always"
    """The same, whatever the marker says."""
    FROM_START = "from_start"
    """Every segment."""


class _Opening:
    """What opening one directory has done so far, from whatever thread: needed where it is refused half way."""

    __slots__ = ("logs", "recovered_segments")

    def __init__(self) -> None:
        self.logs: list[PartitionLog] = []
        self.recovered_segments = 0


class Remaining(NamedTuple):
    """What is left to do while a directory is opened: gauges (row S16)."""

    logs: int
    segments: int
    """To be recovered, of the logs that are being loaded now."""


class LogDirectories:
    """All logs of a broker. `open` loads them; `close` flushes them and leaves the clean marker."""

    def __init__(
        self,
        paths: Iterable[str],
        files: Files,
        clock: Clock,
        *,
        config_for: Callable[[TopicPartition], LogConfig] | None = None,
        jobs: Jobs | None = None,
        closing_jobs: Jobs | None = None,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        jitter_for: Callable[[LogConfig], int] = lambda _config: 0,
        open_files_max: int | None = None,
        node_id: int | None = None,
        recovery: Recovery = Recovery.IF_UNCLEAN,
    ) -> None:
        self._files = files
        self._clock = clock
        self._config_for = config_for or (lambda _partition: log_config())
        self._jobs = jobs or InlineJobs()
        self._closing_jobs = closing_jobs or self._jobs
        self._new_id = new_id
        self._jitter_for = jitter_for
        self._open_files = OpenFiles(sealed_files_max() if open_files_max is None else open_files_max)
        self._paths = list(paths)
        self.node_id = node_id
        """Whose directories these must be; None: anybody's."""
        self._recovery = recovery
        self.cluster_id: str | None = None
        """As the directories have it in `meta.properties`; None where none of them says."""
        self.directories: list[DirectoryState] = []
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._home: dict[TopicPartition, DirectoryState] = {}
        self._new_logs = NewLogs(files, self.open_log)
        self.offline: dict[str, str] = {}
        """Directories that could not be opened or failed, and why."""
        self._to_forget: dict[TopicPartition, DirectoryState] = {}
        """Deleted, and still named in that directory's checkpoints, until the job that `delete` gave has run."""
        self._renamed: dict[str, DirectoryState] = {}
        """Directories in which logs got other names since they were synced."""
        self._openings: list[_Opening] = []
        self._left: dict[str, dict[TopicPartition, int]] = {}
        """Of each directory that was opened: segments left to recover by partition, -1 where it is loaded."""

    # Opening.
    def open(self, progress: Callable[[TopicPartition, SegmentReport], None] = lambda _p, _r: None) -> list[LoadReport]:
        """Locks and loads every directory. One that cannot be used goes offline; with none left it is an error.

        `progress` is told of each segment that was recovered, from the thread that did it; `remaining` then counts down.
        """
        reports: list[LoadReport] = []
        if len({path.rstrip("/") for path in self._paths}) < len(self._paths):
            raise LogDirectoryError(f"a log directory is named twice: {', '.join(self._paths)}")
        try:
            for path in self._paths:
                try:
                    reports += self._open_directory(path.rstrip("/") or "/", progress)
                except OSError as error:
                    self.offline[path] = f"log directory {path} cannot be used: {error}"
        except BaseException as error:
            self._let_go(error)
            raise
        if not self.directories:
            raise LogDirectoryError("; ".join(self.offline.values()) or "no log directory is configured")
        self._openings = []  # from here on nothing is given back as it was found
        return reports

    def remaining(self) -> dict[str, Remaining]:
        """What each directory's opening still has to do; safe to ask from any thread."""
        return {
            path: Remaining(
                sum(1 for segments in left.values() if segments >= 0),
                sum(max(segments, 0) for segments in left.values()),
            )
            for path, left in list(self._left.items())
        }

    def _let_go(self, error: BaseException) -> None:
        """Gives back what was opened before another directory was refused."""
        for state, opening in zip(self.directories, self._openings, strict=True):
            self._abandon(state, opening, error)
        self.directories, self.logs, self._home, self._openings = [], {}, {}, []

    def _open_directory(self, path: str, progress: Callable[[TopicPartition, SegmentReport], None]) -> list[LoadReport]:
        files = self._files
        if not files.exists(path):
            files.make_directory(path)
        elif not files.is_directory(path):
            raise LogDirectoryError(f"{path} is not a directory")
        partitions = self._partitions_in(path)
        cluster_id = self._owner_of(path)
        state = DirectoryState(path, files.lock(f"{path}/{names.LOCK}"), files)
        opening = _Opening()
        try:
            for name in filter(names.is_deleted_directory, files.list(path)):
                self.remove_tree(f"{path}/{name}")
            marker = f"{path}/{names.CLEAN_SHUTDOWN}"
            if files.exists(marker):
                state.marker = files.read(marker)
                state.was_clean = self._recovery is Recovery.IF_UNCLEAN
                files.remove(marker)
                files.sync_directory(path)
            remembered = read_remembered(files, path)
            state.cleaner_offsets = read_offsets(self._files, f"{path}/{names.CLEANER_OFFSETS}")
            requests = [self._request(path, partition, state.was_clean, remembered) for partition in partitions]
            self._left[path] = {request.partition: 0 for request in requests}
            reports = []
            for log, report in self._load(requests, state, opening, progress):
                reports.append(report)
                self._left[path][log.partition] = -1
        except BaseException as error:
            self._left.pop(path, None)
            self._abandon(state, opening, error)
            raise
        for log in sorted(opening.logs, key=lambda log: log.partition):
            self.logs[log.partition] = log
            self._home[log.partition] = state
        self.directories.append(state)
        self._openings.append(opening)
        self.cluster_id = cluster_id
        return reports

    def _abandon(self, state: DirectoryState, opening: _Opening, error: BaseException) -> None:
        """Gives a directory back as it was found: with its clean marker, where nothing in it was changed."""
        for log in opening.logs:
            log.abandon()
        try:
            if state.marker is not None and not opening.recovered_segments and isinstance(error, PenstockError):
                checkpoints.write_atomically(self._files, f"{state.path}/{names.CLEAN_SHUTDOWN}", state.marker)
        finally:
            state.lock.release()

    def _owner_of(self, path: str) -> str | None:
        """The cluster that a directory belongs to; LogDirectoryError where that, or its node, is another than ours."""
        try:
            node_id, cluster_id = owner_of(self._files, path)
        except CorruptFileError:
            if self.node_id is not None:
                raise
            return self.cluster_id  # a tool is nobody's
        if self.node_id is not None and node_id is not None and node_id != str(self.node_id):
            raise LogDirectoryError(
                f"{path} belongs to node {node_id} ({names.META_PROPERTIES}), this is node {self.node_id}; "
                "choose another directory or another node.id"
            )
        if cluster_id is not None and self.cluster_id is not None and cluster_id != self.cluster_id:
            raise LogDirectoryError(
                f"{path} belongs to cluster {cluster_id}, {self.directories[0].path} to cluster {self.cluster_id}"
            )
        return cluster_id or self.cluster_id

    def _load(
        self,
        requests: list[LoadRequest],
        state: DirectoryState,
        opening: _Opening,
        progress: Callable[[TopicPartition, SegmentReport], None],
    ) -> Iterable[tuple[PartitionLog, LoadReport]]:
        """One partition's segments are spread over the threads, or many partitions: whichever there is more of."""
        spread_partitions = len(requests) > 1
        left = self._left[state.path]

        def started(partition: TopicPartition, segments: int) -> None:
            left[partition] = segments

        def recovered(partition: TopicPartition, report: SegmentReport) -> None:
            left[partition] = max(left[partition] - 1, 0)
            opening.recovered_segments += 1
            progress(partition, report)

        def load(request: LoadRequest) -> tuple[PartitionLog, LoadReport]:
            log, report = load_partition(
                request,
                self._files,
                self._clock,
                state.health,
                self._open_files,
                jobs=InlineJobs() if spread_partitions else self._jobs,
                jitter_for=self._jitter_for,
                started=partial(started, request.partition),
                progress=partial(recovered, request.partition),
            )
            opening.logs.append(log)
            return log, report

        return (self._jobs if spread_partitions else InlineJobs()).run(partial(load, request) for request in requests)

    def _partitions_in(self, path: str) -> list[TopicPartition]:
        partitions = partitions_in(self._files, path)
        for partition in partitions:
            if partition in self._home:
                raise LogDirectoryError(
                    f"{partition} lies in {self._home[partition].path} and in {path}; remove the one that is stale"
                )
        return partitions

    def _request(self, path: str, partition: TopicPartition, clean: bool, remembered: Remembered) -> LoadRequest:
        config = self._config_for(partition)
        from_start = self._recovery is Recovery.FROM_START
        return LoadRequest(
            partition=partition,
            directory=f"{path}/{names.partition_directory(partition)}",
            config=config,
            clean=clean,
            recovery_point=0 if from_start else remembered.recovery_points.get(partition, 0),
            log_start_offset=remembered.log_starts.get(partition, 0),
            high_watermark=remembered.high_watermarks.get(partition, 0),
            gaps_are_holes=not config.compact,
            synced=clean,
        )

    def request_for(self, state: DirectoryState, partition: TopicPartition) -> LoadRequest:
        """How a log that was not closed well is loaded from a directory that is open."""
        return self._request(state.path, partition, False, read_remembered(self._files, state.path))

    @property
    def has_failed(self) -> bool:
        """Whether one of them is not online."""
        return bool(self.offline) or any(state.health.failure is not None for state in self.directories)

    # Partitions.
    def get(self, partition: TopicPartition) -> PartitionLog | None:
        return self.logs.get(partition)

    def prepare(self, wanted: Mapping[TopicPartition, Wanted]) -> Callable[[], None] | None:
        """A job for a thread that makes the logs which `create` will be asked for; None where there is none to make."""
        missing = {partition: one for partition, one in wanted.items() if partition not in self.logs}
        return self._new_logs.prepare(missing, self._choose)

    def create(self, partition: TopicPartition, config: LogConfig, topic_id: uuid.UUID | None = None) -> PartitionLog:
        """A new partition's log, in the directory with the fewest."""
        assert partition not in self.logs
        check_topic_name(partition.topic)
        new = self._new_logs.take(partition, Wanted(topic_id, config), self._choose)
        try:
            if partition in self._to_forget:
                self._forget(self._to_forget[partition], partition)
            log = new.log or self._new_logs.make(partition, new)
        except OSError as error:
            raise new.state.health.fail(error) from error
        self.settle(partition, log, new.state)
        return log

    def open_log(self, state: DirectoryState, request: LoadRequest) -> PartitionLog:
        """Loads one log of a directory, which is nobody's yet."""
        log, _ = load_partition(
            request,
            self._files,
            self._clock,
            state.health,
            self._open_files,
            jitter_for=self._jitter_for,
        )
        return log

    def settle(self, partition: TopicPartition, log: PartitionLog, state: DirectoryState) -> None:
        """From here on this log is the partition's."""
        assert partition not in self.logs
        self.logs[partition] = log
        self._home[partition] = state

    def _choose(self) -> DirectoryState:
        usable = [state for state in self.directories if state.health.failure is None]
        if not usable:
            raise StorageError("every log directory is offline")
        homes = [*self._home.values(), *self._new_logs.states()]
        return min(usable, key=homes.count)

    def home(self, partition: TopicPartition) -> DirectoryState:
        return self._home[partition]

    def delete(self, partition: TopicPartition) -> Callable[[], None]:
        """Takes a partition out and renames its directory `-delete`; the returned job removes it, off the loop.

        Until `sync_names` a crash may bring it back.
        """
        state, path = self._take_out(partition, names.deleted_directory(partition, self._new_id()))
        return partial(self._finish_delete, state, partition, path)

    def set_aside(self, partition: TopicPartition) -> Callable[[], None]:
        """The same for a partition that nobody knows of: its directory is renamed `-stray` and stays."""
        state, _ = self._take_out(partition, names.stray_directory(partition, self._new_id()))
        return partial(self._forget, state, partition)

    def _take_out(self, partition: TopicPartition, name: str) -> tuple[DirectoryState, str]:
        log = self.logs.pop(partition)
        state = self._home.pop(partition)
        log.epoch += 1
        log.abandon()
        target = f"{state.path}/{name}"
        try:
            self._files.rename(log.directory, target)
        except OSError as error:
            raise state.health.fail(error) from error
        self._renamed[state.path] = state
        state.cleaner_offsets.pop(partition, None)
        state.lowered.pop(partition, None)
        for file in state.offset_files.values():
            file.forget(partition)
        self._to_forget[partition] = state
        return state, target

    def sync_names(self) -> Callable[[], None] | None:
        """What makes the new names of logs that were taken out last: a job for a thread, None where there is nothing to do."""
        states, self._renamed = tuple(self._renamed.values()), {}
        return partial(self._sync_names, states) if states else None

    def _sync_names(self, states: Iterable[DirectoryState]) -> None:
        for state in states:
            try:
                self._files.sync_directory(state.path)
            except OSError as error:
                raise state.health.fail(error) from error

    def _finish_delete(self, state: DirectoryState, partition: TopicPartition, path: str) -> None:
        self._sync_names((state,))  # or half of it might come back under its old name
        self._forget(state, partition)
        self.remove_tree(path)

    def _forget(self, state: DirectoryState, partition: TopicPartition) -> None:
        """A topic made again under this name must not find the offsets of the old one after a crash. On any thread."""
        for name in (names.LOG_STARTS, names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.CLEANER_OFFSETS):
            checkpoints.drop_offset(self._files, f"{state.path}/{name}", partition)
        self._to_forget.pop(partition, None)

    def remove_tree(self, path: str) -> None:
        if self._files.is_link(path):
            self._files.remove(path)  # what it leads to is not ours to remove
            return
        for name in self._files.list(path):
            self._files.remove(f"{path}/{name}")
        self._files.remove_directory(path)

    # Cutting.
    def before_cut(self, partition: TopicPartition, offset: int, *, fully: bool = False) -> Callable[[], None] | None:
        """What must be on disk before a log is cut to `offset`: a job for a thread, or None where it is there.

        The lower recovery point: a crash from then on recovers what is half cut, and what is appended over it. And the lower
        clean offset: what is written anew above the cut is dirty. While the job runs a flush may end and raise the recovery point,
        so whoever cuts asks here again, in the same turn of the loop.
        """
        log, state = self.logs[partition], self._home[partition]
        if self._lower(log, state, partition, offset, fully=fully):
            due = (names.RECOVERY_POINTS, names.CLEANER_OFFSETS) if state.cleaner_offsets else (names.RECOVERY_POINTS,)
            state.lowered[partition] = tuple(self.freeze(state, name) for name in due)
        frozen = state.lowered.get(partition, ())
        if all(one.number <= one.file.written for one in frozen):
            state.lowered.pop(partition, None)
            return None
        return partial(self._write, state, frozen)

    @staticmethod
    def _lower(
        log: PartitionLog, state: DirectoryState, partition: TopicPartition, offset: int, *, fully: bool
    ) -> bool:
        lowered = log.lower_recovery_point(0 if fully else offset)
        bases = [] if fully else [one.base_offset for one in log.log.segments if one.base_offset <= offset]
        bound = bases[-1] if bases else offset  # where the log's last segment will begin
        if state.cleaner_offsets.get(partition, 0) > bound:
            state.cleaner_offsets[partition] = bound
            lowered = True
        return lowered

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Cuts a follower's log. What must be on disk before, is written here where it is not: a broker sees to that on a thread."""
        self._see_to(self.before_cut(partition, offset))
        self.logs[partition].truncate(offset)

    def truncate_fully(self, partition: TopicPartition, offset: int) -> None:
        """Empties a follower's log, to continue at `offset`; the rest as in `truncate`."""
        self._see_to(self.before_cut(partition, offset, fully=True))
        self.logs[partition].truncate_fully(offset)

    @staticmethod
    def _see_to(job: Callable[[], None] | None) -> None:
        if job is not None:
            job()

    # Checkpoints.
    def _of(self, state: DirectoryState) -> Mapping[TopicPartition, PartitionLog]:
        return {partition: log for partition, log in self.logs.items() if self._home[partition] is state}

    def recovery_points(self) -> list[tuple[DirectoryState, dict[TopicPartition, int]]]:
        """Of the logs in each directory."""
        return [
            (state, {key: log.recovery_point for key, log in self._of(state).items()}) for state in self.directories
        ]

    def freeze(self, state: DirectoryState, name: str) -> FrozenOffsets:
        """One of a directory's checkpoints as it is to be on disk now; `write` it on any thread."""
        offsets: dict[TopicPartition, int]
        if name == names.CLEANER_OFFSETS:
            offsets = dict(state.cleaner_offsets)
        elif name == names.LOG_STARTS:
            # Also where the first segment's name tells it: a power cut may bring a segment back that was renamed `.deleted`.
            offsets = {key: log.log_start_offset for key, log in self._of(state).items() if log.log_start_offset > 0}
        elif name == names.RECOVERY_POINTS:
            offsets = {key: log.recovery_point for key, log in self._of(state).items()}
        else:
            assert name == names.HIGH_WATERMARKS
            offsets = {key: log.high_watermark for key, log in self._of(state).items()}
        return state.offset_files[name].freeze(offsets)

    @staticmethod
    def _write(state: DirectoryState, frozen: Iterable[FrozenOffsets]) -> None:
        try:
            for one in frozen:
                one.write()
        except OSError as error:
            raise state.health.fail(error) from error

    def checkpoint(self) -> None:
        """All four, of every directory that is online."""
        for state in self.directories:
            if state.health.failure is None:
                self._checkpoint(state)

    def _checkpoint(self, state: DirectoryState) -> None:
        """Starts before recovery points: a raised start raises the recovery point over data that was never flushed, and
        must be remembered before that data counts as on disk."""
        due = [names.LOG_STARTS, names.RECOVERY_POINTS, names.HIGH_WATERMARKS]
        if state.cleaner_offsets or self._files.exists(f"{state.path}/{names.CLEANER_OFFSETS}"):
            due.append(names.CLEANER_OFFSETS)
        self._write(state, [self.freeze(state, name) for name in due])

    # Ending.
    def close(self) -> list[str]:
        """Flushes every log; a directory gets its clean marker only if all of its logs closed well. Returns complaints."""
        return self.close_job()()

    def close_job(self) -> Callable[[], list[str]]:
        """The same, to be run on a thread: from here on every log refuses what comes late."""
        self._new_logs.drop_all()
        for state in self.directories:
            state.health.is_closed = True
        return self._close

    def _close(self) -> list[str]:
        complaints = []
        for state in self.directories:
            try:
                state.health.check_failure()
                for _ in self._closing_jobs.run(partial(self._close_log, log) for log in self._of(state).values()):
                    pass
                self._checkpoint(state)
                checkpoints.write_clean_marker(self._files, state.path)
            except (OSError, PenstockError) as error:
                complaints.append(str(state.health.fail(error) if isinstance(error, OSError) else error))
            finally:
                state.lock.release()
        self.directories = []
        self.logs = {}
        self._home = {}
        return complaints

    def _close_log(self, log: PartitionLog) -> None:
        remove_files(self._files, log.removals.take_due(everything=True))
        log.close()
