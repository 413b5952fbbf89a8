"""A partition's log as a picture: each segment a bar, with its offsets and its indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.text import size_text
from penstock.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from rich.table import Table

_BAR_WIDTH = 16


def picture(log: PartitionLog, recovered: frozenset[int] = frozenset()) -> Table:
    """Fits eighty columns. Bars are measured by the size at which a segment is full."""
    from rich.table import Table

    title = f"{log.partition}, offsets {log.log_start_offset:,} to {log.end_offset:,}; index entries by offset and time"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for name in ("from offset", "size", "segment", "by offset", "by time", ""):
        table.add_column(name, justify="left" if name in ("segment", "") else "right", no_wrap=True)
    segments = log.log.segments
    full = max(log.config.segment_bytes, *(segment.size_bytes for segment in segments))
    for segment in segments:
        offset_index, time_index = segment.indexes()
        marks = [
            "recovered" if segment.base_offset in recovered else "",
            "active" if segment is log.log.active else "",
        ]
        filled = round(_BAR_WIDTH * segment.size_bytes / full)
        table.add_row(
            f"{segment.base_offset:,}",
            size_text(segment.size_bytes),
            f"[green]{'█' * filled}[/green][dim]{'░' * (_BAR_WIDTH - filled)}[/dim]",
            f"{offset_index.entries:,}",
            f"{time_index.entries:,}",
            ", ".join(mark for mark in marks if mark),
        )
    return table
