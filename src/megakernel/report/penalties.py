"""What it costs the megakernel to give up what it keeps in shared memory: the same-binary controls, compared.

A session's penalty is the median of the differences within its rounds, which drift does not touch; of several
sessions the mean is given, and their range. It describes those sessions and is no confidence interval.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from megakernel.record.session import Series, Session
from megakernel.report.summary import round_values

BASELINE = "control_retain"
CONTROLS = {
    "control_reload": "reload the input",
    "control_spill": "write the exponentials and read them back",
    "control_both": "both",
}
PENALTY_ROWS = 16
METRIC = "host_completion"
SUBMISSION = "graph"
CAVEAT = (
    "reloaded values are staged through shared memory with a block synchronisation: the penalties include that, and "
    "do not isolate memory access"
)


@dataclass(frozen=True)
class Penalty:
    """One control against the one that retains: host completion of graph replays.

    Attributes:
        session_ns: the median round-paired difference of each session that holds both.
        paired_rounds: how many rounds each of those medians is of.
        mean_ns: of the sessions.
    """

    control: str
    rows: int
    width: int
    session_ns: tuple[float, ...]
    paired_rounds: tuple[int, ...]
    mean_ns: float
    least_ns: float
    most_ns: float


def penalties(sessions: Iterable[Session], rows: int = PENALTY_ROWS) -> list[Penalty]:
    """The penalty of each control that was measured at ``rows`` rows; empty where none was.

    A session that lacks a control, or shares no round between it and the baseline, adds nothing to it.
    """
    found: dict[tuple[int, str], list[tuple[float, int]]] = {}
    for session in sessions:
        subjects = {(series.problem.width, series.variant): series for series in _controls(session, rows)}
        for width, variant in subjects:
            baseline = subjects.get((width, BASELINE))
            if variant not in CONTROLS or baseline is None:
                continue
            difference_ns = paired_differences(subjects[width, variant], baseline, METRIC)
            if len(difference_ns):
                found.setdefault((width, variant), []).append((float(np.median(difference_ns)), len(difference_ns)))
    order = list(CONTROLS)
    return [
        Penalty(
            control=control,
            rows=rows,
            width=width,
            session_ns=tuple(value for value, _ in medians),
            paired_rounds=tuple(count for _, count in medians),
            mean_ns=float(np.mean([value for value, _ in medians])),
            least_ns=min(value for value, _ in medians),
            most_ns=max(value for value, _ in medians),
        )
        for (width, control), medians in sorted(found.items(), key=lambda item: (item[0][0], order.index(item[0][1])))
    ]


def paired_differences(series: Series, baseline: Series, metric: str) -> np.ndarray:
    """The difference of the two in each round that both have, in nanoseconds per invocation."""
    _, of_series, of_baseline = np.intersect1d(series.rounds, baseline.rounds, return_indices=True)
    return np.asarray(round_values(series, metric)[of_series] - round_values(baseline, metric)[of_baseline], np.float64)


def penalty_records(found: Iterable[Penalty]) -> list[dict[str, object]]:
    """The penalties as plain records, for JSON."""
    return [asdict(penalty) for penalty in found]


def _controls(session: Session, rows: int) -> list[Series]:
    """Warm series of the controls; an evicted one is a diagnostic and never stands in for them."""
    return [
        series
        for series in session.series
        if series.problem.rows == rows
        and series.submission == SUBMISSION
        and (series.variant in CONTROLS or series.variant == BASELINE)
        and series.cache == "warm"
        and len(series.rounds)
    ]
