"""Where a command's results go: text for people, or JSON, one object a line, for programs.

Results go to stdout, everything else (progress, complaints) to stderr. A result is a frozen dataclass with a `kind`; what
a line of text looks like stands in `text`.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, TextIO

from penstock.cli import text


class Result(Protocol):
    """A dataclass that says what it is."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]

    @property
    def kind(self) -> str: ...


_WIDTH_MIN = 200
"""A table's rows are not folded: a terminal that is too narrow wraps them, a file keeps them whole."""

_encode = json.JSONEncoder(ensure_ascii=False).encode
_PLAIN_TYPES = frozenset({int, str, bool, float, type(None)})


class Output(Protocol):
    def emit(self, item: Result) -> None:
        """One result, as it comes."""

    def table(self, title: str, items: Sequence[Result]) -> None:
        """Results of one kind, of which there are few."""

    def say(self, sentence: str) -> None:
        """For people only."""


class JsonOutput:
    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def emit(self, item: Result) -> None:
        self._stream.write(_encode(as_json(item)) + "\n")

    def table(self, title: str, items: Sequence[Result]) -> None:
        for item in items:
            self.emit(item)

    def say(self, sentence: str) -> None:
        pass


class TextOutput:
    """Columns of fixed width, so that a million lines need no memory; each file's name and headings stand once."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._file = ""
        self._headed: set[str] = set()
        self._colour = self._stream.isatty() and not os.environ.get("NO_COLOR")

    def emit(self, item: Result) -> None:
        if item.kind == "problem":
            self._write(text.line(item), "red")
            return
        file = getattr(item, "file", "")
        if file != self._file and item.kind != "mended":
            self._file = file
            self._headed.clear()
            self._write(file, "bold")
        if item.kind not in self._headed:
            self._headed.add(item.kind)
            if heading := text.heading(item.kind):
                self._write(heading, "dim")
        self._write(text.line(item), "")

    def _write(self, line: str, style: str) -> None:
        codes = {"bold": "1", "dim": "2", "red": "31"}
        if self._colour and style:
            line = f"\x1b[{codes[style]}m{line}\x1b[0m"
        self._stream.write(line + "\n")

    def table(self, title: str, items: Sequence[Result]) -> None:
        if not items:
            return
        from rich.console import Console
        from rich.table import Table

        shown = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for name, justify in text.table_columns(items[0].kind):
            shown.add_column(name, justify=justify, overflow="fold")
        for item in items:
            shown.add_row(*text.table_row(item))
        console = Console(file=self._stream, highlight=False, markup=False)
        console.width = max(console.width, _WIDTH_MIN)
        console.print(shown)

    def say(self, sentence: str) -> None:
        self._stream.write(sentence + "\n")


def open_output(*, as_json: bool) -> Output:
    return JsonOutput() if as_json else TextOutput()


def as_json(item: Result) -> dict[str, object]:
    """`kind` first, then the fields in their order; bytes as text where they are UTF-8, else {"base64": …}."""
    fields: dict[str, object] = {"kind": item.kind}
    for name in item.__dataclass_fields__:
        if name == "kind":
            continue
        value = getattr(item, name)
        if type(value) not in _PLAIN_TYPES:
            fields[name] = plain(value)
        elif value is not None or name not in _ONLY_WHERE_PRESENT:
            fields[name] = value
    return fields


_ONLY_WHERE_PRESENT = frozenset({"decode_error"})


def plain(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: plain(content) for name, content in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value
