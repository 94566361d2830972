"""Which way of running pays: each step from direct launches over CUDA Graphs and local fusion to the megakernel.

A step compares two series of one session round by round, so that drift cancels: the ratio of the medians, with the
bootstrap's interval (``compare``) at a level corrected for the number of intervals. Sessions are not pooled: a step is
faster or slower where every session says so, each with its whole interval beyond the threshold.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from megakernel.operator.contract import Problem
from megakernel.record.session import Session
from megakernel.report.compare import (
    DEFAULT_ERROR_RATE,
    DEFAULT_THRESHOLD,
    Verdict,
    interval,
    least_rounds,
    verdict_of,
)
from megakernel.report.stand_ins import StandIns
from megakernel.report.summary import round_values

METRIC = "host_completion"
BASELINE = "unfused"

_Way = tuple[str, str]  # variant, submission
_Paired = tuple[NDArray[np.float64], NDArray[np.float64]]  # values of the rounds that both have


@dataclass(frozen=True)
class Step:
    """One way of running against the way before it: host completion in nanoseconds per invocation.

    Attributes:
        adds: what the step adds, in words.
        before, after: variant and submission.
        change: of the averaged medians, relative to ``before``; negative is faster.
        session_change: of each session's own medians.
        low, high: span the intervals of the sessions; None where a session has too few rounds for one.
    """

    adds: str
    rows: int
    width: int
    before: _Way
    after: _Way
    before_ns: float
    after_ns: float
    change: float
    session_change: tuple[float, ...]
    low: float | None
    high: float | None
    verdict: Verdict


def steps(sessions: Sequence[Session], stand_ins: StandIns) -> list[Step]:
    """The steps of each shape whose two ways were measured in the same rounds, by row count."""
    problems = {series.problem for session in sessions for series in session.series}
    found = [
        (adds, problem, before, after, paired)
        for problem in sorted(problems, key=lambda problem: (problem.rows, problem.width))
        for adds, before, after in _chain(stand_ins, problem.rows)
        if (paired := [p for session in sessions if (p := _paired(session, problem, before, after)) is not None])
    ]
    error_rate = DEFAULT_ERROR_RATE / max(1, sum(len(paired) for *_, paired in found))
    return [_step(*each, error_rate) for each in found]


def _chain(stand_ins: StandIns, rows: int) -> Iterable[tuple[str, _Way, _Way]]:
    pair = stand_ins.pair(rows)
    direct, graph, local = (BASELINE, "direct"), (BASELINE, "graph"), (pair.local, "graph")
    yield "CUDA Graph", direct, graph
    yield "local fusion", graph, local
    yield "megakernel", local, (pair.megakernel, "graph")


def _paired(session: Session, problem: Problem, before: _Way, after: _Way) -> _Paired | None:
    """The values of the rounds that both have; None where they share none, or a round took no time."""
    found = {(s.variant, s.submission): s for s in session.series if s.problem == problem and s.cache == "warm"}
    if before not in found or after not in found:
        return None
    one, other = found[before], found[after]
    _, of_one, of_other = np.intersect1d(one.rounds, other.rounds, return_indices=True)
    first, second = round_values(one, METRIC)[of_one], round_values(other, METRIC)[of_other]
    return (first, second) if len(first) and min(first.min(), second.min()) > 0 else None


def _step(adds: str, problem: Problem, before: _Way, after: _Way, paired: Sequence[_Paired], error_rate: float) -> Step:
    medians_ns = np.array([[np.median(first), np.median(second)] for first, second in paired])
    before_ns, after_ns = medians_ns.mean(axis=0)
    low, high, verdict = _judged(paired, error_rate)
    return Step(
        adds=adds,
        rows=problem.rows,
        width=problem.width,
        before=before,
        after=after,
        before_ns=float(before_ns),
        after_ns=float(after_ns),
        change=float(after_ns / before_ns - 1),
        session_change=tuple(float(second / first - 1) for first, second in medians_ns),
        low=low,
        high=high,
        verdict=verdict,
    )


def _judged(paired: Sequence[_Paired], error_rate: float) -> tuple[float | None, float | None, Verdict]:
    if any(len(first) < least_rounds(error_rate) for first, _ in paired):
        return None, None, "ambiguous"
    spans = np.array([np.expm1(interval(*values, 1 - error_rate, seed=0, paired=True)[1:]) for values in paired])
    # Spanning all sessions' intervals, it lies beyond the threshold only where each of them does.
    low, high = float(spans[:, 0].min()), float(spans[:, 1].max())
    return low, high, verdict_of(low, high, DEFAULT_THRESHOLD)[0]
