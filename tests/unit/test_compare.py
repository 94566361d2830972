"""Faster, slower, same or ambiguous: on samples made up, and on committed ones where nothing has changed."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.unit.reports import write_chain
from tests.unit.test_summary import series, session

from megakernel.cli.main import run
from megakernel.errors import RecordError, UsageError
from megakernel.record.details import chosen_rounds
from megakernel.record.protocol import METRICS
from megakernel.record.reader import load
from megakernel.record.session import Series, Session
from megakernel.report.compare import (
    Comparison,
    Rules,
    Verdict,
    compare,
    comparison_records,
    interval,
    least_rounds,
    missing,
    not_right,
    overall,
    require_comparable,
)

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]
DATA = Path(__file__).resolve().parents[2] / "data" / "h200"
EVENT = Rules(metrics=("event_interval",))
WRONG = ("retained", "graph")


@cache
def committed(name: str) -> Session:
    return load(DATA / name)


def only(whole: Session, keep: Callable[[Series], bool]) -> Session:
    return replace(whole, series=tuple(s for s in whole.series if keep(s)))


def warm(rows: int, submission: str) -> Callable[[Series], bool]:
    return lambda s: (s.problem.rows, s.submission, s.cache) == (rows, submission, "warm")


def scaled(one: Series, factor: float) -> Series:
    return replace(one, singles_ns=np.rint(one.singles_ns * factor).astype(np.int64), event_ns=one.event_ns * factor)


def around(ns: float, spread: float = 0.002, rounds: int = 21, seed: int = 0) -> list[float]:
    return list(ns * (1 + spread * np.random.default_rng(seed).standard_normal(rounds)))


def run_of(ns: float, floor_ns: float = 4e6, seed: int = 0, rounds: int = 21) -> Session:
    """Times in picoseconds, as it were: whole nanoseconds would be coarse."""
    copy = series("copy", around(floor_ns, seed=seed + 50, rounds=rounds), computes="copy")
    return session(copy, series("v", around(ns, seed=seed, rounds=rounds)))


def verdict(first: Session, second: Session, rules: Rules = EVENT) -> Comparison:
    (found,) = compare(first, second, rules)
    return found


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, "same"), (1.03, "slower"), (0.97, "faster"), (1.01, "ambiguous")]
)
def test_an_interval_beyond_within_or_across_the_threshold(factor: float, expected: str) -> None:
    found = verdict(run_of(1e7), run_of(factor * 1e7, seed=1))
    assert found.verdict == expected
    assert found.change == pytest.approx(factor - 1, abs=0.005)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= factor - 1 <= found.high
    assert bool(found.why) == (expected == "ambiguous")


def test_what_the_floors_moved_is_no_verdict_on_a_variant() -> None:
    # Everything takes 3 % longer, the copy too: the machine has changed, and nobody knows about the kernel.
    found = verdict(run_of(1e7), run_of(1.03e7, floor_ns=4.12e6, seed=1))
    assert found.verdict == "ambiguous"
    assert found.floor_change == pytest.approx(0.03, abs=0.003)
    slower = verdict(run_of(1e7), run_of(1.1e7, floor_ns=4.12e6, seed=1))
    assert slower.verdict == "slower"


def test_without_floors_there_is_no_allowance_and_it_is_said() -> None:
    first, second = (only(run_of(ns), lambda s: s.variant == "v") for ns in (1e7, 1.1e7))
    assert (verdict(first, second).verdict, verdict(first, second).floor_change) == ("slower", None)


def test_too_few_rounds_decide_nothing() -> None:
    assert least_rounds(0.05) == 6
    for rounds in (1, 5):
        found = verdict(run_of(1e7, rounds=rounds), run_of(2e7, rounds=rounds))
        assert (found.verdict, found.change, found.low) == ("ambiguous", None, None)
        assert found.why == f"{rounds} round{'s' if rounds > 1 else ''}: 1 comparisons need 6"
    assert verdict(run_of(1e7, rounds=6), run_of(2e7, rounds=6)).verdict == "slower"
    assert verdict(run_of(1e7, rounds=6), run_of(2e7, rounds=9)).verdict == "slower"  # not paired


def test_rounds_that_took_no_time_decide_nothing() -> None:
    zero = session(series("v", [0.0] * 21))
    assert verdict(zero, run_of(1e7)).why == "a round took no time"
    json.dumps(comparison_records([verdict(zero, run_of(1e7))]), allow_nan=False)


def test_rounds_are_resampled_in_pairs() -> None:
    # Both runs drift by 20 % in the same way: the ratio within rounds is exact, and so is its interval.
    drifting = np.linspace(1e7, 1.2e7, 21)
    estimate, low, high = interval(drifting, 1.02 * drifting, 0.95, 0, paired=True)
    assert estimate == pytest.approx(np.log(1.02))
    assert (low, high) == pytest.approx((estimate, estimate))
    assert interval(drifting, 1.02 * drifting, 0.95, 0, paired=True) == (estimate, low, high)


def test_floors_are_not_judged_and_what_is_missing_is_named() -> None:
    first, second = run_of(1e7), session(series("w", around(1e7)))
    with pytest.raises(RecordError, match="no series in common"):
        compare(first, second, EVENT)
    assert missing(first, second) == [
        "only in a.h5: copy, 16 rows of 1000, graph, warm",
        "only in a.h5: v, 16 rows of 1000, graph, warm",
        "only in a.h5: w, 16 rows of 1000, graph, warm",
    ]


def test_the_worst_verdict_is_the_table_s() -> None:
    one = verdict(run_of(1e7), run_of(1e7, seed=1))
    cases: list[tuple[list[Verdict], Verdict]] = [
        (["same", "faster"], "faster"),
        (["same", "ambiguous", "faster"], "ambiguous"),
        (["ambiguous", "slower"], "slower"),
        (["same"], "same"),
    ]
    for verdicts, expected in cases:
        found = [replace(one, verdict=each) for each in verdicts]
        assert overall(found) == expected


def test_identical_kernels_get_no_more_false_verdicts_than_stated() -> None:
    """Even and odd rounds of the committed sessions: nothing differs between them."""
    for threshold in (0.01, 0.0):
        verdicts: Counter[str] = Counter()
        false_tables = 0
        tables = 0
        for name in ("session-1.h5", "session-2.h5"):
            for rows, submission in product((1, 16, 32, 64), ("direct", "graph")):
                shape = only(committed(name), warm(rows, submission))
                even, odd = (chosen_rounds(shape, lambda n, k=k: n % 2 == k) for k in (0, 1))
                for metric in METRICS:
                    found = Counter(each.verdict for each in compare(even, odd, Rules((metric,), threshold)))
                    verdicts += found
                    tables += 1
                    false_tables += bool(found["slower"] + found["faster"])
        assert sum(verdicts.values()) >= 200
        assert verdicts["slower"] + verdicts["faster"] <= 0.05 * sum(verdicts.values())
        assert false_tables <= 0.05 * tables  # the stated rate is of any in a table
        if threshold:
            assert verdicts["same"] >= 20


def test_a_planted_slowdown_of_three_per_cent_is_found() -> None:
    """Rounds of committed sessions, drawn anew for each of two runs, and one variant of the second run 3 % slower."""
    random = np.random.default_rng(41)

    def drawn(whole: Session) -> Session:
        order = random.integers(21, size=21)  # the same rounds of every series: what they share stays shared
        return replace(
            whole,
            series=tuple(replace(s, event_ns=s.event_ns[order], singles_ns=s.singles_ns[order]) for s in whole.series),
        )

    verdicts: list[str] = []
    for name in ("session-1.h5", "session-2.h5"):
        for rows in (1, 16, 32, 64):
            graphs = only(committed(name), warm(rows, "graph"))
            for variant in ("unfused", "local_recompute", "row_retained"):
                first, second = drawn(graphs), drawn(graphs)
                planted = replace(
                    second,
                    series=tuple(
                        scaled(s, 1.03) if (s.variant, s.problem.rows) == (variant, rows) else s for s in second.series
                    ),
                )
                found = compare(first, planted, EVENT)
                verdicts += [c.verdict for c in found if (c.variant, c.rows) == (variant, rows)]
                assert not any(
                    c.verdict in ("slower", "faster") for c in found if (c.variant, c.rows) != (variant, rows)
                )
    assert len(verdicts[:20]) == 20
    assert verdicts[:20].count("slower") >= 18


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"device": {"name": "Other", "kind": "gpu"}}, r"device name \(Fake GPU and Other\)"),
        ({"device": {"name": "Fake GPU", "kind": "gpu", "uuid": "GPU-2"}}, r"device uuid \(None and GPU-2\)"),
        ({"protocol": {"cache": "warm", "rounds": 3}}, r"protocol rounds \(10 and 3\)"),
        ({"attributes": {"schema_version": "2"}}, r"schema_version \(None and 2\)"),
    ],
)
def test_runs_that_differ_are_refused_unless_told_otherwise(change: dict[str, Any], field: str) -> None:
    one = run_of(1e7)
    other = replace(one, **change)
    with pytest.raises(RecordError, match=field):
        require_comparable(one, other, allow_different=False)
    assert len(require_comparable(one, other, allow_different=True)) == 1
    assert require_comparable(one, one, allow_different=False) == []


def test_an_emulated_run_is_never_compared_with_a_real_one() -> None:
    one = run_of(1e7)
    with pytest.raises(RecordError, match="never compared"):
        require_comparable(one, replace(one, device={"kind": "emulator"}), allow_different=True)


def test_the_command_says_what_it_found_by_its_exit_code(tmp_path: Path, capsys: Capture) -> None:
    def written(name: str, ns: float, rounds: int = 9) -> str:
        return str(write_chain(tmp_path / name, {"copy": 8e6, "v": ns}, rounds=rounds))

    one = written("a.h5", 14e6)
    same, slower, faster = written("b.h5", 14.001e6), written("c.h5", 15e6), written("d.h5", 13e6)
    for other, code, said in [(same, 0, ""), (faster, 0, ""), (slower, 1, "slower")]:
        assert run(["compare", one, other]) == code
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.err.count("\n") == bool(said)
        assert "4 comparisons" in captured.out
    assert run(["compare", one, slower, "--json", "--metric", "event_interval"]) == 1
    records = json.loads(capsys.readouterr().out)
    assert [record["verdict"] for record in records] == ["slower", "slower"]
    assert run(["compare", one, slower, "--threshold", "0.2"]) == 0
    capsys.readouterr()
    few = [written("e.h5", 14e6, rounds=5), written("f.h5", 15e6, rounds=5)]
    assert run(["compare", *few]) == 3
    captured = capsys.readouterr()
    assert captured.err == "mk: 4 of 4 comparisons are ambiguous, none is slower\n"
    assert "5 rounds: 4 comparisons need 8" in captured.out


def test_committed_sessions_ran_on_two_devices_and_are_refused(capsys: Capture) -> None:
    files = [str(DATA / name) for name in ("session-1.h5", "session-2.h5")]
    assert run(["compare", *files]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "device uuid (GPU-a13a5bb8" in captured.err
    assert "--allow-different" in captured.err
    # At one row the second GPU takes a little longer, whatever runs; at 16 rows and more only the baseline differs.
    assert run(["compare", *files, "--allow-different", "--metric", "event_interval"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT: device uuid" in out
    changed = [line.split() for line in out.splitlines() if line.startswith(("slower", "faster"))]
    assert {(cells[0], cells[1]) for cells in changed if cells[2] != "unfused"} == {("slower", "1")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threshold", "-1"], "threshold is -1.0: give a relative change"),
        (["--threshold", "nan"], "threshold is nan"),
        (["--error-rate", "0"], "error rate is 0.0"),
        (["--metric", "time"], "unknown metric 'time': choose from host_completion"),
    ],
)
def test_bad_rules_are_refused(options: list[str], message: str, tmp_path: Path, capsys: Capture) -> None:
    assert run(["compare", "a.h5", "b.h5", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    path = str(write_chain(tmp_path / "a.h5", {"v": 9000}))
    assert run(["compare", path, path]) == 2
    with pytest.raises(UsageError):
        Rules(metrics=("none",))


def test_a_run_that_was_wrong_is_a_bad_verdict_however_fast(tmp_path: Path, capsys: Capture) -> None:
    first, second = (write_chain(tmp_path / f"{k}.h5", rounds=21, scale=1 + k / 1e3) for k in (0, 1))
    assert run(["compare", str(first), str(second), "--metric", "event_interval"]) == 0
    with h5py.File(second, "r+") as file:
        (name,) = [n for n, s in file["series"].items() if (s.attrs["variant"], s.attrs["submission"]) == WRONG]
        file["series"][name].copy("verified_before", "verified_after")
        file["series"][name]["verified_after"].attrs["passed"] = False
    capsys.readouterr()
    assert run(["compare", str(first), str(second), "--metric", "event_interval", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert (
        err.splitlines()[-1] == f"mk: {second}: retained, 16 rows, graph was wrong after timing: its times say nothing"
    )


def test_a_variant_that_the_second_run_refused_is_a_bad_verdict() -> None:
    first = run_of(1e7)
    second = replace(only(first, lambda s: s.variant != "v"), refusals=("v, 16 rows, graph: y.accuracy",))
    assert not_right(first, second) == ["a.h5: not timed: v, 16 rows, graph: y.accuracy"]
    assert not_right(first, replace(second, refusals=("w, 16 rows, graph: y.accuracy",))) == []
    assert not_right(second, first) == []


def test_other_rounds_are_not_paired() -> None:
    one = run_of(1e7, rounds=21)
    other = replace(one, series=tuple(replace(s, rounds=s.rounds + 1) for s in one.series))
    assert verdict(one, one).low == verdict(one, one).high == 0
    low = verdict(one, other).low
    assert low is not None
    assert low < 0


def test_an_error_that_the_resamples_cannot_tell_decides_nothing() -> None:
    found = verdict(run_of(1e7, rounds=40), run_of(2e7, rounds=40), replace(EVENT, error_rate=1e-5))
    assert found.verdict == "ambiguous"
    assert found.why == "100000 resamples cannot tell an error of 1e-05: name fewer metrics"


def test_a_small_error_is_told_by_more_resamples() -> None:
    first, second = run_of(1e7, rounds=40), run_of(1e7, rounds=40, seed=1)
    second = replace(second, series=tuple(replace(s, rounds=s.rounds + 1) for s in second.series))
    wide, wider = (verdict(first, second, replace(EVENT, error_rate=error)) for error in (5e-2, 5e-5))
    assert wide.low is not None
    assert wider.low is not None
    assert wider.low < wide.low
    assert verdict(first, run_of(2e7, rounds=40), replace(EVENT, error_rate=5e-5)).verdict == "slower"


def test_whole_sessions_are_compared_by_default() -> None:
    """All their series and both metrics: a table of the size that the tool itself writes must be decided."""
    first = committed("session-1.h5")
    slower = replace(first, series=tuple(s if s.computes != "softmax" else scaled(s, 1.03) for s in first.series))
    found = compare(first, slower, Rules())
    assert len(found) > 250
    assert {comparison.verdict for comparison in found} == {"slower"}
