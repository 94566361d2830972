"""The scripts under tools/ that load session files with h5py and NumPy alone: each runs, and agrees with the report."""

import ast
import csv
import io
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.unit.reports import write_chain

from megakernel.record.reader import load
from megakernel.report.penalties import penalties
from megakernel.report.summary import round_values, summarise

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
SESSION = ROOT / "data" / "h200" / "session-2.h5"
EXACT = ROOT / "data" / "h200" / "exact-case.h5"  # without controls
SCRIPTS = ("figure5", "figure6", "export_csv", "outliers")


def script(name: str, *arguments: object) -> str:
    command = [sys.executable, str(TOOLS / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_needs_nothing_of_this_package(name: str) -> None:
    tree = ast.parse((TOOLS / f"{name}.py").read_text())
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {each.split(".")[0] for each in imported} <= {"h5py", "numpy", "matplotlib", *sys.stdlib_module_names}


def test_the_export_holds_every_round() -> None:
    lines = list(csv.DictReader(io.StringIO(script("export_csv", SESSION))))
    session = load(SESSION)
    assert len(lines) == sum(len(series.rounds) for series in session.series)
    first = session.series[0]
    subject = {
        "variant": first.variant,
        "rows": str(first.problem.rows),
        "submission": first.submission,
        "cache": "warm",
    }
    mine = [line for line in lines if subject.items() <= line.items()]
    for metric in ("host_completion", "event_interval"):
        assert np.array([float(line[f"{metric}_ns"]) for line in mine]) == pytest.approx(round_values(first, metric))


def test_outliers_are_listed_with_their_clocks() -> None:
    lines = script("outliers", SESSION, 20).splitlines()
    assert lines[-1] == f"{len(lines) - 1} rounds above the median by more than 20 %"
    assert all("SM clock 1980/1980 MHz" in line for line in lines[:-1])
    assert len(lines) > 1


def test_figure_5_is_drawn_from_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    out = tmp_path / "figure5.svg"
    script("figure5", out, SESSION)
    assert out.read_bytes().startswith(b"<?xml")
    from tools.figure5 import medians_us

    medians = medians_us(str(SESSION))
    for row in summarise(load(SESSION)):
        if (row.metric, row.cache) == ("host_completion", "warm"):
            assert medians[row.rows, row.variant, row.submission] == pytest.approx(row.mean_ns / 1e3)


def test_figure_6_prints_and_draws_the_penalties(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    files = [write_chain(tmp_path / "a.h5"), write_chain(tmp_path / "b.h5", scale=1.1)]
    said = script("figure6", tmp_path / "figure6.png", *files)
    expected = penalties([load(file) for file in files])
    assert said.splitlines() == [
        f"{p.control}: {p.mean_ns / 1e3:+.2f} us, sessions {', '.join(f'{ns / 1e3:+.2f}' for ns in p.session_ns)}"
        for p in expected
    ]
    assert (tmp_path / "figure6.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("figure5", ["{new}.svg", "{foreign}"], "foreign.h5"),
        ("figure5", ["{taken}", SESSION], "exists"),
        ("figure5", ["{new}.nonsense", SESSION], "nonsense"),
        ("figure6", ["{new}.svg", EXACT], "no controls at 16 rows in "),
        ("figure6", ["{new}.svg"], "SESSION.h5"),
        ("export_csv", [], "SESSION.h5"),
        ("export_csv", ["{missing}"], "missing.h5"),
        ("outliers", [SESSION, "abc"], "abc"),
        ("outliers", [SESSION, "nan"], "PERCENT is nan"),
        ("outliers", ["{foreign}"], "foreign.h5"),
    ],
)
def test_bad_input_of_a_script_is_one_line_and_exit_code_2(
    tmp_path: Path, name: str, arguments: list[object], said: str
) -> None:
    if name.startswith("figure"):
        pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    (tmp_path / "foreign.h5").write_text("no HDF5")
    (tmp_path / "taken.svg").write_text("kept")
    places = {n: tmp_path / f"{n}.h5" for n in ("foreign", "missing", "new")} | {"taken": tmp_path / "taken.svg"}
    command = [sys.executable, str(TOOLS / f"{name}.py"), *(str(a).format(**places) for a in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert said in done.stderr.splitlines()[-1]
    assert (tmp_path / "taken.svg").read_text() == "kept"
    assert list(tmp_path.glob("new*")) == []


def test_a_round_whose_clocks_were_not_stored_is_no_outlier(tmp_path: Path) -> None:
    path = write_chain(tmp_path / "a.h5", rounds=3)
    with h5py.File(path, "r+") as file:
        for series in file["series"].values():
            series["host_completion"][2] = 10**9
        file["shapes/0000/throttled"].resize(2, axis=0)
    assert script("outliers", path) == "0 rounds above the median by more than 10 %\n"
