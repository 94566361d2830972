"""What people read: no control codes in a pipe, names verbatim, no nan."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.fakes import FACTS
from tests.unit.samples import subject, write_session

from megakernel.operator.checks import Check
from megakernel.record.reader import load
from megakernel.record.verification import Result, Verification
from megakernel.report import tables
from megakernel.report.analysis import analyse
from megakernel.report.content import evicted_table
from megakernel.report.summary import records, summarise

Capture = pytest.CaptureFixture[str]


def printed(path: Path, capsys: Capture) -> str:
    tables.print_session(load(path))
    return capsys.readouterr().out


def test_a_piped_table_is_plain_text_with_a_line_for_each_series(tmp_path: Path, capsys: Capture) -> None:
    out = printed(write_session(tmp_path / "a.h5", {"copy": [4000, 5000], "row_retained": [9000, 9000]}), capsys)
    assert out.isascii()
    assert "\x1b" not in out
    lines = out.splitlines()
    assert lines[0].startswith("Fake GPU, width 1000, cache warm, 2 rounds; microseconds per invocation: medians of ")
    (copy,) = [line.split() for line in lines if " copy " in line and "16" in line]
    (retained,) = [line.split() for line in lines if "row_retained" in line]
    assert copy == ["16", "copy", "256x1024", "1", "-", "4.50", "4.10-4.90", "4.50", "1.00", "1.00"]
    assert retained == ["16", "row_retained", "256x1024", "1", "-", "9.00", "9.00-9.00", "9.00", "2.00", "2.00"]


def test_everything_is_every_metric_of_every_submission(tmp_path: Path, capsys: Capture) -> None:
    tables.print_session(load(write_session(tmp_path / "a.h5", {"copy": [4000, 5000]})), everything=True)
    (copy,) = [line.split() for line in capsys.readouterr().out.splitlines() if " copy " in line and "16" in line]
    metrics = ["4.50", "4.10-4.90"] * 4
    assert copy == ["16", "copy", "graph", "warm", "256x1024", "1", *metrics, "-", "1.00", "1.00"]


def test_one_round_has_no_spread(tmp_path: Path, capsys: Capture) -> None:
    path = write_session(tmp_path / "a.h5", {"copy": [4000]})
    for everything in (False, True):
        tables.print_session(load(path), everything=everything)
        assert "one round" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[/]", ":rocket:", "[link=a]b", "\\[x]", "{x}"])
def test_names_are_printed_verbatim(tmp_path: Path, capsys: Capture, name: str) -> None:
    assert name in printed(write_session(tmp_path / "a.h5", {name: [5.0]}), capsys)
    tables.print_table([(name, False)], [[name]], title=name)
    assert capsys.readouterr().out.count(name) == 3
    tables.print_lines([name])
    assert capsys.readouterr().out == f"{name}\n"


def test_long_names_are_neither_wrapped_nor_cut(tmp_path: Path, capsys: Capture) -> None:
    name = "n" * 150
    assert name in printed(write_session(tmp_path / "a.h5", {name: [5.0]}), capsys)


@pytest.mark.parametrize("values", [{"v": [5.0]}, {"copy": [0.0], "v": [5.0]}, {"copy": [4.0]}])
def test_nothing_prints_nan_or_infinity(tmp_path: Path, capsys: Capture, values: dict[str, list[float]]) -> None:
    path = write_session(tmp_path / "a.h5", values)
    out = printed(path, capsys)
    tables.print_json(records(summarise(load(path))))
    out += capsys.readouterr().out
    assert not re.search(r"\b(nan|inf)\b", out, re.IGNORECASE)


def test_without_a_copy_the_ratios_are_dashes(tmp_path: Path, capsys: Capture) -> None:
    out = printed(write_session(tmp_path / "a.h5", {"v": [5.0]}), capsys)
    assert next(line for line in out.splitlines() if " v " in line).split()[-2:] == ["-", "-"]


def test_an_incomplete_or_emulated_session_says_so(tmp_path: Path, capsys: Capture) -> None:
    partial = write_session(tmp_path / "a.h5", {"v": [5.0]}, complete=False, kind="emulator")
    out = printed(partial, capsys)
    assert "INCOMPLETE: the process ended" in out
    assert "Fake GPU (emulated)" in out
    assert "the times say nothing about a GPU" in out
    session = replace(load(partial), interruption="cuGraphLaunch failed", throttled_rounds=3)
    session = replace(session, series=(replace(session.series[0], verified_after=False, submission="direct"),))
    tables.print_session(session)
    out = capsys.readouterr().out
    assert "INCOMPLETE: cuGraphLaunch failed" in out
    assert "3 rounds were throttled" in out
    assert "WRONG after timing: v, 16 rows, direct" in out


def test_shapes_are_listed_by_rows_and_widths_told_apart(tmp_path: Path, capsys: Capture) -> None:
    session = load(write_session(tmp_path / "a.h5", {"v": [5.0]}, rows=64))
    (one,) = session.series
    other = replace(one, problem=replace(one.problem, rows=1), singles_ns=one.singles_ns * 1000)
    tables.print_session(replace(session, series=(one, other)))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if " v " in line]
    assert [(line[0], line[5]) for line in lines] == [("1", "5.00"), ("64", "0.01")]


def test_json_is_nothing_but_json(capsys: Capture) -> None:
    tables.print_json([{"name": "[bold]ü[/bold]", "ratio": None}])
    assert json.loads(capsys.readouterr().out) == [{"name": "[bold]ü[/bold]", "ratio": None}]
    with pytest.raises(ValueError, match="JSON"):
        tables.print_json(float("nan"))


def results() -> list[Result]:
    plan = subject("[b]v[/b]").plan
    good = Verification("timing", (Check("y.accuracy", True, 0.5, 1, "exact"),))
    bad = Verification("nan", (Check("y.accuracy", False, float("inf"), 1, "nan instead of 1 at row 0"),))
    return [Result(FACTS, plan, "direct", good), Result(FACTS, plan, "graph", bad)]


def test_verifications_are_listed_and_failures_explained(capsys: Capture) -> None:
    tables.print_verification(results(), verbose=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "Fake GPU"
    assert lines[2].split() == ["16", "1000", "[b]v[/b]", "direct", "timing", "passed", "1", "0.50", "y.accuracy"]
    assert lines[3].split()[5] == "FAILED"
    assert len(lines) == 5
    assert lines[4].startswith("FAILED [b]v[/b] 16 x 1000 graph, fixture nan: y.accuracy: nan instead of 1 at row 0")
    tables.print_verification(results(), verbose=True)
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_a_verification_as_json_gives_what_json_cannot_hold_as_null(capsys: Capture) -> None:
    tables.print_json([tables.verification_record(result) for result in results()])
    good, bad = json.loads(capsys.readouterr().out)
    assert (good["passed"], bad["passed"]) == (True, False)
    assert bad["checks"][0]["measured"] is None
    assert bad["variant"] == "[b]v[/b]"


def test_devices_and_progress_print_nothing_odd_into_a_pipe(capsys: Capture) -> None:
    tables.print_devices([FACTS])
    out = capsys.readouterr().out
    assert "sm_90" in out
    assert "GPU-fake" in out
    with tables.progress_bar() as bar:
        tables.progress_report(bar)(1, 2, "[red]x")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_seeds_of_a_case_share_a_line_and_a_failure_names_its_seed(capsys: Capture) -> None:
    good, bad = results()
    bad = replace(bad, verification=replace(bad.verification, fixture="timing"), submission="direct", seed=7)
    tables.print_verification([good, bad, replace(good, seed=9)], verbose=False)
    lines = capsys.readouterr().out.splitlines()
    assert "FAILED, 2 of 3 seeds" in lines[2]
    assert len(lines) == 4
    assert lines[3].startswith("FAILED [b]v[/b] 16 x 1000 direct, fixture timing, seed 7: y.accuracy")


def test_what_was_not_timed_is_shown_with_its_reason(tmp_path: Path, capsys: Capture) -> None:
    session = load(write_session(tmp_path / "a.h5", {"v": [5.0]}))
    tables.print_session(replace(session, refusals=("w, 16 rows, graph: y.written: 3 of 3 values not written",)))
    assert "NOT TIMED: w, 16 rows, graph: y.written" in capsys.readouterr().out


def test_an_evicted_series_has_a_line_of_its_own_and_no_event(tmp_path: Path, capsys: Capture) -> None:
    path = write_session(tmp_path / "a.h5", {"copy": [4000, 4000], "v": [8000, 8000]})
    session = load(path)
    nothing = np.empty(0, np.int64)
    evicted = [
        replace(s, singles_ns=2 * s.singles_ns, enqueue_ns=nothing, batch_ns=nothing, event_ns=np.empty(0))
        for s in session.series
    ]
    for one in evicted:
        object.__setattr__(one, "cache", "evicted")
    both = replace(session, series=(*session.series, *evicted))
    tables.print_session(both)
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines() if " v " in line]
    assert [(line[2], line[6], line[8], line[-2]) for line in lines] == [
        ("warm", "8.00", "8.00", "2.00"),
        ("evicted", "16.00", "-", "2.00"),
    ]
    tables.print_session(both, everything=True)
    assert capsys.readouterr().out.count(" evicted ") == 2
    analysis = analyse([path])
    table = evicted_table(replace(analysis, rows=tuple(summarise(both))))
    assert table is not None
    assert table.rows[-1] == ("16", "v", "graph", "8.00", "16.00", "+8.00", "2.00")
    assert evicted_table(analysis) is None
