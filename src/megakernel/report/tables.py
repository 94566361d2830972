"""Tables and messages for people: the only module that uses Rich.

Names and values are printed verbatim, never read as markup. Where output is piped, tables are as wide as
their content and carry no control codes. A terminal may wrap a table; nothing is ever cut.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from megakernel.errors import printable
from megakernel.record.facts import DeviceFacts
from megakernel.record.protocol import METRICS, Cache
from megakernel.record.session import Series, Session
from megakernel.record.verification import Result
from megakernel.report.analysis import Analysis
from megakernel.report.content import (
    Table,
    evicted_table,
    main_table,
    penalty_table,
    python_note,
    rate_table,
    ratio,
    session_notes,
    target_lines,
    us,
    warnings,
    way_table,
)
from megakernel.report.findings import Audit, Kind
from megakernel.report.penalties import penalties
from megakernel.report.published import load_published
from megakernel.report.summary import PYTHON_LAUNCH_OVERHEAD_NS, Row, device_label, summarise
from megakernel.variants.frozen import Entry, Figures

# Wider than any table: Rich would cut what does not fit, and a number that is cut is lost.
_WIDTH = 400


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves the exit code to the command line."""
        raise BrokenPipeError


def _console() -> Console:
    return _Console(markup=False, highlight=False, emoji=False, width=_WIDTH, no_color=not sys.stdout.isatty())


def _text(value: object) -> Text:
    """Never markup; what standard output cannot encode is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    return Text(printable(str(value)).encode(encoding, "backslashreplace").decode(encoding))


def print_json(value: object) -> None:
    """JSON on standard output, and nothing else there."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Text on standard output as it is, and nothing else there."""
    sys.stdout.write(text)


def print_table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Prints a table; a column is its heading and whether it holds numbers."""
    if title:
        print_lines([title])
    table = RichTable(box=None, pad_edge=False)
    for heading, numeric in columns:
        table.add_column(_text(heading), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_text(cell) for cell in row))
    _console().print(table)


def print_lines(lines: Iterable[str]) -> None:
    console = _console()
    for line in lines:
        console.print(_text(line), soft_wrap=True)


def progress_bar() -> Progress:
    """On standard error, and only where that is a terminal."""
    console = Console(stderr=True, markup=False, highlight=False)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def print_content(table: Table | None) -> None:
    """A table with its notes; nothing where there is none."""
    if table is not None:
        print_table(table.columns, table.rows, table.title)
        print_lines([*table.notes, ""])


def print_report(analysis: Analysis) -> None:
    """The whole analysis: what to know first, the figures, and last, where a terminal shows it, what they say."""
    print_lines([*warnings(analysis), *python_note(analysis.sessions), ""])
    print_content(evicted_table(analysis))
    print_content(rate_table(analysis))
    print_content(main_table(analysis))
    print_content(penalty_table(analysis.penalties, analysis.published))
    print_content(way_table(analysis))
    print_lines(target_lines(analysis))


def pair_notes(first: Session, second: Session, excluded: int) -> list[str]:
    """What to know of two runs before their comparison."""
    lines = [f"{session.path}: {line}" for session in (first, second) for line in session_notes(session)]
    return lines + ([f"{excluded} throttled rounds are excluded, as asked"] if excluded else [])


def print_session(session: Session, *, everything: bool = False) -> None:
    """A line for each variant and shape; with ``everything`` one for each series, with all metrics."""
    if everything:
        _print_all_metrics(session)
    else:
        _print_compact(session)
    print_lines([*session_notes(session), *python_note([session])])
    table = penalty_table(penalties([session]), load_published())
    if table is not None:
        print_lines([""])
        print_content(table)


def _print_compact(session: Session) -> None:
    """Host completion by direct launch and graph replay, and the replay's event interval."""
    rows = summarise(session)
    caches = {row.cache for row in rows}
    lines: dict[tuple[int, int, str, Cache], dict[tuple[str, str], Row]] = {}
    for row in rows:
        line = lines.setdefault((row.rows, row.width, row.variant, row.cache), {})
        line[row.submission, row.metric] = row
    known = {(s.problem.rows, s.problem.width, s.variant, s.cache): s for s in session.series}
    columns = [("rows", True), ("variant", False), *([("cache", False)] if len(caches) > 1 else [])]
    columns += [("tile", False), ("launches", True), ("direct host", True), ("graph host", True), ("p10-p90", False)]
    columns += [("graph event", True), ("host / copy", True), ("event / copy", True)]
    body = []
    for key, line in sorted(lines.items(), key=lambda item: item[0][0:2]):
        count, _, variant, cache = key
        series = known[key]
        host, event = line.get(("graph", "host_completion")), line.get(("graph", "event_interval"))
        direct = line.get(("direct", "host_completion"))
        cells: list[object] = [count, variant, *([cache] if len(caches) > 1 else [])]
        cells += [series.configuration, series.launches, us(direct.mean_ns if direct else None)]
        shown = host or direct
        cells += [us(host.mean_ns if host else None), _spread(shown, len(series.rounds)) if shown else "-"]
        cells += [us(event.mean_ns if event else None)]
        cells += [ratio(host.over_copy if host else None), ratio(event.over_copy if event else None)]
        body.append(cells)
    print_table(columns, body, f"{_title(session, rows)}: medians of round values, p10-p90 of graph host")


def _print_all_metrics(session: Session) -> None:
    """The four metrics of every series, with the ratio to ``copy`` of the same run."""
    rows = summarise(session)
    by_series: dict[tuple[str, int, int, str, Cache], dict[str, Row]] = {}
    for row in rows:
        key = (row.variant, row.rows, row.width, row.submission, row.cache)
        by_series.setdefault(key, {})[row.metric] = row
    known: dict[tuple[str, int, int, str, str], Series] = {
        (s.variant, s.problem.rows, s.problem.width, s.submission, s.cache): s for s in session.series
    }
    columns = [("rows", True), ("variant", False), ("submission", False), ("cache", False), ("tile", False)]
    columns += [("launches", True)]
    for metric in METRICS:
        columns += [(metric, True), ("p10-p90", True)]
    columns += [("of python", True), ("host / copy", True), ("event / copy", True)]
    body = []
    for key, metrics in sorted(by_series.items(), key=lambda item: item[0][1]):
        variant, count, _, submission, cache = key
        series = known[key]
        cells: list[object] = [count, variant, submission, cache, series.configuration, series.launches]
        for metric in METRICS:
            measured = metrics.get(metric)
            cells += [us(measured.mean_ns), _spread(measured, len(series.rounds))] if measured else ["-", "-"]
        of_python = submission == "direct" and session.device.get("kind") == "gpu"
        cells.append(f"{series.launches * PYTHON_LAUNCH_OVERHEAD_NS / 1e3:.1f}" if of_python else "-")
        for metric in ("host_completion", "event_interval"):
            cells.append(ratio(metrics[metric].over_copy if metric in metrics else None))
        body.append(cells)
    print_table(columns, body, f"{_title(session, rows)}: median and p10-p90 of round values")


def _title(session: Session, rows: Sequence[Row]) -> str:
    widths = ", ".join(str(width) for width in sorted({row.width for row in rows}))
    caches = ", ".join(dict.fromkeys(row.cache for row in rows))
    of = f"{device_label(session)}, width {widths}, cache {caches}, {_rounds(session)} rounds"
    return f"{of}; microseconds per invocation"


def _spread(row: Row, rounds: int) -> str:
    return f"{us(row.p10_ns)}-{us(row.p90_ns)}" if rounds > 1 else "one round"


def _rounds(session: Session) -> str:
    """The rounds of every shape, or how many an unfinished session has at least of those planned."""
    planned = session.protocol.get("rounds", "?")
    warm = [len(series.rounds) for series in session.series if series.cache == "warm"]
    finished = min(warm, default=0)
    return str(planned) if session.complete or finished == planned else f"{finished} of {planned}"


def print_devices(devices: Sequence[DeviceFacts]) -> None:
    print_table(
        [
            ("device", True),
            ("name", False),
            ("arch", False),
            ("SMs", True),
            ("L2 MiB", True),
            ("memory GiB", True),
            ("shared KiB/SM", True),
            ("shared KiB/block", True),
            ("driver", False),
            ("UUID", False),
        ],
        [
            (
                ordinal,
                facts.name,
                facts.arch,
                facts.sm_count,
                f"{facts.l2_bytes / 2**20:.0f}",
                f"{facts.memory_bytes / 2**30:.0f}",
                f"{facts.shared_bytes_per_sm / 2**10:.0f}",
                f"{facts.shared_bytes_per_block / 2**10:.0f}",
                facts.driver_version,
                facts.uuid,
            )
            for ordinal, facts in enumerate(devices)
        ],
    )


def print_occupancy(records: Sequence[dict[str, object]], rows: Sequence[int], title: str) -> None:
    headings = {
        "variant": "variant",
        "kernel": "kernel",
        "threads": "threads",
        "registers": "registers",
        "static_shared_bytes": "static B",
        "dynamic_shared_bytes": "dynamic B",
        "blocks_per_sm": "blocks/SM",
        "limited_by": "limited by",
        "sm_count": "SMs",
        "cap": "cap",
        "rows_per_launch": "rows/launch",
    }
    text = {"variant", "kernel", "limited_by"}
    columns = [(heading, key not in text) for key, heading in headings.items()]
    columns += [(f"launches at {count}", True) for count in rows]
    body = []
    for record in records:
        launches = record["launches"]
        assert isinstance(launches, dict)
        cells = ["any" if record[key] is None else record[key] for key in headings]
        by_rows = (launches.get(str(count), "-") for count in rows)
        body.append([*cells, *("refused" if n is None else n for n in by_rows)])
    print_table(columns, body, title)


def print_pilot(entries: Sequence[Entry]) -> None:
    """What the pilot chose, and on which figures."""
    body = []
    for entry in entries:
        for name, configuration in entry.configurations.items():
            figures = entry.figures.get(name, {})
            role = {entry.local: "local", entry.megakernel: "megakernel"}.get(name, "")
            cells = [
                entry.rows,
                name,
                configuration,
                _microseconds(figures, "event_ns"),
                _microseconds(figures, "host_ns"),
            ]
            cells += [f"{figures.get('won', '-')} of {figures.get('repeats', '-')}", figures.get("candidates", "-")]
            cells += [figures.get("runner_up", "-"), _microseconds(figures, "runner_up_event_ns")]
            body.append([*cells, figures.get("evicted", "-"), _microseconds(figures, "evicted_event_ns"), role])
    columns = [("rows", True), ("variant", False), ("chosen", False), ("event", True), ("host", True), ("won", True)]
    columns += [("of configurations", True), ("runner-up", False), ("event", True), ("evicted", False), ("event", True)]
    devices = ", ".join(dict.fromkeys(f"{entry.device}, {entry.sm_count} SMs" for entry in entries))
    title = f"{devices}: graph replay, microseconds per invocation"
    print_table([*columns, ("stands for the shape as", False)], body, title)


def _microseconds(figures: Figures, name: str) -> str:
    value = figures.get(name)
    return f"{value / 1e3:.2f}" if isinstance(value, int | float) else "-"


def print_verification(results: Sequence[Result], *, verbose: bool) -> None:
    """One line for each case, over all its seeds; then what failed (with ``verbose``, every check)."""
    cases: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        cases.setdefault(_subject(result), []).append(result)
    body = []
    for case, of_case in cases.items():
        failed = [result for result in of_case if not result.verification.passed]
        accuracy = [c for r in of_case for c in r.verification.checks if c.name.endswith("accuracy")]
        worst = max(accuracy, key=lambda check: check.measured, default=None)
        verdict = "FAILED" if failed else "passed"
        if len(of_case) > 1:
            verdict += f", {len(of_case) - len(failed)} of {len(of_case)} seeds"
        checks = len(of_case[0].verification.checks)
        body.append((*case, verdict, checks, f"{worst.measured:.2f}" if worst else "-", worst.name if worst else "-"))
    devices = dict.fromkeys(r.device.label for r in results)
    columns = [("rows", True), ("width", True), ("variant", False), ("submission", False), ("fixture", False)]
    columns += [("verdict", False), ("checks", True), ("worst error / allowed", True), ("of", False)]
    print_table(columns, body, ", ".join(devices))
    for result in results:
        print_lines(_check_lines(result, verbose=verbose))


def _check_lines(result: Result, *, verbose: bool) -> list[str]:
    """All checks, or the first that failed: the others mostly follow from it."""
    seed = f", seed {result.seed}" if result.seed else ""
    prefix = f"{subject(result)}{seed}"
    if verbose:
        checks = result.verification.checks
        return [f"{'passed' if check.passed else 'FAILED'} {prefix}: {check}" for check in checks]
    failures = result.verification.failures
    more = f" (and {len(failures) - 1} more checks: --verbose)" if len(failures) > 1 else ""
    return [f"FAILED {prefix}: {failures[0]}{more}"] if failures else []


def _subject(result: Result) -> tuple[object, ...]:
    problem = result.plan.problem
    return problem.rows, problem.width, result.plan.variant, result.submission, result.verification.fixture


def subject(result: Result) -> str:
    """What was verified, in words."""
    rows, width, variant, submission, fixture = _subject(result)
    return f"{variant} {rows} x {width} {submission}, fixture {fixture}"


def verification_record(result: Result) -> dict[str, object]:
    """A verification as a plain record, for JSON. What JSON cannot hold is null."""
    rows, width, variant, submission, fixture = _subject(result)
    return {
        "device": result.device.name,
        "device_kind": result.device.kind,
        "variant": variant,
        "rows": rows,
        "width": width,
        "submission": submission,
        "fixture": fixture,
        "seed": result.seed,
        "passed": result.verification.passed,
        "checks": [
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(check).items()}
            for check in result.verification.checks
        ],
    }


_AUDIT_SECTIONS: tuple[tuple[Kind, str], ...] = (
    ("repeated", "repeated"),
    ("read only", "read only"),
    ("not stored", "not stored"),
    ("note", "notes"),
    ("fault", "faults"),
)


def print_audit(audit: Audit) -> None:
    """What was worked out again, what was only read, what is not stored; then the faults and the verdict."""
    faults = len(audit.of_kind("fault"))
    verdict = f"FAILED: {faults} {'fault' if faults == 1 else 'faults'}" if faults else "passed"
    lines = [audit.path, f"  contents {audit.contents_sha256}"]
    for kind, heading in _AUDIT_SECTIONS:
        found = audit.of_kind(kind)
        lines += [f"  {heading}", *(f"    {finding}" for finding in found)] if found else []
    print_lines([*lines, f"  {verdict}"])


def audit_record(audit: Audit) -> dict[str, object]:
    """An audit as a plain record, for JSON."""
    return {
        "path": audit.path,
        "passed": audit.passed,
        "contents_sha256": audit.contents_sha256,
        "findings": [asdict(finding) for finding in audit.findings],
    }


def print_progress(message: str) -> None:
    """What is being done, on standard error, and only where that is a terminal; the next message replaces it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{printable(message)}")
        sys.stderr.flush()


def print_notice(message: str) -> None:
    """A line on standard error."""
    with suppress(OSError):
        sys.stderr.write(f"{printable(message)}\n")


def progress_report(bar: Progress) -> Callable[[int, int, str], None]:
    """A function that moves the bar: steps done, steps in all, and what comes next."""
    task = bar.add_task("")

    def report(done: int, total: int, what: str) -> None:
        bar.update(task, completed=done, total=total, description=what)

    return report
