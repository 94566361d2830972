"""Retention penalties: paired by round, then averaged over sessions."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.test_summary import series, session

from megakernel.record.session import Session
from megakernel.report import tables
from megakernel.report.content import penalty_table
from megakernel.report.penalties import CAVEAT, Penalty, penalties, penalty_records
from megakernel.report.published import load_published

Capture = pytest.CaptureFixture[str]


def controls(retain: list[float], reload_: list[float], spill: list[float]) -> Session:
    return session(series("control_retain", retain), series("control_reload", reload_), series("control_spill", spill))


def test_a_session_s_penalty_is_the_median_of_its_paired_differences() -> None:
    # The rounds drift by far more than the penalty: a difference of medians would be 120.
    found = penalties([controls([100, 200, 400], [110, 220, 415], [130, 200, 430])])
    assert found == [
        Penalty("control_reload", 16, 1000, (15.0,), (3,), 15.0, 15.0, 15.0),
        Penalty("control_spill", 16, 1000, (30.0,), (3,), 30.0, 30.0, 30.0),
    ]


def test_sessions_are_averaged_and_their_range_kept() -> None:
    first, second = controls([100], [110], [130]), controls([200, 200], [214, 214], [220, 220])
    reload_, spill = penalties([first, second])
    assert (reload_.session_ns, reload_.mean_ns, reload_.least_ns, reload_.most_ns) == ((10, 14), 12, 10, 14)
    assert (spill.session_ns, spill.mean_ns) == ((30, 20), 25)
    assert reload_.paired_rounds == (1, 2)


def test_rounds_are_paired_by_number() -> None:
    one = controls([100, 200, 300], [107, 500, 303], [100, 100, 100])
    retain, reload_, spill = one.series
    retain = replace(retain, rounds=np.array([0, 2, 5]))
    reload_ = replace(reload_, rounds=np.array([2, 3, 5]))  # rounds 2 and 5 are shared: 107 - 200, 303 - 300
    (found,) = penalties([replace(one, series=(retain, reload_, replace(spill, rounds=np.array([7, 8, 9]))))])
    assert (found.control, found.session_ns, found.paired_rounds) == ("control_reload", (-45.0,), (2,))


def test_only_graph_replays_at_sixteen_rows_count() -> None:
    one = session(
        series("control_retain", [1]),
        series("control_reload", [2], submission="direct"),
        series("control_spill", [2], rows=32),
        series("control_both", []),
    )
    assert penalties([one]) == []
    assert penalties([session(series("row_retained", [1]))]) == []
    assert penalties([session(series("control_reload", [1]))]) == []


def test_a_session_without_a_control_adds_nothing_to_it() -> None:
    (found,) = penalties([session(series("control_retain", [1])), controls([5], [9], [])])
    assert (found.control, found.session_ns) == ("control_reload", (4.0,))


def test_penalties_are_printed_with_the_published_ones_and_the_caveat(capsys: Capture) -> None:
    found = penalties([controls([10_000], [11_500], [12_000]), controls([10_000], [11_700], [9_500])])
    assert "+1.39" not in str(penalty_table(found, load_published()))  # published of another width
    found = [replace(penalty, width=131_072) for penalty in found]
    tables.print_content(penalty_table(found, load_published()))
    out = capsys.readouterr().out
    reload_, spill = (line.split("  ") for line in out.splitlines() if line.startswith("control_"))
    assert [cell.strip() for cell in reload_ if cell.strip()] == [
        *("control_reload", "reload the input", "+1.60", "+1.50 to +1.70", "2", "1, 1", "+1.39")
    ]
    assert [cell.strip() for cell in spill if cell.strip()][2:4] == ["+0.75", "-0.50 to +2.00"]
    assert CAVEAT in out
    assert "published" in out
    assert penalty_records(found)[0]["session_ns"] == (1500.0, 1700.0)
    tables.print_content(penalty_table([], load_published()))
    assert capsys.readouterr().out == ""


def test_only_what_the_article_states_is_published() -> None:
    published = load_published()
    assert {(t.variant, t.rows, t.submission): t.mean_ns for t in published.times} == {
        ("unfused", 16, "direct"): 44_700,
        ("unfused", 16, "graph"): 38_800,
        ("local_recompute", 16, "graph"): 19_900,
        ("row_retained", 16, "graph"): 19_200,
        ("row_retained", 16, "direct"): 18_600,
    }
    assert published.time_ns("row_retained", 16, "direct") == 18_600
    assert published.time_ns("row_retained", 1, "graph") is None
    assert published.penalties_ns == {"control_reload": 1390, "control_spill": 2870}
    assert (published.metric, published.target_met) == ("host_completion", False)
