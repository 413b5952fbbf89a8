"""`penstock log verify`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from penstock.base.files import SystemFiles
from penstock.cli import kernels_notice, locks, places
from penstock.cli.output import Output
from penstock.cli.progress import progress_bar
from penstock.storage.inspect.items import ProblemItem
from penstock.storage.inspect.problems import Problem
from penstock.storage.inspect.verify import PartitionSummary, log_bytes, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    kind: ClassVar[str] = "partition"
    file: str
    partition: str | None
    segments: int
    size_bytes: int
    start_offset: int
    end_offset: int
    batches: int
    records: int
    index_entries: int
    time_entries: int
    aborted_transactions: int
    files_to_remove: int
    problems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    kind: ClassVar[str] = "summary"
    partitions: int
    segments: int
    size_bytes: int
    batches: int
    records: int
    problems: int


def problem_item(problem: Problem) -> ProblemItem:
    return ProblemItem(file=problem.path, position=problem.position, offset=problem.offset, reason=problem.reason)


def run(paths: list[str], output: Output, *, live: bool) -> int:
    files = SystemFiles()
    found = places.find_all(files, paths)
    kernels_notice.give()
    problems: list[Problem] = []

    def report(problem: Problem) -> None:
        problems.append(problem)
        output.emit(problem_item(problem))

    summaries: list[PartitionSummary] = []
    with locks.reading(places.homes(files, found), live=live):
        total = sum(log_bytes(files, place) for place in found)
        with progress_bar("verifying", total) as progress:
            for place in found:
                summaries += verify(files, place, report, live=live, progress=progress)
    where = Counter(problem.path.rpartition("/")[0] for problem in problems)
    where += Counter(problem.path for problem in problems)  # a file that was asked about is a line of its own
    results = [_result(summary, where[summary.path]) for summary in summaries]
    output.table("", results)
    _sum_up(results, len(problems), output)
    return 1 if problems else 0


def _result(summary: PartitionSummary, problems: int) -> PartitionResult:
    segments = summary.segments
    return PartitionResult(
        file=summary.path,
        partition=None if summary.partition is None else str(summary.partition),
        segments=len(segments),
        size_bytes=sum(segment.size_bytes for segment in segments),
        start_offset=summary.start_offset,
        end_offset=summary.end_offset,
        batches=sum(segment.batches for segment in segments),
        records=sum(segment.records for segment in segments),
        index_entries=sum(segment.index_entries for segment in segments),
        time_entries=sum(segment.time_entries for segment in segments),
        aborted_transactions=sum(segment.aborted for segment in segments),
        files_to_remove=summary.waiting,
        problems=problems,
    )


def _sum_up(results: list[PartitionResult], problems: int, output: Output) -> None:
    from penstock.cli.output import JsonOutput

    summary = Summary(
        partitions=len(results),
        segments=sum(result.segments for result in results),
        size_bytes=sum(result.size_bytes for result in results),
        batches=sum(result.batches for result in results),
        records=sum(result.records for result in results),
        problems=problems,
    )
    if isinstance(output, JsonOutput):
        output.emit(summary)
    output.say(
        f"{summary.batches} batches with {summary.records} records in {summary.segments} segments of "
        f"{summary.partitions} partitions: {problems or 'no'} problem{'' if problems == 1 else 's'}"
    )
    if waiting := sum(result.files_to_remove for result in results):
        output.say(f"{waiting} files are called .deleted; the next start removes them")
