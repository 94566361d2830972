"""Whether something wandered while a shape was measured: clocks, temperature, another user of the GPU."""

from dataclasses import dataclass

import numpy as np

from megakernel.record.session import Session
from megakernel.report.summary import round_values

DRIFT_THRESHOLD = 0.03
_LEAST_ROUNDS = 9


@dataclass(frozen=True)
class Drift:
    """``change`` is the relative change of the median from the first third of the rounds to the last."""

    variant: str
    rows: int
    submission: str
    change: float


def drifts(session: Session) -> list[Drift]:
    """Warm graph replays whose host completion changed by more than the threshold, beyond what their rounds scatter.

    Fewer than nine rounds are too few to tell.
    """
    found = []
    for series in session.series:
        values = round_values(series, "host_completion")
        if len(values) < _LEAST_ROUNDS or series.submission != "graph" or series.cache != "warm":
            continue
        third = len(values) // 3
        first, last = values[:third], values[-third:]
        change = float(np.median(last) / np.median(first) - 1) if np.median(first) > 0 else 0.0
        apart = last.min() > first.max() or last.max() < first.min()
        if abs(change) > DRIFT_THRESHOLD and apart:
            found.append(Drift(series.variant, series.problem.rows, series.submission, change))
    return found
