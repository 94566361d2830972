"""Which way of running pays, step by step."""

from pathlib import Path

import pytest
from tests.unit.reports import CHAIN, write_chain

from megakernel.cli.main import run
from megakernel.report.analysis import analyse
from megakernel.report.stand_ins import Pair
from megakernel.report.ways import Step, steps

ROUNDS = 12


def found(paths: list[Path], pairs: dict[int, Pair] | None = None) -> dict[str, Step]:
    return {step.adds: step for step in analyse(paths, pairs).steps}


def test_each_way_is_held_against_the_way_before_it(tmp_path: Path) -> None:
    by_name = found([write_chain(tmp_path / "a.h5", rounds=ROUNDS)])
    assert [(s.before, s.after, s.verdict) for s in by_name.values()] == [
        (("unfused", "direct"), ("unfused", "graph"), "faster"),
        (("unfused", "graph"), ("local_recompute", "graph"), "faster"),
        (("local_recompute", "graph"), ("row_retained", "graph"), "faster"),
    ]
    last = by_name["megakernel"]
    assert last.change == pytest.approx(14_055 / 15_055 - 1)  # the middle rounds, of which each is 10 ns slower
    assert last.low is not None
    assert last.high is not None
    assert last.low <= last.change <= last.high < -0.01


def test_the_pilot_s_pair_takes_the_article_s_place(tmp_path: Path) -> None:
    path = write_chain(tmp_path / "a.h5", CHAIN | {"local1": 13_000.0}, rounds=ROUNDS)
    last = found([path], {16: Pair("local1", "retained")})["megakernel"]
    assert (last.before, last.after, last.verdict) == (("local1", "graph"), ("retained", "graph"), "slower")


def test_sessions_that_disagree_give_no_verdict(tmp_path: Path) -> None:
    one = write_chain(tmp_path / "a.h5", rounds=ROUNDS)
    other = write_chain(tmp_path / "b.h5", CHAIN | {"row_retained": 16_000.0}, rounds=ROUNDS)
    last = found([one, other])["megakernel"]
    assert last.session_change[0] < -0.05
    assert last.session_change[1] > 0.05
    assert last.low is not None
    assert last.high is not None
    assert last.low < last.session_change[0]
    assert last.high > last.session_change[1]
    assert last.verdict == "ambiguous"


def test_what_lies_within_the_threshold_is_the_same(tmp_path: Path) -> None:
    path = write_chain(tmp_path / "a.h5", CHAIN | {"row_retained": 15_050.0}, rounds=ROUNDS)
    assert found([path])["megakernel"].verdict == "same"


def test_too_few_rounds_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_chain(tmp_path / "a.h5", rounds=3)
    assert {step.verdict for step in found([path]).values()} == {"ambiguous"}
    assert run(["report", str(path)]) == 0
    assert "too few rounds" in capsys.readouterr().out


def test_a_way_that_was_not_measured_has_no_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = {name: ns for name, ns in CHAIN.items() if name != "local_recompute"}
    path = write_chain(tmp_path / "a.h5", times, rounds=ROUNDS)
    assert list(found([path])) == ["CUDA Graph"]
    floors = write_chain(tmp_path / "b.h5", {"copy": 8_000.0}, rounds=ROUNDS)
    assert run(["report", str(floors)]) == 0
    assert "which way" not in capsys.readouterr().out


def test_only_rounds_that_both_have_are_compared(tmp_path: Path) -> None:
    analysis = analyse([write_chain(tmp_path / "a.h5", rounds=ROUNDS, throttled=(0, 1))], exclude_throttled=True)
    assert analysis.excluded_rounds == 2
    last = steps(analysis.sessions, analysis.stand_ins)[-1]
    assert last.before_ns == pytest.approx(15_065)


def test_an_emulator_s_times_say_nothing(tmp_path: Path) -> None:
    assert analyse([write_chain(tmp_path / "a.h5", rounds=ROUNDS, kind="emulator")]).steps == ()
