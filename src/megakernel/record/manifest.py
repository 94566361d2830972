"""A manifest: what was fixed before a session, by hash or value, as deterministic JSON. Says nothing about how it is
found out (``run/freeze.py``).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from megakernel.errors import RecordError
from megakernel.files import require_file, write_new

SCHEMA = "megakernel.manifest"
SCHEMA_VERSION = 1

Value = str | int | float
Sections = Mapping[str, Mapping[str, Value]]


@dataclass(frozen=True)
class Manifest:
    """``sections`` hold names and what they had; ``text`` is the file."""

    sections: Sections
    text: str


def make(sections: Sections) -> Manifest:
    """The same tree gives the same bytes."""
    stored = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **sections}
    return Manifest(sections, json.dumps(stored, indent=1, sort_keys=True) + "\n")


def load(path: Path) -> Manifest:
    """Reads a manifest.

    Raises:
        MissingError: there is no such file.
        RecordError: it is no manifest.
    """
    require_file(path, " (mk freeze writes one)")
    try:
        text = path.read_text()
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not JSON: {error}") from error
    if not isinstance(stored, dict) or (stored.pop("schema", None), stored.pop("schema_version", None)) != (
        SCHEMA,
        SCHEMA_VERSION,
    ):
        raise RecordError(f"{path} is no manifest (schema {SCHEMA!r}, version {SCHEMA_VERSION})")
    for name, section in stored.items():
        if not isinstance(section, dict) or not all(isinstance(v, str | int | float) for v in section.values()):
            raise RecordError(f"{path}: section {name!r} holds something else than names and values")
    return Manifest(stored, text)


def write(manifest: Manifest, path: Path) -> None:
    """Writes a new file.

    Raises:
        RecordError: a file is in the way, or it cannot be written.
    """
    write_new(path, manifest.text.encode())


def changes(frozen: Sections, found: Sections) -> tuple[str, ...]:
    """A line for each thing that is not as frozen: gone, new or different."""
    lines = []
    for section in sorted({*frozen, *found}):
        before, now = frozen.get(section, {}), found.get(section, {})
        for name in sorted({*before, *now}):
            if name not in now:
                lines.append(f"{section}: {name} is gone")
            elif name not in before:
                lines.append(f"{section}: {name} is new")
            elif before[name] != now[name]:
                lines.append(f"{section}: {name} is {_short(now[name])}, but was frozen as {_short(before[name])}")
    return tuple(lines)


def _short(value: Value) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:16]}..."
