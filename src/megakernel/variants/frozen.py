"""The pilot's outcome: which configuration each variant takes on a device at a row count, which local family and which
megakernel stand for that shape, and the figures that chose them.

``mk tune`` writes such a table; ``data/frozen.toml`` is the shipped one. Results name it by its hash (``mk freeze``).
"""

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from megakernel.errors import MissingError, UsageError
from megakernel.files import require_file
from megakernel.variants.declaration import Configuration, Variant

EMULATED_MARK = " (emulated)"  # behind the name of a device that an emulator stands in for

SCHEMA = "megakernel.frozen"
SCHEMA_VERSION = 1

_PACKAGE = Path(__file__).resolve().parents[1]

Figures = Mapping[str, str | float]


@dataclass(frozen=True)
class Entry:
    """One device at one row count.

    Attributes:
        device, sm_count: as the driver says, and marked where it is emulated; a part with fewer SMs (MIG, MPS) is
            another device. An emulated device without an entry takes the real one's.
        width: of the rows that were timed.
        source: how the entry came about.
        configurations: by variant.
        local, megakernel: the variants that stand for the shape.
        figures: by variant, what the choice rests on; see docs/protocol.md.
    """

    device: str
    sm_count: int
    rows: int
    width: int
    source: str
    configurations: Mapping[str, Configuration]
    local: str
    megakernel: str
    figures: Mapping[str, Figures] = field(default_factory=dict)


@dataclass(frozen=True)
class FrozenTable:
    """``text`` is the whole file, to be kept with results."""

    entries: tuple[Entry, ...]
    text: str = ""

    def knows(self, device: str, sm_count: int) -> bool:
        return any(_strangeness(e, device, sm_count) < _OTHER for e in self.entries)

    def own(self, device: str, sm_count: int, rows: int) -> Entry | None:
        """The entry of just this device and row count."""
        own = [e for e in self.entries if e.rows == rows and _strangeness(e, device, sm_count) < _OTHER]
        return min(own, key=lambda entry: _strangeness(entry, device, sm_count), default=None)

    def nearest(self, device: str, sm_count: int, rows: int, variant: str) -> Entry | None:
        """Of the entries with that variant: the device's own before others', then by SMs, then by row count."""

        def distance(entry: Entry) -> tuple[int, float, float]:
            of_rows = abs(math.log(entry.rows / rows))
            return _strangeness(entry, device, sm_count), abs(math.log(entry.sm_count / sm_count)), of_rows

        return min((e for e in self.entries if variant in e.configurations), key=distance, default=None)

    def suggestion(self, variant: Variant, device: str, sm_count: int, rows: int) -> Configuration:
        """The variant's configuration in the nearest entry; as declared, where no entry has the variant."""
        entry = self.nearest(device, sm_count, rows, variant.name)
        return entry.configurations[variant.name] if entry else variant.default_configuration(rows)

    def configurations(self, variant: Variant, rows: Iterable[int]) -> list[Configuration]:
        """Every configuration that the variant has on some device; as declared, where no entry has the variant."""
        known = [e.configurations[variant.name] for e in self.entries if variant.name in e.configurations]
        return list(dict.fromkeys(known or map(variant.default_configuration, rows)))

    def notice(self, device: str, sm_count: int) -> str:
        """What is to be said of a device that the table does not know; empty where it does."""
        if self.knows(device, sm_count):
            return ""
        known = dict.fromkeys(f"{e.device} ({e.sm_count} SMs)" for e in self.entries)
        return (
            f"no frozen configuration for {device} with {sm_count} SMs: taking the nearest that fit, of "
            f"{', '.join(known) or 'the declarations'}; mk tune finds its own"
        )


_OTHER = 2


def _strangeness(entry: Entry, device: str, sm_count: int) -> int:
    """0: of this device; 1: of the real one that this device emulates; 2: of another."""
    if entry.sm_count != sm_count:
        return _OTHER
    return 0 if entry.device == device else 1 if f"{entry.device}{EMULATED_MARK}" == device else _OTHER


@cache
def shipped() -> FrozenTable:
    """The table of this installation.

    Raises:
        MissingError: the installation lacks it.
    """
    return load(shipped_path())


def shipped_path() -> Path:
    """Inside the installed package, else in the source tree."""
    places = (_PACKAGE / "frozen.toml", _PACKAGE.parents[1] / "data" / "frozen.toml")
    for path in places:
        if path.is_file():
            return path
    raise MissingError(f"the frozen configurations are missing from this installation ({places[0]}): reinstall")


def load(path: Path) -> FrozenTable:
    """Reads a table.

    Raises:
        MissingError: there is no such file.
        UsageError: it is no such table; the message says where.
    """
    require_file(path)
    try:
        text = path.read_text()
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    if (table.get("schema"), table.get("schema_version")) != (SCHEMA, SCHEMA_VERSION):
        raise UsageError(f"{path} is no table of frozen configurations (schema {SCHEMA!r}, version {SCHEMA_VERSION})")
    entries = []
    for number, stored in enumerate(table.get("entry", []), 1):
        try:
            entries.append(_entry(stored))
        except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UsageError(f"{path}: entry {number}: {what}") from error
    keys = [(e.device, e.sm_count, e.rows) for e in entries]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise UsageError(f"{path}: {twice[0][0]} with {twice[0][1]} SMs has two entries of {twice[0][2]} rows")
    return FrozenTable(tuple(entries), text)


def _entry(stored: Mapping[str, Any]) -> Entry:
    for name in ("rows", "sm_count", "width"):
        value = stored[name]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
            raise ValueError(f"{name} is {value!r}: give a whole number from 1 on")
    for name in ("device", "source", "local", "megakernel"):
        if not isinstance(stored[name], str):
            raise ValueError(f"{name} is {stored[name]!r}: give a text")
    configurations = {name: Configuration.parse(text) for name, text in stored["configurations"].items()}
    for role in ("local", "megakernel"):
        if stored[role] not in configurations:
            raise ValueError(f"{role} is {stored[role]!r}, which has no configuration")
    for variant, figures in stored.get("figures", {}).items():
        for name, value in figures.items():
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not (number or isinstance(value, str)):
                raise ValueError(f"figure {name} of {variant} is {value!r}: give a number or a text")
    return Entry(
        device=stored["device"],
        sm_count=stored["sm_count"],
        rows=stored["rows"],
        width=stored["width"],
        source=stored["source"],
        configurations=configurations,
        local=stored["local"],
        megakernel=stored["megakernel"],
        figures={name: dict(figures) for name, figures in stored.get("figures", {}).items()},
    )


def merged(table: FrozenTable, new: Iterable[Entry]) -> tuple[Entry, ...]:
    """The table's entries with the new ones in their places: a device's tuned in several runs make one table."""
    entries = {(e.device, e.sm_count, e.rows): e for e in (*table.entries, *new)}
    return tuple(entries[key] for key in sorted(entries))


def to_toml(entries: Iterable[Entry]) -> str:
    """The table as text; ``load`` gives the same entries back."""
    lines = [
        "# Which configuration each implementation takes, and which stand for a shape: written by `mk tune`.",
        "# Times are of graph replay, in nanoseconds per invocation. docs/protocol.md explains the figures.",
        f"schema = {_quoted(SCHEMA)}",
        f"schema_version = {SCHEMA_VERSION}",
    ]
    for entry in entries:
        lines += ["", "[[entry]]"]
        lines += [
            f"{name} = {_value(getattr(entry, name))}"
            for name in ("device", "sm_count", "rows", "width", "source", "local", "megakernel")
        ]
        lines += ["", "[entry.configurations]"]
        lines += [f"{_key(name)} = {_quoted(str(c))}" for name, c in entry.configurations.items()]
        if entry.figures:
            lines += ["", "[entry.figures]"]
        for name, figures in entry.figures.items():
            inside = ", ".join(f"{_key(what)} = {_value(value)}" for what, value in figures.items())
            lines.append(f"{_key(name)} = {{ {inside} }}")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _quoted(name)


def _value(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _quoted(str(value))
    return repr(value)  # also inf and nan are TOML


def _quoted(text: str) -> str:
    """A basic string: JSON escapes what TOML wants escaped, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
