"""What a session file holds besides samples: clocks, checks, resources, bytes, provenance. Imports no CUDA.

Kept apart from the reader: most uses need the samples alone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from megakernel.errors import RecordError
from megakernel.operator.contract import Problem
from megakernel.record.session import Series, Session


@dataclass(frozen=True)
class ShapeStates:
    """The device around each round of a shape, warm or evicted. Arrays are ``(rounds, 2)``, before and after; NaN is
    unavailable.
    """

    problem: Problem
    cache: str
    throttled: NDArray[np.bool_]
    sm_clock_mhz: NDArray[np.float64]
    temperature_c: NDArray[np.float64]
    power_mw: NDArray[np.float64]


@dataclass(frozen=True)
class Resources:
    """What one stage's kernel takes, and how much of it the device holds."""

    kernel: str
    threads: int
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    spill_bytes: int
    blocks_per_sm: int
    cap: int


@dataclass(frozen=True)
class SeriesDetails:
    """Of one series, in the order of the session's.

    Attributes:
        shape: position of its rounds' states in ``Details.shapes``.
        checks_before: how many checks it passed or failed before timing; ``checks_after``, after it.
        worst_error: the greatest error over what is allowed, of all accuracy checks; None where there is none.
        moved_bytes: what its launches read and write of global memory, before any cache, as declared; None in files
            that do not say.
    """

    shape: int
    checks_before: int
    checks_after: int
    worst_error: float | None
    worst_check: str
    failed: tuple[str, ...]
    output_sha256: str
    resources: tuple[Resources, ...]
    moved_bytes: int | None
    compiler: Mapping[str, str]


@dataclass(frozen=True)
class Details:
    shapes: tuple[ShapeStates, ...]
    series: tuple[SeriesDetails, ...]
    tolerances: Mapping[str, str]
    kernel_sources: Mapping[str, str]


def load_details(path: Path) -> Details:
    """Loads what belongs to a session that the reader has accepted.

    Raises:
        RecordError: the file is damaged.
    """
    try:
        with h5py.File(path, "r") as file:
            shapes: dict[tuple[int, str], ShapeStates] = {}
            for name in sorted(file["shapes"]):
                group = file["shapes"][name]
                shapes[int(name), "warm"] = _states(group, group, "warm")
                if "evicted" in group:
                    shapes[int(name), "evicted"] = _states(group, group["evicted"], "evicted")
            position = {key: index for index, key in enumerate(shapes)}
            return Details(
                shapes=tuple(shapes.values()),
                series=tuple(_series(file["series"][name], position) for name in sorted(file["series"])),
                tolerances={name: _text(dataset) for name, dataset in file.get("tolerances", {}).items()},
                kernel_sources=_sources(file),
            )
    except Exception as error:  # a damaged file can make h5py and numpy fail in any way
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise RecordError(f"{path} is damaged: {first_line}") from error


def without_throttled(session: Session, details: Details) -> tuple[Session, int]:
    """The session without the rounds in which power or heat held the clock down, and how many those were.

    Raises:
        RecordError: nothing of a series would be left.
    """
    kept: list[Series] = []
    for series, of_series in zip(session.series, details.series, strict=True):
        throttled = details.shapes[of_series.shape].throttled
        known = series.rounds < len(throttled)
        drop = np.zeros(len(series.rounds), np.bool_)
        drop[known] = throttled[series.rounds[known]]
        if drop.all() and len(drop):
            raise RecordError(
                f"{session.path}: every round of {series.variant}, {series.problem.rows} rows, {series.submission} "
                "was throttled: without them nothing is left"
            )
        kept.append(_chosen_rounds(series, ~drop) if drop.any() else series)
    return replace(session, series=tuple(kept), throttled_rounds=0), session.throttled_rounds


def _chosen_rounds(series: Series, keep: NDArray[np.bool_]) -> Series:
    """The series with some of its rounds. A metric that was not measured has no rounds to choose from."""
    values = {field.name: getattr(series, field.name) for field in fields(series)}
    chosen: dict[str, Any] = {
        name: value[keep]
        for name, value in values.items()
        if isinstance(value, np.ndarray) and len(value) == len(series.rounds)
    }
    return replace(series, **chosen)


def chosen_rounds(session: Session, keep: Any) -> Session:
    """The session with the rounds whose number ``keep`` accepts."""
    return replace(
        session,
        series=tuple(
            _chosen_rounds(series, np.array([bool(keep(int(number))) for number in series.rounds], np.bool_))
            for series in session.series
        ),
    )


def _states(shape: h5py.Group, group: h5py.Group, cache: str) -> ShapeStates:
    attrs = shape.attrs
    rounds = len(group["throttled"])

    def state(name: str) -> NDArray[np.float64]:
        return np.asarray(group[name][:rounds], np.float64).reshape(rounds, 2)

    return ShapeStates(
        problem=Problem(int(attrs["rows"]), int(attrs["width"]), float(attrs["eps"])),
        cache=cache,
        throttled=np.asarray(group["throttled"][()], np.bool_),
        sm_clock_mhz=state("sm_clock_mhz"),
        temperature_c=state("temperature_c"),
        power_mw=state("power_mw"),
    )


def _series(group: h5py.Group, position: Mapping[tuple[int, str], int]) -> SeriesDetails:
    checks = [group[name] for name in ("verified_before", "verified_after") if name in group]
    names = [_decoded(name) for check in checks for name in check["check"][()]]
    measured = [float(value) for check in checks for value in check["measured"][()]]
    passed = [bool(value) for check in checks for value in check["check_passed"][()]]
    accuracy = [(value, name) for value, name in zip(measured, names, strict=True) if name.endswith("accuracy")]
    worst, worst_check = max(accuracy, default=(None, ""))
    launches = json.loads(_text(group["plan"]))["launches"]
    return SeriesDetails(
        shape=position[int(group.attrs["shape"]), str(group.attrs.get("cache", "warm"))],
        checks_before=len(group["verified_before"]["check"]),
        checks_after=len(group["verified_after"]["check"]) if "verified_after" in group else 0,
        worst_error=worst,
        worst_check=worst_check,
        failed=tuple(name for name, good in zip(names, passed, strict=True) if not good),
        output_sha256=str(checks[-1].attrs.get("output_sha256", "")),
        resources=tuple(_resources(group["resources"][name]) for name in sorted(group["resources"])),
        moved_bytes=_moved_bytes(launches),
        compiler={name: _text(dataset) for name, dataset in group.get("compiler", {}).items()},
    )


def _resources(group: h5py.Group) -> Resources:
    attrs = group.attrs
    return Resources(
        kernel=str(attrs["name"]),
        threads=int(attrs["threads"]),
        registers=int(attrs["registers"]),
        static_shared_bytes=int(attrs["static_shared_bytes"]),
        dynamic_shared_bytes=int(attrs["dynamic_shared_bytes"]),
        spill_bytes=int(attrs["spill_store_bytes"]) + int(attrs["spill_load_bytes"]),
        blocks_per_sm=int(attrs["blocks_per_sm"]),
        cap=int(attrs["cap"]),
    )


def _moved_bytes(launches: list[dict[str, Any]]) -> int | None:
    if not all("reads" in launch and "writes" in launch for launch in launches):
        return None
    return sum(int(transfer["nbytes"]) for launch in launches for transfer in (*launch["reads"], *launch["writes"]))


def _sources(file: h5py.File) -> dict[str, str]:
    if "kernel_sources" not in file:
        return {}
    group = file["kernel_sources"]
    pairs = zip(group["path"][()], group["sha256"][()], strict=True)
    return {_decoded(path): _decoded(digest) for path, digest in pairs}


def _text(dataset: Any) -> str:
    return _decoded(dataset[()])


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
