"""Quantiles of round values, and ratios to the floor."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from megakernel.errors import RecordError
from megakernel.operator.contract import Problem
from megakernel.record.plan import Submission
from megakernel.record.protocol import METRICS
from megakernel.record.session import Series, Session
from megakernel.report.summary import Row, device_label, records, round_values, summarise, to_csv


def series(
    variant: str,
    values: list[float],
    *,
    rows: int = 16,
    submission: Submission = "graph",
    computes: str = "softmax",
    width: int = 1000,
) -> Series:
    """Every metric has the given round values; batches hold 4 invocations."""
    ns = np.array(values, np.float64)
    return Series(
        variant=variant,
        computes=computes,
        problem=Problem(rows, width),
        submission=submission,
        configuration="256x1024",
        launches=1,
        batch=4,
        singles_ns=np.repeat(ns[:, None], 3, axis=1).astype(np.int64),
        enqueue_ns=(4 * ns).astype(np.int64),
        batch_ns=(4 * ns).astype(np.int64),
        event_ns=4 * ns,
        rounds=np.arange(len(values)),
        position=np.zeros(len(values), np.int64),
        verified_before=True,
        verified_after=True,
    )


def session(*listed: Series, kind: str = "gpu") -> Session:
    return Session("a.h5", True, "", {"name": "Fake GPU", "kind": kind}, {"cache": "warm", "rounds": 10}, {}, listed)


@pytest.mark.parametrize("metric", range(4))
def test_quantiles_interpolate_linearly(metric: int) -> None:
    row = summarise(session(series("v", [10, 9, 8, 7, 6, 5, 4, 3, 2, 1])))[metric]
    assert row.metric == METRICS[metric]
    assert (row.mean_ns, row.p10_ns, row.p90_ns) == pytest.approx((5.5, 1.9, 9.1), rel=1e-15)


def test_one_round_is_its_own_quantiles() -> None:
    for row in summarise(session(series("v", [7]))):
        assert row.mean_ns == row.p10_ns == row.p90_ns == 7
        assert row.session_median_ns == (7,)


def test_host_completion_takes_the_median_of_a_rounds_singles_and_batches_are_divided() -> None:
    one = series("v", [8, 8])
    one.singles_ns[0] = [1, 100, 2]  # one slow invocation does not move the round's value
    assert round_values(one, "host_completion").tolist() == [2, 8]
    assert round_values(one, "event_interval").tolist() == [8, 8]
    one.event_ns[1] = 10
    assert round_values(one, "event_interval").tolist() == [8, 2.5]


def test_the_ratio_is_to_copy_of_the_same_shape_and_submission() -> None:
    rows = summarise(
        session(
            series("copy", [4, 4, 4], computes="copy"),
            series("copy", [8], computes="copy", submission="direct"),
            series("copy", [2], computes="copy", rows=1),
            series("v", [10, 9, 11]),
            series("v", [10], submission="direct"),
            series("v", [10], rows=1),
        )
    )
    ratios = {(r.variant, r.rows, r.submission): r.over_copy for r in rows if r.metric == "event_interval"}
    assert ratios == {
        ("copy", 16, "graph"): 1,
        ("copy", 16, "direct"): 1,
        ("copy", 1, "graph"): 1,
        ("v", 16, "graph"): 2.5,
        ("v", 16, "direct"): 1.25,
        ("v", 1, "graph"): 5,
    }


def test_without_a_copy_of_that_shape_there_is_no_ratio() -> None:
    rows = summarise(session(series("copy", [4], computes="copy", width=999), series("v", [10])))
    assert {r.over_copy for r in rows if r.variant == "v"} == {None}


def test_a_copy_of_no_duration_gives_no_ratio_instead_of_infinity() -> None:
    rows = summarise(session(series("copy", [0], computes="copy"), series("v", [10])))
    assert {r.over_copy for r in rows} == {None}


def test_a_series_without_a_finished_round_is_left_out() -> None:
    rows = summarise(session(series("copy", [], computes="copy"), series("v", [3])))
    assert {r.variant for r in rows} == {"v"}
    assert summarise(session(series("v", []))) == []


def test_records_have_exactly_the_documented_fields() -> None:
    (first, *_) = records(summarise(session(series("copy", [4], computes="copy"))))
    assert first == {
        "device": "Fake GPU",
        "variant": "copy",
        "rows": 16,
        "width": 1000,
        "submission": "graph",
        "cache": "warm",
        "metric": "host_completion",
        "mean_ns": 4.0,
        "session_median_ns": [4.0],
        "p10_ns": 4.0,
        "p90_ns": 4.0,
        "over_copy": 1.0,
    }


def test_an_emulated_device_is_marked() -> None:
    assert device_label(session()) == "Fake GPU"
    assert device_label(session(kind="emulator")) == "Fake GPU (emulated)"
    assert summarise(session(series("v", [3]), kind="emulator"))[0].device == "Fake GPU (emulated)"


def event_row(rows: list[Row], variant: str) -> Row:
    (found,) = [row for row in rows if row.variant == variant and row.metric == "event_interval"]
    return found


def test_sessions_are_averaged_by_their_medians_and_ratios_are_of_averages() -> None:
    first = session(series("copy", [2], computes="copy"), series("v", [10, 12, 14]))
    second = session(series("copy", [6], computes="copy"), series("v", [20]))
    row = event_row(summarise(first, second), "v")
    assert (row.mean_ns, row.session_median_ns) == (16, (12, 20))
    assert row.over_copy == 4.0  # not the mean of 6 and 3.33
    assert row.p10_ns == pytest.approx((10.4 + 20) / 2)


def test_a_ratio_is_of_the_sessions_that_have_the_series() -> None:
    first = session(series("copy", [2], computes="copy"), series("v", [8]))
    second = session(series("copy", [6], computes="copy"))
    assert event_row(summarise(first, second), "v").over_copy == 4.0
    assert event_row(summarise(second, session(series("v", [8]))), "v").over_copy is None


def test_sessions_of_different_devices_or_protocols_are_not_averaged() -> None:
    one = session(series("v", [8]))
    for other, what in [
        (replace(one, device={"name": "Other GPU", "kind": "gpu"}), r"device name \(Fake GPU and Other GPU\)"),
        (replace(one, device={"name": "Fake GPU", "kind": "emulator"}), r"device kind \(gpu and emulator\)"),
        (replace(one, protocol={"cache": "warm", "rounds": 9}), r"protocol rounds \(10 and 9\)"),
        (replace(one, attributes={"fixture": "ramp"}), r"fixture \(None and ramp\)"),
    ]:
        with pytest.raises(RecordError, match=what):
            summarise(one, other)
    summarise(one, replace(one, protocol={**one.protocol, "order_seed": 1}))


def test_the_csv_has_the_columns_of_the_records() -> None:
    rows = summarise(session(series('a,b"c', [4])), session(series('a,b"c', [6])))
    lines = list(csv.DictReader(io.StringIO(to_csv(rows))))
    (first, *_) = records(rows)
    assert list(lines[0]) == list(first)
    assert (lines[0]["variant"], lines[0]["session_median_ns"], lines[0]["over_copy"]) == ('a,b"c', "4.0;6.0", "")
    assert len(lines) == 4
    assert to_csv([]).count("\n") == 1
