"""Reduces a session's samples to medians and quantiles. Nothing here knows how they were taken."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from megakernel.record.protocol import METRICS
from megakernel.record.session import Series, Session

# What submitting one launch from Python costs beyond C++: measured, data/h200/launch_loops.json (nine launches).
PYTHON_LAUNCH_OVERHEAD_NS = 1400


@dataclass(frozen=True)
class Row:
    """One metric of one series: quantiles of its round values, in nanoseconds per invocation.

    Attributes:
        over_copy: the median over that of ``copy`` in the same run, shape, submission and metric; None where
            the run has no ``copy``.
    """

    device: str
    variant: str
    rows: int
    width: int
    submission: str
    metric: str
    median_ns: float
    p10_ns: float
    p90_ns: float
    over_copy: float | None


def round_values(series: Series, metric: str) -> NDArray[np.float64]:
    """One value for each round: of single invocations their median, of a batch its time per invocation."""
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
    return f"{name} (emulated)" if session.device.get("kind") == "emulator" else name


def summarise(session: Session) -> list[Row]:
    """A row for each metric of each series that has samples, in the order of the file."""
    measured = [series for series in session.series if len(series.rounds) and series.cache == "warm"]
    copies = {
        (series.problem, series.submission, metric): float(np.median(round_values(series, metric)))
        for series in measured
        if series.computes == "copy"
        for metric in METRICS
    }
    label = device_label(session)
    rows = []
    for series in measured:
        for metric in METRICS:
            p10, median, p90 = np.percentile(round_values(series, metric), [10, 50, 90])  # linear interpolation
            copy = copies.get((series.problem, series.submission, metric))
            rows.append(
                Row(
                    device=label,
                    variant=series.variant,
                    rows=series.problem.rows,
                    width=series.problem.width,
                    submission=series.submission,
                    metric=metric,
                    median_ns=float(median),
                    p10_ns=float(p10),
                    p90_ns=float(p90),
                    over_copy=float(median) / copy if copy else None,
                )
            )
    return rows


def records(rows: Iterable[Row]) -> list[dict[str, object]]:
    """The rows as plain records, for JSON."""
    return [asdict(row) for row in rows]
