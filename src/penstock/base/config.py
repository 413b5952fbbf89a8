"""Configuration keys: each room declares its own table; names, types, bounds and defaults are Kafka's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.base.errors import ConfigError

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
PORT_MAX = 65_535


def is_port(text: str, *, lowest: int = 1) -> bool:
    """Whether a text is a port's number; `lowest=0` where the system may choose one."""
    return text.isdecimal() and len(text) <= len(str(PORT_MAX)) and lowest <= int(text) <= PORT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey(Generic[T]):
    """One key: how its text becomes a value, what it may be, and what it is for."""

    name: str
    parse: Callable[[str], T]
    type_name: str
    default: T
    doc: str
    check: Callable[[T], str | None] = lambda _value: None
    valid: str = ""
    dynamic: bool = True
    sensitive: bool = False
    synonyms: tuple[str, ...] = ()
    """Other keys that give this one its default, strongest first."""

    def read(self, text: str) -> T:
        """The value of a text, or ConfigError naming key, text and what is valid."""
        try:
            value = self.parse(text.strip())
        except ValueError:
            raise ConfigError(f"{self.name}={text!r} is not a valid {self.type_name}") from None
        complaint = self.check(value)
        if complaint is not None:
            raise ConfigError(f"{self.name}={text!r} {complaint}")
        return value


def _parse_int(bits: int) -> Callable[[str], int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high or "_" in text:
            raise ValueError(text)
        return value

    return parse


def _parse_number(text: str) -> float:
    value = float(text)
    if math.isnan(value) or "_" in text:  # no bound would refuse what is neither smaller nor larger
        raise ValueError(text)
    return value


def _between(low: float | None, high: float | None) -> tuple[Callable[[Any], str | None], str]:
    def check(value: float) -> str | None:
        if low is not None and value < low:
            return f"must be at least {low}"
        if high is not None and value > high:
            return f"must be at most {high}"
        return None

    valid = f"[{'...' if low is None else low},...{'' if high is None else f',{high}'}]" if low is not None else ""
    return check, valid


def integer(
    name: str,
    default: int,
    doc: str,
    *,
    bits: int = 32,
    low: int | None = None,
    high: int | None = None,
    dynamic: bool = True,
    synonyms: tuple[str, ...] = (),
) -> ConfigKey[int]:
    check, valid = _between(low, high)
    return ConfigKey(
        name=name,
        parse=_parse_int(bits),
        type_name="integer" if bits == 32 else "long",
        default=default,
        doc=doc,
        check=check,
        valid=valid,
        dynamic=dynamic,
        synonyms=synonyms,
    )


def number(
    name: str, default: float, doc: str, *, low: float, high: float, synonyms: tuple[str, ...] = ()
) -> ConfigKey[float]:
    check, valid = _between(low, high)
    return ConfigKey(
        name=name,
        parse=_parse_number,
        type_name="double",
        default=default,
        doc=doc,
        check=check,
        valid=valid,
        synonyms=synonyms,
    )


def boolean(
    name: str, default: bool, doc: str, *, dynamic: bool = True, synonyms: tuple[str, ...] = ()
) -> ConfigKey[bool]:
    def parse(text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError(text)
        return lowered == "true"

    return ConfigKey(
        name=name,
        parse=parse,
        type_name="boolean",
        default=default,
        doc=doc,
        dynamic=dynamic,
        synonyms=synonyms,
    )


def text(
    name: str,
    default: str,
    doc: str,
    *,
    choices: Iterable[str] | None = None,
    dynamic: bool = True,
    synonyms: tuple[str, ...] = (),
) -> ConfigKey[str]:
    allowed = None if choices is None else tuple(choices)

    def check(value: str) -> str | None:
        if allowed is None or value in allowed:
            return None
        return f"must be one of {', '.join(allowed)}"

    return ConfigKey(
        name=name,
        parse=str,
        type_name="string",
        default=default,
        doc=doc,
        check=check,
        valid="" if allowed is None else f"[{', '.join(allowed)}]",
        dynamic=dynamic,
        synonyms=synonyms,
    )


def text_list(
    name: str,
    default: tuple[str, ...],
    doc: str,
    *,
    choices: Iterable[str] | None = None,
    dynamic: bool = True,
    synonyms: tuple[str, ...] = (),
) -> ConfigKey[tuple[str, ...]]:
    allowed = None if choices is None else tuple(choices)

    def parse(raw: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in raw.split(",") if part.strip())

    def check(values: tuple[str, ...]) -> str | None:
        for value in values:
            if allowed is not None and value not in allowed:
                return f"may hold only {', '.join(allowed)}"
        return None

    return ConfigKey(
        name=name,
        parse=parse,
        type_name="list",
        default=default,
        doc=doc,
        check=check,
        valid="" if allowed is None else f"[{', '.join(allowed)}]",
        dynamic=dynamic,
        synonyms=synonyms,
    )


def table(*keys: ConfigKey[Any]) -> Mapping[str, ConfigKey[Any]]:
    """Keys by name; a name declared twice is a programmer's error."""
    by_name = {key.name: key for key in keys}
    assert len(by_name) == len(keys), "a configuration key is declared twice"
    return by_name


def value_text(value: object) -> str | None:
    """A value in the text that would be read back as it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
