"""What a report says, as tables and sentences: the terminal and the page show the same."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from megakernel.operator.contract import BENCHMARK_WIDTH
from megakernel.record.session import Session
from megakernel.report.analysis import TARGET_ROWS, TARGET_SPEED_UP, Analysis, Target
from megakernel.report.compare import DEFAULT_ERROR_RATE, DEFAULT_THRESHOLD, Comparison, Rules
from megakernel.report.drift import drifts
from megakernel.report.penalties import CAVEAT, CONTROLS, Penalty
from megakernel.report.published import Published
from megakernel.report.summary import PYTHON_LAUNCH_OVERHEAD_NS, Row

# Whole in the quotes of a shell, or up to a space; after a space, a quote, an option's = or a compiler's -I or -L.
_ABSOLUTE_PATH = re.compile(r"(?<=')/[^']*(?=')|(?:(?<![^\s='\"])|(?<=-[IL]))/[^\s'\"]+")


@dataclass(frozen=True)
class Table:
    """A column is its heading and whether it holds numbers; every cell is text already."""

    title: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def us(ns: float | None) -> str:
    """Nanoseconds as microseconds, or a dash."""
    return "-" if ns is None else f"{ns / 1e3:.2f}"


def signed_us(ns: float) -> str:
    return f"{ns / 1e3:+.2f}"


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def main_table(analysis: Analysis) -> Table:
    """A line for each variant and row count: host completion, event interval, and what they are measured against."""
    several = len(analysis.sessions) > 1
    columns = [
        ("rows", True),
        *_width_column(analysis),
        ("variant", False),
        ("direct host", True),
        ("graph host", True),
    ]
    if several:
        columns.append(("session medians", False))
    columns += [("p10-p90", False), ("vs local fusion", True), ("graph event", True)]
    columns += [("event speed-up", True)]
    columns += [("host / copy", True), ("event / copy", True), ("published, H100", False)]
    body = []
    shapes = sorted({(row.rows, row.width) for row in analysis.rows if row.cache == "warm"})
    for rows, width in shapes:
        stand_in = analysis.stand_ins.pair(rows).local
        local = analysis.find(stand_in, rows, "graph", "host_completion", width=width)
        local_event = analysis.find(stand_in, rows, "graph", "event_interval", width=width)
        for variant in analysis.variants(rows):
            direct = analysis.find(variant, rows, "direct", "host_completion", width=width)
            graph = analysis.find(variant, rows, "graph", "host_completion", width=width)
            event = analysis.find(variant, rows, "graph", "event_interval", width=width)
            if direct is None and graph is None:
                continue
            shown = graph or direct
            assert shown is not None
            cells = [str(rows), *([str(width)] if len(analysis.widths) > 1 else []), variant]
            cells += [us(direct.mean_ns if direct else None), us(graph.mean_ns if graph else None)]
            if several:
                cells.append(" ".join(us(median) for median in shown.session_median_ns))
            rival = variant not in analysis.floors
            cells += [spread(analysis, shown), percent_of(graph, local) if rival else "-"]
            cells += [us(event.mean_ns if event else None), speed_up(local_event, event) if rival else "-"]
            cells += [ratio(graph.over_copy if graph else None), ratio(event.over_copy if event else None)]
            body.append((*cells, _published(analysis, variant, rows, width)))
    count = len(analysis.sessions)
    averaged = f"means of {count} session medians" if several else "medians of round values, one session"
    title = f"{analysis.device}, warm; microseconds per invocation, {averaged}"
    return Table(title, tuple(columns), tuple(body), tuple(main_notes(analysis)))


def _width_column(analysis: Analysis) -> list[tuple[str, bool]]:
    return [("width", True)] if len(analysis.widths) > 1 else []


def main_notes(analysis: Analysis) -> list[str]:
    widths = ", ".join(str(width) for width in analysis.widths)
    quantiles = "p10-p90 are the means of the sessions' own" if len(analysis.sessions) > 1 else "p10-p90 of its rounds"
    return [
        f"rows of {widths}; local fusion and megakernel: {analysis.stand_ins.source}; {quantiles}, of graph host "
        "completion; they are no confidence intervals; vs local fusion: graph host completion, negative is faster; "
        "event speed-up: local fusion's event interval over the variant's",
        f"published: {analysis.published.source}; host completion in microseconds, only what is stated there",
    ]


def spread(analysis: Analysis, row: Row) -> str:
    """p10 to p90, or in words why there is none."""
    if _fewest_rounds(analysis, row) < 2:
        return "one round"
    return f"{us(row.p10_ns)}-{us(row.p90_ns)}"


def _fewest_rounds(analysis: Analysis, row: Row) -> int:
    return min(
        len(series.rounds)
        for session in analysis.sessions
        for series in session.series
        if (series.variant, series.problem.rows, series.problem.width) == (row.variant, row.rows, row.width)
        and (series.submission, series.cache) == (row.submission, row.cache)
        and len(series.rounds)
    )


def percent_of(row: Row | None, local: Row | None) -> str:
    """Latency against local fusion's, in percent; negative is faster."""
    if row is None or local is None or row.variant == local.variant or not local.mean_ns > 0:
        return "-"
    return f"{100 * (row.mean_ns / local.mean_ns - 1):+.1f} %"


def speed_up(local: Row | None, row: Row | None) -> str:
    """Local fusion's time over this one's: of averages, never an average of ratios."""
    if row is None or local is None or row.variant == local.variant or not row.mean_ns > 0:
        return "-"
    return f"{local.mean_ns / row.mean_ns:.3f}"


def _published(analysis: Analysis, variant: str, rows: int, width: int) -> str:
    stated = {
        submission: analysis.published.time_ns(variant, rows, submission) if width == BENCHMARK_WIDTH else None
        for submission in ("direct", "graph")
    }
    return ", ".join(f"{name} {ns / 1e3:.1f}" for name, ns in stated.items() if ns is not None) or "-"


def target_lines(analysis: Analysis) -> list[str]:
    """The primary target for each pair, met or missed, in plain words."""
    return [target_line(target) for target in analysis.targets] + [
        f"published, {analysis.published.device}: the article's pair "
        f"{'met' if analysis.published.target_met else 'missed'} it; its speed-up is not stated"
    ]


def target_line(target: Target) -> str:
    asked = f"{TARGET_SPEED_UP} x event speed-up at {TARGET_ROWS} rows, {target.whose}"
    pair = f"{target.pair.local} / {target.pair.megakernel}"
    if target.speed_up is None:
        return f"target {asked} ({pair}): not measured in these files, on a GPU at width {BENCHMARK_WIDTH}"
    verdict = "MET" if target.met else "MISSED"
    times = f"{us(target.local_ns)} / {us(target.megakernel_ns)} us"
    return f"target {asked} ({pair}): {verdict}, {times} = {target.speed_up:.3f}"


def way_table(analysis: Analysis) -> Table | None:
    """Which way pays, step by step; None where no two of the ways were measured."""
    if not analysis.steps:
        return None
    columns = (
        *(("rows", True), *_width_column(analysis), ("adds", False), ("to", False), ("from us", True), ("to us", True)),
        *(("change", True), ("sessions", False), ("interval", False), ("verdict", False)),
    )
    body = []
    for step in analysis.steps:
        span = "too few rounds" if step.low is None or step.high is None else _span(step.low, step.high)
        cells = [str(step.rows), *([str(step.width)] if len(analysis.widths) > 1 else []), step.adds]
        cells += [", ".join(step.after), us(step.before_ns), us(step.after_ns), percent(step.change)]
        body.append((*cells, " ".join(percent(change) for change in step.session_change), span, step.verdict))
    return Table(
        "which way pays: host completion against the way before it, beginning with unfused direct launches",
        columns,
        tuple(body),
        (
            f"stands for its family: {analysis.stand_ins.source}; faster or slower: the interval of every session lies "
            f"beyond {100 * DEFAULT_THRESHOLD:g} %; intervals are of paired rounds, span the sessions' own, and by the "
            f"scatter of rounds this table holds a wrong verdict with a chance of about "
            f"{100 * DEFAULT_ERROR_RATE:g} %; what differs between devices or days is in no interval",
        ),
    )


def _span(low: float, high: float) -> str:
    return f"{percent(low)} to {percent(high)}"


def penalty_table(found: Sequence[Penalty], published: Published) -> Table | None:
    """What the controls show of retention, beside what was published; None where there are none."""
    if not found:
        return None
    columns = (
        *(("control", False), ("gives up", False), ("penalty", True), ("sessions", False), ("of", True)),
        *(("paired rounds", False), ("published, H100", True)),
    )
    body = []
    for penalty in found:
        stated_ns = published.penalties_ns.get(penalty.control) if penalty.width == BENCHMARK_WIDTH else None
        span = (
            f"{signed_us(penalty.least_ns)} to {signed_us(penalty.most_ns)}" if len(penalty.session_ns) > 1 else "one"
        )
        rounds = ", ".join(str(count) for count in penalty.paired_rounds)
        cells = [penalty.control, CONTROLS[penalty.control], signed_us(penalty.mean_ns), span]
        stated = "-" if stated_ns is None else signed_us(stated_ns)
        body.append((*cells, str(len(penalty.session_ns)), rounds, stated))
    title = (
        f"retention penalties at {found[0].rows} rows, graph replay: microseconds of host completion over "
        "control_retain; median of paired rounds, mean and range over sessions"
    )
    return Table(title, columns, tuple(body), (CAVEAT,))


def rate_table(analysis: Analysis) -> Table:
    """Bytes per second of graph replays."""
    columns = (
        *(("rows", True), ("variant", False), ("event us", True), ("declared MB", True), ("declared GB/s", True)),
        *(("above peak", False), ("compulsory GB/s", True)),
    )
    body = []
    for rate in sorted(analysis.rates, key=lambda rate: (rate.rows, rate.width)):
        flag = {None: "unknown", False: "no", True: "YES: L2"}[rate.above_peak]
        declared = "-" if rate.declared_bytes is None else f"{rate.declared_bytes / 1e6:.1f}"
        speed = "-" if rate.declared_gb_s is None else f"{rate.declared_gb_s:.0f}"
        cells = (str(rate.rows), rate.variant, us(rate.event_ns), declared, speed, flag)
        body.append((*cells, f"{rate.compulsory_gb_s:.0f}"))
    return Table(
        "achieved bytes per second, graph replay, warm: bytes over the event interval",
        columns,
        tuple(body),
        (
            "declared: all that the launches ask of global memory, before any cache; compulsory: x read once and y "
            "written once",
            "above the device memory's peak (its data sheet) a cache must have served part; below it, nothing follows",
        ),
    )


def evicted_table(analysis: Analysis) -> Table | None:
    """The evicted diagnostic beside the warm figure; None where none was measured."""
    body = []
    for row in sorted(analysis.rows, key=lambda row: row.rows):
        if (row.cache, row.metric) != ("evicted", "host_completion"):
            continue
        warm = analysis.find(row.variant, row.rows, row.submission, row.metric, width=row.width)
        difference = "-" if warm is None else signed_us(row.mean_ns - warm.mean_ns)
        cells = (str(row.rows), row.variant, row.submission, us(warm.mean_ns if warm else None), us(row.mean_ns))
        body.append((*cells, difference, ratio(row.over_copy)))
    if not body:
        return None
    columns = (
        *(("rows", True), ("variant", False), ("submission", False), ("warm host", True), ("evicted host", True)),
        *(("difference", True), ("evicted / copy", True)),
    )
    note = "a buffer larger than the L2 is read before each invocation; that everything is cold is not guaranteed"
    return Table("evicted diagnostic: host completion in microseconds", columns, tuple(body), (note,))


def comparison_table(comparisons: Sequence[Comparison], rules: Rules) -> Table:
    """A line for each comparison; what changed first."""
    order = {"slower": 0, "faster": 1, "ambiguous": 2, "same": 3}
    columns = (
        *(("verdict", False), ("rows", True), ("variant", False), ("submission", False), ("cache", False)),
        *(("metric", False), ("first", True), ("second", True), ("change", True), ("interval", False)),
        *(("floors", True), ("rounds", False), ("why", False)),
    )
    body = []
    for each in sorted(comparisons, key=lambda each: (order[each.verdict], each.rows)):
        span = "-" if each.low is None or each.high is None else _span(each.low, each.high)
        cells = [each.verdict, str(each.rows), each.variant, each.submission, each.cache, each.metric]
        cells += [us(each.first_median_ns), us(each.second_median_ns), percent(each.change), span]
        floors = "none" if each.floor_change is None else f"{100 * each.floor_change:.2f} %"
        body.append((*cells, floors, f"{each.first_rounds}, {each.second_rounds}", each.why or "-"))
    return Table(
        f"{len(comparisons)} comparisons, second run against first: medians of round values in microseconds",
        columns,
        tuple(body),
        (
            f"threshold {100 * rules.threshold:g} %; where nothing has changed, a wrong faster or slower anywhere in "
            f"this table has a chance of about {100 * rules.error_rate:g} %; intervals include what the floors moved",
        ),
    )


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.2f} %"


def verification_table(analysis: Analysis) -> Table:
    """What was verified, in each session."""
    columns = (
        *(("session", True), ("rows", True), ("variant", False), ("submission", False), ("before", False)),
        *(("after", False), ("checks", True), ("worst error / allowed", True), ("of", False)),
    )
    body = []
    for number, (session, details) in enumerate(zip(analysis.sessions, analysis.details, strict=True), 1):
        for series, of_series in zip(session.series, details.series, strict=True):
            after = {None: "not reached", True: "passed", False: "FAILED"}[series.verified_after]
            worst = "-" if of_series.worst_error is None else f"{of_series.worst_error:.2f}"
            cells = (str(number), str(series.problem.rows), series.variant, series.submission)
            before = "passed" if series.verified_before else "FAILED"
            checks = str(of_series.checks_before + of_series.checks_after)
            body.append((*cells, before, after, checks, worst, of_series.worst_check or "-"))
    return Table(
        "verified against a float64 reference, before timing and once more after it",
        columns,
        tuple(body),
        ("changed_input_…: the input was changed in place and the same executable run again",),
    )


def verification_lines(analysis: Analysis) -> list[str]:
    """How many series passed, before and after timing, and what failed."""
    lines = []
    for number, (session, details) in enumerate(zip(analysis.sessions, analysis.details, strict=True), 1):
        count = len(session.series)
        before = sum(series.verified_before for series in session.series)
        after = sum(series.verified_after is True for series in session.series)
        lines.append(f"Session {number}: {before} of {count} series passed before timing, {after} of {count} after it.")
        for series, of_series in zip(session.series, details.series, strict=True):
            where = f"{series.variant}, {series.problem.rows} rows, {series.submission}"
            lines += [f"FAILED: {where}: {check}" for check in of_series.failed]
    return lines


def resource_table(analysis: Analysis) -> Table:
    """What each kernel takes, of the first session."""
    columns = (
        *(("rows", True), ("variant", False), ("kernel", False), ("threads", True), ("registers", True)),
        *(("static B", True), ("dynamic B", True), ("spill B", True), ("blocks/SM", True), ("cap", True)),
    )
    body: dict[tuple[str, ...], None] = {}
    for series, of_series in zip(analysis.sessions[0].series, analysis.details[0].series, strict=True):
        for each in of_series.resources:
            numbers = [each.threads, each.registers, each.static_shared_bytes, each.dynamic_shared_bytes]
            numbers += [each.spill_bytes, each.blocks_per_sm, each.cap]
            cells = (str(series.problem.rows), series.variant, each.kernel, *(str(number) for number in numbers))
            body[cells] = None
    return Table("kernels: resources and residency", columns, tuple(body))


def provenance_table(analysis: Analysis) -> Table:
    """Where the numbers come from: a column for each session."""
    facts: dict[str, list[str]] = {}
    for position, (session, details) in enumerate(zip(analysis.sessions, analysis.details, strict=True)):
        pairs = {"file": session.path.rpartition("/")[2], **{k: v for k, v in session.attributes.items() if v}}
        pairs |= {f"device {name}": str(value) for name, value in session.device.items()}
        pairs |= {f"protocol {name}": str(value) for name, value in session.protocol.items()}
        pairs |= {name: _without_folders(text) for name, text in session.environment.items()}
        pairs |= {f"source {name}": digest[:16] for name, digest in details.kernel_sources.items()}
        pairs["SM clock"] = clock_range(analysis, position)
        pairs["frozen before"] = session.freeze_state
        pairs["throttled rounds"] = str(session.throttled_rounds)
        compilers = dict.fromkeys(
            ", ".join(f"{name} {_without_folders(value)}" for name, value in of_series.compiler.items())
            for of_series in details.series
        )
        pairs["compiled by"] = "; ".join(text for text in compilers if text) or "not recorded"
        for name, value in pairs.items():
            facts.setdefault(name, ["not recorded"] * len(analysis.sessions))[position] = value
    columns = (("", False), *((f"session {number + 1}", False) for number in range(len(analysis.sessions))))
    return Table("provenance", columns, tuple((name, *values) for name, values in facts.items()))


def _without_folders(text: str) -> str:
    """Absolute paths by their last name: a report is shown to others, and the session file keeps them whole."""
    return _ABSOLUTE_PATH.sub(lambda found: PurePosixPath(found[0]).name, text)


def clock_range(analysis: Analysis, position: int) -> str:
    """The lowest and highest SM clock read around rounds, in words."""
    clocks = [shape.sm_clock_mhz.ravel() for shape in analysis.details[position].shapes]
    read = np.concatenate(clocks) if clocks else np.empty(0)
    read = read[np.isfinite(read)]
    return f"{read.min():.0f} to {read.max():.0f} MHz" if len(read) else "unavailable"


def warnings(analysis: Analysis) -> list[str]:
    """All that a reader must know before the numbers."""
    lines = [line for session in analysis.sessions for line in session_notes(session)]
    if analysis.excluded_rounds:
        lines.append(f"{analysis.excluded_rounds} throttled rounds are excluded, as asked")
    uuids = {str(session.device.get("uuid")) for session in analysis.sessions}
    if len(analysis.sessions) == 1:
        lines.append("one session: there is no second median to compare with, and figures have no whiskers")
    elif len(uuids) < len(analysis.sessions):
        lines.append("the sessions ran on the same device: they say nothing of another one")
    lines += drift_lines(analysis)
    sources = [tuple(sorted(details.kernel_sources.items())) for details in analysis.details]
    if len(set(sources)) > 1:
        lines.append("the sessions were measured with different kernel sources")
    chosen: dict[tuple[str, int], set[str]] = {}
    for series in (series for session in analysis.sessions for series in session.series):
        if series.computes == "softmax":  # of a floor each session takes the fastest
            chosen.setdefault((series.variant, series.problem.rows), set()).add(series.configuration)
    lines += [
        f"{variant} ran in other configurations at {rows} rows ({' and '.join(sorted(configurations))}): their average "
        "is of different kernels"
        for (variant, rows), configurations in chosen.items()
        if len(configurations) > 1
    ]
    return lines


def session_notes(session: Session) -> list[str]:
    """What was wrong with one session."""
    notes = []
    if not session.complete:
        notes.append(f"INCOMPLETE: {session.interruption or 'the process ended'}")
    notes += [f"NOT AS FROZEN: {change}" for change in session.changes]
    if session.device.get("kind") == "emulator":
        notes.append("emulated on a CPU: the times say nothing about a GPU")
    if session.throttled_rounds:
        notes.append(f"{session.throttled_rounds} rounds were throttled (power or temperature); they are included")
    notes += [f"NOT TIMED: {refusal}" for refusal in session.refusals]
    wrong = [series for series in session.series if series.verified_after is False]
    notes += [f"WRONG after timing: {s.variant}, {s.problem.rows} rows, {s.submission}" for s in wrong]
    return notes


def python_note(sessions: Iterable[Session]) -> list[str]:
    """What Python adds to direct launches; nothing where there is none on a GPU."""
    for session in sessions:
        if session.device.get("kind") == "gpu" and any(s.submission == "direct" for s in session.series):
            return [
                f"direct launches are submitted from Python: up to {PYTHON_LAUNCH_OVERHEAD_NS / 1e3:.1f} us each of "
                "the host's time beyond C++, measured on an H200's host (docs/performance.md)"
            ]
    return []


def drift_lines(analysis: Analysis) -> list[str]:
    """Floors that wandered while a shape was measured: then comparisons within rounds alone are sound."""
    lines = []
    for number, session in enumerate(analysis.sessions, 1):
        for drift in drifts(session):
            where = f"session {number}: " if len(analysis.sessions) > 1 else ""
            lines.append(
                f"DRIFT: {where}{drift.variant}, {drift.rows} rows, {drift.submission}: the last third of the rounds "
                f"took {100 * drift.change:+.1f} % against the first"
            )
    return lines
