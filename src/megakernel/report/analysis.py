"""The analysis of one measurement: one session, or several that are averaged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from megakernel.errors import RecordError, UsageError
from megakernel.operator.contract import BENCHMARK_WIDTH
from megakernel.record.details import Details, load_details, without_throttled
from megakernel.record.reader import load
from megakernel.record.session import Session
from megakernel.report.penalties import Penalty, penalties
from megakernel.report.published import Published, load_published
from megakernel.report.rates import Rate, declared_bytes, peak_gb_s, rates
from megakernel.report.stand_ins import Pair, StandIns, article_pair
from megakernel.report.summary import Row, device_label, summarise
from megakernel.report.ways import Step, steps

TARGET_ROWS = 16
TARGET_SPEED_UP = 1.25


@dataclass(frozen=True)
class Target:
    """The primary target for one pair: event intervals of graph replays at 16 rows.

    Attributes:
        whose: whose pair it is.
        speed_up: of averaged latencies; None where a side was not measured, or not on a GPU at the benchmark's width.
    """

    whose: str
    pair: Pair
    local_ns: float | None
    megakernel_ns: float | None
    speed_up: float | None

    @property
    def met(self) -> bool | None:
        return None if self.speed_up is None else self.speed_up >= TARGET_SPEED_UP


@dataclass(frozen=True)
class Analysis:
    """Everything that tables, figures and the page show.

    Attributes:
        details: one for each session.
        excluded_rounds: throttled rounds left out on request.
    """

    sessions: tuple[Session, ...]
    details: tuple[Details, ...]
    rows: tuple[Row, ...]
    penalties: tuple[Penalty, ...]
    targets: tuple[Target, ...]
    steps: tuple[Step, ...]
    rates: tuple[Rate, ...]
    stand_ins: StandIns
    published: Published
    excluded_rounds: int = 0

    @property
    def device(self) -> str:
        return device_label(self.sessions[0])

    @property
    def floors(self) -> frozenset[str]:
        """The variants that compute something less than the operator."""
        return frozenset(s.variant for session in self.sessions for s in session.series if s.computes != "softmax")

    @property
    def row_counts(self) -> tuple[int, ...]:
        return tuple(sorted({row.rows for row in self.rows}))

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(sorted({row.width for row in self.rows}))

    def find(
        self, variant: str, rows: int, submission: str, metric: str, cache: str = "warm", width: int | None = None
    ) -> Row | None:
        """The row of that name; of several widths the first, unless one is given."""
        for row in self.rows:
            found = (row.variant, row.rows, row.submission, row.metric, row.cache)
            if found == (variant, rows, submission, metric, cache) and width in (None, row.width):
                return row
        return None

    def variants(self, rows: int | None = None) -> tuple[str, ...]:
        """The variants measured (at a row count), in the order of the files."""
        return tuple(dict.fromkeys(row.variant for row in self.rows if rows in (None, row.rows)))


def frozen_pairs(sessions: Sequence[Session]) -> dict[int, Pair]:
    """What the pilot had chosen before these sessions, by row count.

    Raises:
        RecordError: the sessions had different stand-ins, so that no one pair is theirs.
    """
    found: dict[int, Pair] = {}
    for session in sessions:
        for rows, chosen in session.stand_ins.items():
            pair = Pair(chosen.local, chosen.megakernel)
            if found.setdefault(rows, pair) != pair:
                raise RecordError(f"{session.path}: at {rows} rows {pair} stands, and in another session {found[rows]}")
    return found


def analyse(
    paths: Sequence[Path], frozen: Mapping[int, Pair] | None = None, *, exclude_throttled: bool = False
) -> Analysis:
    """Loads and analyses the files of one measurement; ``frozen`` pairs take the place of those in the files.

    Raises:
        UsageError: a file is given twice: it would look like two sessions that agree.
        RecordError: a file holds no finished round, or the files do not belong together.
    """
    sessions, details, excluded = _load_all(paths, exclude_throttled=exclude_throttled)
    rows = summarise(*sessions)
    on_gpu = sessions[0].device.get("kind") != "emulator"
    stand_ins = StandIns(frozen_pairs(sessions) if frozen is None else frozen)
    bytes_of = {
        (series.variant, series.problem.rows, series.problem.width): declared_bytes(series, of_series)
        for session, of_session in zip(sessions, details, strict=True)
        for series, of_series in zip(session.series, of_session.series, strict=True)
        if series.cache == "warm" and series.submission == "graph"
    }
    return Analysis(
        sessions=tuple(sessions),
        details=tuple(details),
        rows=tuple(rows),
        penalties=tuple(penalties(sessions)),
        targets=tuple(targets(rows if on_gpu else [], stand_ins)),
        steps=tuple(steps(sessions if on_gpu else [], stand_ins)),
        rates=tuple(rates(rows, bytes_of, peak_gb_s(str(sessions[0].device.get("name", ""))) if on_gpu else None)),
        stand_ins=stand_ins,
        published=load_published(),
        excluded_rounds=excluded,
    )


def load_pair(first: Path, second: Path, *, exclude_throttled: bool = False) -> tuple[Session, Session, int]:
    """Two runs to compare, and how many throttled rounds were left out.

    Raises:
        UsageError: they are the same run.
        RecordError: one holds no finished round.
    """
    (one, other), _, excluded = _load_all([first, second], exclude_throttled=exclude_throttled)
    return one, other, excluded


def _load_all(paths: Sequence[Path], *, exclude_throttled: bool) -> tuple[list[Session], list[Details], int]:
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a file is given twice: give each session once")
    sessions = [load_finished(path) for path in paths]
    if any(_same_samples(*two) for two in combinations(sessions, 2)):
        raise UsageError("two of the files hold the same samples: give each session once")
    details = [load_details(path) for path in paths]
    excluded = 0
    if exclude_throttled:
        for position, (session, of_session) in enumerate(zip(sessions, details, strict=True)):
            sessions[position], count = without_throttled(session, of_session)
            excluded += count
    return sessions, details, excluded


def _same_samples(first: Session, second: Session) -> bool:
    """Whether one file is a copy of the other, under whatever name."""
    pairs = list(zip(first.series, second.series, strict=False))
    return len(first.series) == len(second.series) and all(
        one.variant == other.variant and np.array_equal(one.singles_ns, other.singles_ns) for one, other in pairs
    )


def load_finished(path: Path) -> Session:
    """Loads a session that has something to show.

    Raises:
        RecordError: it holds no finished round.
    """
    session = load(path)
    if not any(len(series.rounds) for series in session.series):
        why = f": {session.interruption}" if session.interruption else ""
        raise RecordError(f"{path} holds no finished round{why}")
    return session


def targets(rows: Sequence[Row], stand_ins: StandIns) -> list[Target]:
    """The article's pair first; then the pilot's, where one was frozen. No other shape takes the place of theirs."""
    event_ns = {
        row.variant: row.mean_ns
        for row in rows
        if (row.rows, row.width) == (TARGET_ROWS, BENCHMARK_WIDTH)
        and (row.submission, row.metric, row.cache) == ("graph", "event_interval", "warm")
    }
    pairs = [("the article's pair", article_pair(TARGET_ROWS))]
    if TARGET_ROWS in stand_ins.frozen:
        pairs.append(("the pilot's pair", stand_ins.frozen[TARGET_ROWS]))
    found = []
    for whose, pair in pairs:
        local, megakernel = event_ns.get(pair.local), event_ns.get(pair.megakernel)
        speed_up = local / megakernel if local and megakernel else None
        found.append(Target(whose, pair, local, megakernel, speed_up))
    return found
