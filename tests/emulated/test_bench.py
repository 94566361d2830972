"""The whole program on the emulator: measure into a file, then show it as what it is."""

import json
from pathlib import Path

import pytest

from megakernel.cli.main import run
from megakernel.record.reader import load

VARIANTS = ("empty", "copy", "local_recompute", "row_retained")  # the floors come along by themselves
CHOSEN = ["--variant", "local_recompute", "--variant", "row_retained"]
DEVICE = ["--device", "emulator:h100", "--sms", "16"]
BENCH = ["bench", *CHOSEN, *DEVICE, "--rows", "2", "--rows", "1", "--width", "4097"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "session.h5"
    assert run([*BENCH, "--rounds", "2", "--out", str(path)]) == 0
    return path


def test_session_holds_every_variant_and_shape(file: Path) -> None:
    session = load(file)

    assert session.complete
    assert session.device["kind"] == "emulator"
    assert session.device["sm_count"] == 16
    subjects = {(series.variant, series.submission, series.problem.rows) for series in session.series}
    assert subjects == {(name, how, rows) for name in VARIANTS for how in ("direct", "graph") for rows in (1, 2)}
    for series in session.series:
        assert list(series.rounds) == [0, 1]
        assert series.verified_before
        assert series.verified_after
        assert (series.event_ns > 0).all()


def test_show_says_that_it_is_emulated(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(file)]) == 0

    shown = capsys.readouterr().out
    assert "(emulated)" in shown
    assert "say nothing about a GPU" in " ".join(shown.split())
    assert all(name in shown for name in VARIANTS)


def test_show_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(file), "--json"]) == 0

    rows = json.loads(capsys.readouterr().out)
    assert {row["variant"] for row in rows} == set(VARIANTS)


def test_existing_file_is_never_overwritten(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_bytes()

    assert run([*BENCH, "--rounds", "1", "--out", str(file)]) == 2
    assert str(file) in capsys.readouterr().err
    assert file.read_bytes() == before


def test_verify_command_explores_interleavings(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--device", "emulator", "--rows", "2", "--width", "4097", "--seeds", "3", "--weak-stores"]
    assert run(["verify", "row_retained", *options]) == 0
    assert capsys.readouterr().out.count("passed, 3 of 3 seeds") == 2
