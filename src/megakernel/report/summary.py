"""Reduces samples to medians and quantiles, of one session or of several. Nothing here knows how they were taken."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from megakernel.errors import RecordError
from megakernel.operator.contract import Problem
from megakernel.record.protocol import METRICS, Cache
from megakernel.record.session import Series, Session
from megakernel.variants.frozen import EMULATED_MARK

# What submitting one launch from Python costs beyond C++: measured, data/h200/launch_loops.json (nine launches).
PYTHON_LAUNCH_OVERHEAD_NS = 1400

# What may differ between sessions that are averaged: it says in which order, or for how long, not what was measured.
_FREE_PROTOCOL = ("order_seed", "watchdog_s", "shape_order")
_COMPARED_DEVICE = ("kind", "name", "compute_capability", "sm_count", "l2_bytes", "memory_bytes", "driver_version")

_Key = tuple[str, Problem, str, Cache]  # variant, problem, submission, cache


@dataclass(frozen=True)
class Row:
    """One metric of one series over all sessions, in nanoseconds per invocation. ``docs/report.md`` describes it.

    Attributes:
        cache: ``warm`` or ``evicted``.
        mean_ns: the arithmetic mean of the session medians.
        session_median_ns: one for each session that has the series, in the order of the sessions.
        p10_ns: of the round values, the mean over the sessions; ``p90_ns`` likewise.
        over_copy: ``mean_ns`` over that of ``copy`` in the same sessions, shape, submission, cache and metric; None
            where one of them has no ``copy``.
    """

    device: str
    variant: str
    rows: int
    width: int
    submission: str
    cache: Cache
    metric: str
    mean_ns: float
    session_median_ns: tuple[float, ...]
    p10_ns: float
    p90_ns: float
    over_copy: float | None


COLUMNS = tuple(field.name for field in fields(Row))


def round_values(series: Series, metric: str) -> NDArray[np.float64]:
    """One value for each round: of single invocations their median, of a batch its time per invocation.

    Empty for a metric that the series does not have.
    """
    if metric == "host_completion":
        return np.asarray(np.median(series.singles_ns, axis=1), np.float64)
    batches = {
        "host_enqueue": series.enqueue_ns,
        "host_batch_completion": series.batch_ns,
        "event_interval": series.event_ns,
    }
    return np.asarray(batches[metric] / series.batch, np.float64)


def device_label(session: Session) -> str:
    """The device's name, marked where it is emulated."""
    name = str(session.device.get("name", "unknown device"))
    return f"{name}{EMULATED_MARK}" if session.device.get("kind") == "emulator" else name


def differing_fields(first: Session, second: Session) -> list[str]:
    """What keeps two sessions from being put together: fields of device, protocol and schema that differ, in words."""
    pairs = [(f"device {name}", first.device.get(name), second.device.get(name)) for name in _COMPARED_DEVICE]
    names = dict.fromkeys((*first.protocol, *second.protocol))
    pairs += [
        (f"protocol {name}", first.protocol.get(name), second.protocol.get(name))
        for name in names
        if name not in _FREE_PROTOCOL
    ]
    pairs += [(name, first.attributes.get(name), second.attributes.get(name)) for name in ("schema_version", "fixture")]
    return [f"{name} ({one} and {other})" for name, one, other in pairs if one != other]


def summarise(*sessions: Session) -> list[Row]:
    """A row for each metric of each series that has samples, in the order of the files.

    Raises:
        RecordError: the sessions are of different devices or protocols, whose mean would mean nothing.
    """
    for other in sessions[1:]:
        if differing := differing_fields(sessions[0], other):
            raise RecordError(
                f"{sessions[0].path} and {other.path} are not sessions of one measurement: {', '.join(differing)}"
            )
    # By series and metric: median, p10 and p90 of each session, by its position.
    quantiles: dict[tuple[_Key, str], dict[int, NDArray[np.float64]]] = {}
    for position, session in enumerate(sessions):
        for series in session.series:
            for metric in METRICS:
                values = round_values(series, metric)
                if len(values):
                    key: _Key = (series.variant, series.problem, series.submission, series.cache)
                    of_sessions = quantiles.setdefault((key, metric), {})
                    of_sessions[position] = np.percentile(values, [50, 10, 90])  # linear interpolation
    copies = {s.variant for session in sessions for s in session.series if s.computes == "copy"}
    rows = []
    for (key, metric), of_sessions in quantiles.items():
        variant, problem, submission, cache = key
        mean, p10, p90 = np.mean(list(of_sessions.values()), axis=0)
        floor = _floor_ns(quantiles, copies, key, metric)
        rows.append(
            Row(
                device=device_label(sessions[0]),
                variant=variant,
                rows=problem.rows,
                width=problem.width,
                submission=submission,
                cache=cache,
                metric=metric,
                mean_ns=float(mean),
                session_median_ns=tuple(float(values[0]) for values in of_sessions.values()),
                p10_ns=float(p10),
                p90_ns=float(p90),
                over_copy=float(mean) / floor if floor else None,
            )
        )
    return rows


def _floor_ns(
    quantiles: dict[tuple[_Key, str], dict[int, NDArray[np.float64]]], copies: set[str], key: _Key, metric: str
) -> float | None:
    """The mean of ``copy``'s medians over exactly the sessions that have the series."""
    sessions = quantiles[key, metric]
    for copy in sorted(copies):
        of_copy = quantiles.get(((copy, *key[1:]), metric), {})
        if sessions.keys() <= of_copy.keys():
            return float(np.mean([of_copy[position][0] for position in sessions]))
    return None


def records(rows: Iterable[Row]) -> list[dict[str, object]]:
    """The rows as plain records, for JSON: the columns in their documented order."""
    return [
        {name: list(value) if isinstance(value := getattr(row, name), tuple) else value for name in COLUMNS}
        for row in rows
    ]


def to_csv(rows: Iterable[Row]) -> str:
    """The rows as CSV, the same columns as the records. Several session medians are joined by semicolons."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records(rows):
        medians = record["session_median_ns"]
        assert isinstance(medians, list)
        writer.writerow({**record, "session_median_ns": ";".join(repr(value) for value in medians)}.values())
    return text.getvalue()
