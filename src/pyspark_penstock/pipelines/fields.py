"""Reading nested mappings that a person wrote: every complaint names the place, and a misspelt key is not passed over."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark_penstock.pipelines.model import PipelineError


class Fields:
    """A mapping at a place. Whoever has read it calls `end`, which refuses what nobody asked for."""

    def __init__(self, content: Any, place: str) -> None:
        if not isinstance(content, Mapping):
            raise PipelineError(f"{place} must be a mapping of names to values, not {_kind(content)}")
        self.place = place
        self._content = dict(content)
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._content

    def items(self) -> dict[str, Any]:
        """All there is, whatever the names are."""
        self._asked.update(self._content)
        return {str(name): value for name, value in self._content.items()}

    def raw(self, name: str, default: Any = None) -> Any:
        self._asked.add(name)
        return self._content.get(name, default)

    def text(self, name: str, default: str | None = None, *, choices: Sequence[str] = ()) -> str:
        value = self.raw(name, default)
        if value is None:
            raise PipelineError(f"{self.place}: {name} is missing")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise PipelineError(f"{self.place}: {name} must be a text, not {_kind(value)}")
        if choices and value not in choices:
            raise PipelineError(f"{self.place}: {name} is {value!r}; it must be one of {', '.join(choices)}")
        return str(value)

    def integer(self, name: str, default: int) -> int:
        value = self.raw(name, default)
        if type(value) is not int or value < 0:
            raise PipelineError(f"{self.place}: {name} must be a whole number, not {value!r}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.raw(name, default)
        if type(value) is not bool:
            raise PipelineError(f"{self.place}: {name} must be true or false, not {value!r}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        value = self.raw(name, ())
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
            raise PipelineError(f"{self.place}: {name} must be a text or a list of texts")
        return tuple(value)

    def options(self, name: str) -> dict[str, str]:
        """Texts by name; numbers and truth values as Spark writes them."""
        found = {}
        for key, value in Fields(self.raw(name) or {}, f"{self.place}, {name}").items().items():
            if not isinstance(value, str | int | float | bool):
                raise PipelineError(f"{self.place}, {name}: {key} must be a text, not {_kind(value)}")
            found[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return found

    def children(self, name: str) -> Iterator[tuple[str, Fields]]:
        for key, value in Fields(self.raw(name) or {}, name).items().items():
            yield key, Fields(value, f"{name}, {key}")

    def end(self) -> None:
        for name in self._content:
            if name not in self._asked:
                near = difflib.get_close_matches(str(name), self._asked, n=1)
                hint = f": is {near[0]} meant?" if near else f"; there are {', '.join(sorted(self._asked))}"
                raise PipelineError(f"{self.place}: there is no {name}{hint}")


def _kind(value: Any) -> str:
    kinds = {
        dict: "a mapping",
        list: "a list",
        str: "a text",
        int: "a number",
        float: "a number",
        type(None): "nothing",
    }
    return kinds.get(type(value), type(value).__name__)
