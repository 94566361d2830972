"""Loads a session file. Needs no GPU and imports no CUDA."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import h5py
import numpy as np

from megakernel.errors import RecordError
from megakernel.files import require_file
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS
from megakernel.record.protocol import CACHES
from megakernel.record.session import SCHEMA, SCHEMA_VERSION, FreezeState, Series, Session, StandIns
from megakernel.variants.declaration import Configuration

_Choice = TypeVar("_Choice", bound=str)
_FREEZE_STATES: tuple[FreezeState, ...] = get_args(FreezeState)


def load(path: Path) -> Session:
    """Loads a session, finished or not.

    Raises:
        MissingError: there is no such file.
        RecordError: it is not a session file of a known schema version, or is damaged.
    """
    require_file(path)
    try:
        with h5py.File(path, "r") as file:
            return _session(path, file)
    except RecordError:
        raise
    except Exception as error:  # a damaged file can make h5py and numpy fail in any way
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise RecordError(f"{path} is not a readable session file: {first_line}") from error


def _session(path: Path, file: h5py.File) -> Session:
    if file.attrs.get("schema") != SCHEMA:
        raise RecordError(f"{path} is an HDF5 file, but not a session (no attribute schema = {SCHEMA!r})")
    version = int(file.attrs["schema_version"])
    if version != SCHEMA_VERSION:
        raise RecordError(f"{path} has schema version {version}; this program reads version {SCHEMA_VERSION}")
    shapes = [file["shapes"][name] for name in sorted(file["shapes"])]
    return Session(
        path=str(path),
        complete=bool(file.attrs["complete"]),
        interruption=str(file.attrs["interruption"]),
        device=_attributes(file, "device"),
        protocol=_attributes(file, "protocol"),
        environment={name: _text(dataset) for name, dataset in file.get("environment", {}).items()},
        series=tuple(_series(file["series"][name]) for name in sorted(file["series"])),
        throttled_rounds=sum(
            int(states["throttled"][()].sum())
            for shape in shapes
            for states in (shape, *([shape["evicted"]] if "evicted" in shape else []))
        ),
        refusals=tuple(line for shape in shapes for line in _refusals(shape)),
        attributes={name: str(value) for name, value in file.attrs.items()},
        freeze_state=_one_of(file["manifest"], "state", _FREEZE_STATES) if "manifest" in file else "none",
        changes=tuple(_text(file["manifest/changes"]).splitlines()) if "manifest" in file else (),
        stand_ins={
            int(shape.attrs["rows"]): StandIns(str(shape.attrs["local"]), str(shape.attrs["megakernel"]))
            for shape in shapes
            if "local" in shape.attrs and "megakernel" in shape.attrs
        },
    )


def _attributes(file: h5py.File, name: str) -> dict[str, str | int | float]:
    if name not in file:
        return {}
    return {key: value.item() if hasattr(value, "item") else value for key, value in file[name].attrs.items()}


def _text(dataset: Any) -> str:
    value: bytes = dataset[()]
    return value.decode("utf-8", "surrogateescape")


def _series(group: h5py.Group) -> Series:
    attrs = group.attrs
    after = group.get("verified_after")
    rounds = group["round"][()]
    if len(rounds) > 1 and not (np.diff(rounds) > 0).all():
        raise RecordError(f"{group.file.filename}: {group.name} is damaged: its rounds do not follow one another")
    finished = len(rounds)  # appended last: a killed run may leave other arrays one entry longer

    def entries(name: str, dtype: Any, dimensions: int = 1) -> Any:
        stored = group[name]
        if stored.dtype.kind not in ("iu" if np.dtype(dtype).kind == "i" else "iuf"):
            raise RecordError(f"{group.file.filename}: {stored.name} holds {stored.dtype}, not {np.dtype(dtype)}")
        values = stored[:finished].astype(dtype)
        if len(values) != finished or values.ndim != dimensions:
            raise RecordError(
                f"{group.file.filename}: {group.name}/{name} has {values.shape} values for {finished} rounds"
            )
        return values

    def samples(name: str, dtype: Any, dimensions: int = 1) -> Any:
        dataset = group[name]
        if dataset.attrs.get("units") != "ns":
            raise RecordError(
                f"{group.file.filename}: {dataset.name} has units {dataset.attrs.get('units')!r}, not 'ns'"
            )
        return entries(name, dtype, dimensions)

    cache = _one_of(group, "cache", CACHES) if "cache" in attrs else "warm"
    warm = cache == "warm"
    nothing = np.empty(0, np.int64)
    return Series(
        variant=str(attrs["variant"]),
        computes=str(attrs["computes"]),
        problem=Problem(int(attrs["rows"]), int(attrs["width"]), float(attrs["eps"])),
        submission=_one_of(group, "submission", SUBMISSIONS),
        configuration=str(Configuration(int(attrs["threads"]), int(attrs["tile"]))),
        launches=int(attrs["launches"]),
        batch=int(group["event_interval"].attrs["invocations"]) if warm else 1,
        singles_ns=samples("host_completion", np.int64, dimensions=2),
        enqueue_ns=samples("host_enqueue", np.int64) if warm else nothing,
        batch_ns=samples("host_batch_completion", np.int64) if warm else nothing,
        event_ns=samples("event_interval", np.float64) if warm else nothing.astype(np.float64),
        rounds=rounds,
        position=entries("position", np.int64),
        verified_before=bool(group["verified_before"].attrs["passed"]),
        verified_after=None if after is None else bool(after.attrs["passed"]),
        cache=cache,
        single_event_ns=np.empty((0, 0)) if warm else samples("single_event_interval", np.float64, dimensions=2),
    )


def _one_of(group: h5py.Group, name: str, choices: Sequence[_Choice]) -> _Choice:
    stored = group.attrs[name]
    for known in choices:
        if stored == known:
            return known
    raise RecordError(f"{group.file.filename}: {group.name} has {name} {stored!r}, not one of {tuple(choices)}")


def _refusals(shape: h5py.Group) -> list[str]:
    entries = shape["refused"].values() if "refused" in shape else ()
    rows = int(shape.attrs["rows"])
    lines = []
    for entry in entries:
        first, *others = _text(entry["reason"]).splitlines() or ["?"]
        more = f" (and {len(others)} more lines in the file)" if others else ""
        lines.append(f"{entry.attrs['variant']}, {rows} rows, {entry.attrs['submission']}: {first}{more}")
    return lines
