"""Whether one run is faster or slower than another, series by series. ``docs/compare.md`` states the method.

Each comparison is the ratio of the two medians of round values. Its interval comes from resampling rounds (percentiles
of the bootstrap), at a level corrected for the number of comparisons (Bonferroni), and is then widened by what the
floors moved between the runs. An interval wholly beyond the threshold is a verdict, one wholly within it says that the
two are the same, and any other is ambiguous.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from megakernel.errors import RecordError, UsageError
from megakernel.operator.contract import Problem
from megakernel.record.protocol import METRICS
from megakernel.record.session import Series, Session
from megakernel.report.summary import differing_fields, round_values

Verdict = Literal["faster", "slower", "same", "ambiguous"]

DEFAULT_METRICS = ("host_completion", "event_interval")
DEFAULT_THRESHOLD = 0.01
DEFAULT_ERROR_RATE = 0.05
_LEAST_RESAMPLES = 10_000
_MOST_RESAMPLES = 100_000  # beyond, a comparison takes a tenth of a second and more
_FLOOR_LEVEL = 0.95

_Key = tuple[str, Problem, str, str]  # variant, problem, submission, cache


@dataclass(frozen=True)
class Rules:
    """What counts as a change.

    Attributes:
        threshold: relative change that matters; smaller ones are called the same.
        error_rate: of a wrong faster or slower anywhere in the whole table, where nothing has changed.
        seed: of the bootstrap.
    """

    metrics: tuple[str, ...] = DEFAULT_METRICS
    threshold: float = DEFAULT_THRESHOLD
    error_rate: float = DEFAULT_ERROR_RATE
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise UsageError(f"threshold is {self.threshold}: give a relative change from 0 to below 1, such as 0.01")
        if not 0 < self.error_rate < 1:
            raise UsageError(f"error rate is {self.error_rate}: give more than 0 and less than 1, such as 0.05")
        for metric in self.metrics:
            if metric not in METRICS:
                raise UsageError(f"unknown metric {metric!r}: choose from {', '.join(METRICS)}")


@dataclass(frozen=True)
class Comparison:
    """One metric of one series in both runs.

    Attributes:
        change: of the median, relative to the first run; None where it cannot be said. ``low`` and ``high`` are its
            interval, with ``floor_change`` in it.
        floor_change: what the floors moved, relative to this series; None where the runs share no floor.
        why: what kept it from a verdict; empty otherwise.
    """

    variant: str
    rows: int
    width: int
    submission: str
    cache: str
    metric: str
    first_median_ns: float
    second_median_ns: float
    first_rounds: int
    second_rounds: int
    change: float | None
    low: float | None
    high: float | None
    floor_change: float | None
    verdict: Verdict
    why: str


def require_comparable(first: Session, second: Session, *, allow_different: bool) -> list[str]:
    """The fields in which the runs differ, once that is allowed.

    Raises:
        RecordError: they differ, and that is not allowed; an emulated run is never compared with one on a GPU.
    """
    differing = differing_fields(first, second)
    uuids = (first.device.get("uuid"), second.device.get("uuid"))
    if uuids[0] != uuids[1]:
        differing.insert(0, f"device uuid ({uuids[0]} and {uuids[1]})")
    runs = f"{first.path} and {second.path}"
    if first.device.get("kind") != second.device.get("kind"):
        raise RecordError(f"{runs} are of an emulated and a real device: such runs are never compared")
    if differing and not allow_different:
        raise RecordError(f"{runs} differ in {', '.join(differing)}: compare them with --allow-different")
    return differing


def compare(first: Session, second: Session, rules: Rules) -> list[Comparison]:
    """A comparison for each series and metric that both runs have; the floors are the yardstick and have none.

    Raises:
        RecordError: the runs share no series.
    """
    of_first, of_second = _by_key(first), _by_key(second)
    subjects = [
        (key, metric)
        for key in of_first
        if key in of_second and of_first[key].computes == "softmax"
        for metric in rules.metrics
        if len(round_values(of_first[key], metric)) and len(round_values(of_second[key], metric))
    ]
    if not subjects:
        raise RecordError(f"{first.path} and {second.path} have no series in common: nothing to compare")
    floors = {metric: _moved_floors(of_first, of_second, metric, rules.seed) for metric in rules.metrics}
    return [
        _comparison(
            key,
            metric,
            of_first[key],
            of_second[key],
            floors[metric].get(key[1:], []),
            rules,
            comparisons=len(subjects),
        )
        for key, metric in subjects
    ]


def missing(first: Session, second: Session) -> list[str]:
    """What only one of the runs has, in words."""
    of_first, of_second = _by_key(first), _by_key(second)
    return [
        f"only in {session.path}: {variant}, {problem.rows} rows of {problem.width}, {submission}, {cache}"
        for session, keys in ((first, of_first.keys() - of_second.keys()), (second, of_second.keys() - of_first.keys()))
        for variant, problem, submission, cache in sorted(keys, key=lambda key: (key[1].rows, key[0], key[2], key[3]))
    ]


def not_right(first: Session, second: Session) -> list[str]:
    """What was wrong after timing in either run, or could be timed in the first and was refused in the second."""
    timed = _by_key(first).keys() - _by_key(second).keys()
    refused = [line for line in second.refusals if any(line.startswith(f"{key[0]},") for key in timed)]
    wrong = [
        f"{session.path}: {series.variant}, {series.problem.rows} rows, {series.submission} was wrong after timing"
        for session in (first, second)
        for series in session.series
        if series.verified_after is False
    ]
    return [*wrong, *(f"{second.path}: not timed: {line}" for line in refused)]


def interval(
    first: NDArray[np.float64], second: NDArray[np.float64], level: float, seed: int, *, paired: bool
) -> tuple[float, float, float]:
    """The logarithm of the ratio of medians, second over first, and its interval at a level.

    Where ``paired``, the same rounds are drawn from both, so that what they share by their place in the run cancels.
    """
    random = np.random.default_rng(seed)
    resamples = min(max(_LEAST_RESAMPLES, _needed_resamples(1 - level)), _MOST_RESAMPLES)
    picks = random.integers(len(first), size=(resamples, len(first)))
    other_picks = picks if paired else random.integers(len(second), size=(resamples, len(second)))
    logs = np.log(np.median(second[other_picks], axis=1)) - np.log(np.median(first[picks], axis=1))
    low, high = np.quantile(logs, [(1 - level) / 2, (1 + level) / 2])
    return math.log(float(np.median(second)) / float(np.median(first))), float(low), float(high)


def least_rounds(error_rate: float) -> int:
    """How many rounds an interval of that error needs: all of ``n`` may lie on one side of the median with 2^(1-n)."""
    return math.ceil(1 - math.log2(error_rate))


def _needed_resamples(error_rate: float) -> int:
    """How many resamples leave one beyond each end of an interval of that error."""
    return math.ceil(2 / error_rate)


def _comparison(
    key: _Key,
    metric: str,
    first_series: Series,
    second_series: Series,
    floors: Sequence[tuple[str, float, float]],
    rules: Rules,
    comparisons: int,
) -> Comparison:
    variant, problem, submission, cache = key
    first, second = round_values(first_series, metric), round_values(second_series, metric)
    medians = (float(np.median(first)), float(np.median(second)))
    floor = _share_of(floors, medians[0])
    change: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "ambiguous"
    error_rate = rules.error_rate / comparisons
    fewest, needed = min(len(first), len(second)), least_rounds(error_rate)
    if min(first.min(), second.min()) <= 0:
        why = "a round took no time"
    elif fewest < needed:
        why = f"{fewest} round{'s' if fewest > 1 else ''}: {comparisons} comparisons need {needed}"
    elif _needed_resamples(error_rate) > _MOST_RESAMPLES:
        why = f"{_MOST_RESAMPLES} resamples cannot tell an error of {error_rate:.1g}: name fewer metrics"
    else:
        paired = np.array_equal(first_series.rounds, second_series.rounds)
        estimate, lower, upper = interval(first, second, 1 - error_rate, rules.seed, paired=paired)
        allowance = math.log1p(floor) if floor else 0.0
        change, low, high = math.expm1(estimate), math.expm1(lower - allowance), math.expm1(upper + allowance)
        verdict, why = verdict_of(low, high, rules.threshold)
    return Comparison(
        variant=variant,
        rows=problem.rows,
        width=problem.width,
        submission=submission,
        cache=cache,
        metric=metric,
        first_median_ns=medians[0],
        second_median_ns=medians[1],
        first_rounds=len(first),
        second_rounds=len(second),
        change=change,
        low=low,
        high=high,
        floor_change=floor,
        verdict=verdict,
        why=why,
    )


def verdict_of(low: float, high: float, threshold: float) -> tuple[Verdict, str]:
    """What an interval of relative changes says, and what kept it from a verdict."""
    if low > threshold:
        return "slower", ""
    if high < -threshold:
        return "faster", ""
    if -threshold <= low and high <= threshold:
        return "same", ""
    return "ambiguous", "the interval crosses the threshold"


def _moved_floors(
    of_first: dict[_Key, Series], of_second: dict[_Key, Series], metric: str, seed: int
) -> dict[tuple[Problem, str, str], list[tuple[str, float, float]]]:
    """By problem, submission and cache: what each floor computes, its time, and how far it has certainly moved.

    What lies within the scatter of a floor's rounds is no movement.
    """
    moved: dict[tuple[Problem, str, str], list[tuple[str, float, float]]] = {}
    for key, series in of_first.items():
        if series.computes == "softmax" or key not in of_second:
            continue
        other = of_second[key]
        values, other_values = round_values(series, metric), round_values(other, metric)
        if len(values) and len(other_values) and min(values.min(), other_values.min()) > 0:
            paired = np.array_equal(series.rounds, other.rounds)
            estimate, low, high = interval(values, other_values, _FLOOR_LEVEL, seed, paired=paired)
            change = 0.0 if low <= 0 <= high else abs(math.expm1(estimate))
            moved.setdefault(key[1:], []).append((series.computes, float(np.median(values)), change))
    return moved


def _share_of(floors: Sequence[tuple[str, float, float]], median_ns: float) -> float | None:
    """What the floors moved, as a share of a series' time; None without floors.

    An empty launch tells what a launch costs more or less, in nanoseconds; the copy how much slower everything is.
    """
    if not median_ns > 0:
        return None
    shares = [change * (ns / median_ns if computes == "nothing" else 1.0) for computes, ns, change in floors]
    return max(shares, default=None)


def _by_key(session: Session) -> dict[_Key, Series]:
    return {
        (series.variant, series.problem, series.submission, series.cache): series
        for series in session.series
        if len(series.rounds)
    }


def overall(comparisons: Sequence[Comparison]) -> Verdict:
    """Slower where anything is; else ambiguous where anything is; else faster where anything is."""
    found = {comparison.verdict for comparison in comparisons}
    order: tuple[Verdict, ...] = ("slower", "ambiguous", "faster")
    return next((verdict for verdict in order if verdict in found), "same")


def comparison_records(comparisons: Iterable[Comparison]) -> list[dict[str, object]]:
    """The comparisons as plain records, for JSON."""
    return [asdict(comparison) for comparison in comparisons]
