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
from rich.table import Table
from rich.text import Text

from megakernel.record.facts import DeviceFacts
from megakernel.record.protocol import METRICS
from megakernel.record.session import Series, Session
from megakernel.record.verification import Result
from megakernel.report.penalties import CAVEAT, CONTROLS, Penalty, penalties
from megakernel.report.published import load_published
from megakernel.report.summary import PYTHON_LAUNCH_OVERHEAD_NS, Row, device_label, summarise

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
    return Text(str(value).encode(encoding, "backslashreplace").decode(encoding))


def print_json(value: object) -> None:
    """JSON on standard output, and nothing else there."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Prints a table; a column is its heading and whether it holds numbers."""
    if title:
        print_lines([title])
    table = Table(box=None, pad_edge=False)
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


def print_session(session: Session) -> None:
    """The four metrics of every series, with the ratio to ``copy`` of the same run."""
    rows = summarise(session)
    by_series: dict[tuple[str, int, int, str], dict[str, Row]] = {}
    for row in rows:
        by_series.setdefault((row.variant, row.rows, row.width, row.submission), {})[row.metric] = row
    known: dict[tuple[str, int, int, str], Series] = {
        (s.variant, s.problem.rows, s.problem.width, s.submission): s for s in session.series
    }
    columns = [("rows", True), ("variant", False), ("submission", False), ("tile", False), ("launches", True)]
    for metric in METRICS:
        columns += [(metric, True), ("p10-p90", True)]
    columns += [("of python", True), ("host / copy", True), ("event / copy", True)]
    body = []
    for key, metrics in sorted(by_series.items(), key=lambda item: item[0][1]):
        variant, count, _, submission = key
        series = known[key]
        cells: list[object] = [count, variant, submission, series.configuration, series.launches]
        for metric in METRICS:
            row = metrics[metric]
            cells += [f"{row.median_ns / 1e3:.2f}", f"{row.p10_ns / 1e3:.2f}-{row.p90_ns / 1e3:.2f}"]
        of_python = submission == "direct" and session.device.get("kind") == "gpu"
        cells.append(f"{series.launches * PYTHON_LAUNCH_OVERHEAD_NS / 1e3:.1f}" if of_python else "-")
        cells += [_ratio(metrics["host_completion"]), _ratio(metrics["event_interval"])]
        body.append(cells)
    widths = ", ".join(str(width) for width in sorted({row.width for row in rows}))
    title = (
        f"{device_label(session)}, width {widths}, cache {session.protocol.get('cache', '?')}, "
        f"{_rounds(session)} rounds; microseconds per invocation: median and p10-p90 of round values"
    )
    print_table(columns, body, title)
    print_lines(_notes(session))
    print_penalties(penalties([session]))


def print_penalties(found: Sequence[Penalty]) -> None:
    """What the controls show of retention, beside what was published of an H100. Nothing where there is none."""
    if not found:
        return
    published = load_published()
    columns = [("control", False), ("gives up", False), ("penalty", True), ("sessions", False), ("of", True)]
    columns += [("paired rounds", False), ("published, H100", True)]
    body = []
    for penalty in found:
        stated_ns = published.penalties_ns.get(penalty.control)
        span = f"{_signed(penalty.least_ns)} to {_signed(penalty.most_ns)}"
        rounds = ", ".join(str(count) for count in penalty.paired_rounds)
        cells = [penalty.control, CONTROLS[penalty.control], _signed(penalty.mean_ns), span, len(penalty.session_ns)]
        body.append([*cells, rounds, "-" if stated_ns is None else _signed(stated_ns)])
    rows = found[0].rows
    title = f"retention penalties at {rows} rows, graph replay: microseconds of host completion over control_retain"
    print_lines(["", f"{title}; median of paired rounds, mean and range over sessions"])
    print_table(columns, body)
    print_lines([CAVEAT])


def _signed(ns: float) -> str:
    return f"{ns / 1e3:+.2f}"


def _rounds(session: Session) -> str:
    """The rounds of every shape, or how many an unfinished session has at least of those planned."""
    planned = session.protocol.get("rounds", "?")
    finished = min((len(series.rounds) for series in session.series), default=0)
    return str(planned) if session.complete or finished == planned else f"{finished} of {planned}"


def _ratio(row: Row) -> str:
    return "-" if row.over_copy is None else f"{row.over_copy:.2f}"


def _notes(session: Session) -> list[str]:
    notes = []
    if not session.complete:
        why = session.interruption or "the process ended"
        notes.append(f"INCOMPLETE: {why}")
    if session.device.get("kind") == "emulator":
        notes.append("emulated on a CPU: the times say nothing about a GPU")
    if session.throttled_rounds:
        notes.append(f"{session.throttled_rounds} rounds were throttled (power or temperature); they are included")
    notes += [f"NOT TIMED: {refusal}" for refusal in session.refusals]
    wrong = [s for s in session.series if s.verified_after is False]
    notes += [f"WRONG after timing: {s.variant}, {s.problem.rows} rows, {s.submission}" for s in wrong]
    if session.device.get("kind") == "gpu" and any(s.submission == "direct" for s in session.series):
        notes.append(
            "of python: what submitting the launches from Python costs the host beyond C++, measured on an H200's "
            "host (docs/performance.md); part of it hides behind the kernels"
        )
    return notes


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
    devices = dict.fromkeys(f"{r.device.name}{' (emulated)' * (r.device.kind == 'emulator')}" for r in results)
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


def print_progress(message: str) -> None:
    """What is being done, on standard error, and only where that is a terminal; the next message replaces it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{message}")
        sys.stderr.flush()


def print_notice(message: str) -> None:
    """A line on standard error."""
    with suppress(OSError):
        sys.stderr.write(f"{message}\n")


def progress_report(bar: Progress) -> Callable[[int, int, str], None]:
    """A function that moves the bar: steps done, steps in all, and what comes next."""
    task = bar.add_task("")

    def report(done: int, total: int, what: str) -> None:
        bar.update(task, completed=done, total=total, description=what)

    return report
