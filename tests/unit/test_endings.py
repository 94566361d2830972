"""How a session ends that does not reach its end: killed, terminated, interrupted, on a full disk."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
from tests.unit.samples import STATE, header, sample, subject
from tools.kill_sessions import killed_session

from megakernel.errors import RecordError
from megakernel.operator.contract import Problem
from megakernel.record.reader import load
from megakernel.record.session import RoundState, Session
from megakernel.record.writer import SessionWriter

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

# A session through the command line, on the fake device, that goes on until something ends it.
ENDLESS = """
import sys
from dataclasses import replace
from pathlib import Path
from megakernel.cli.main import run
from megakernel.device import choose
from megakernel.report import tables
from tests.unit.fakes import FakeDevice

device = FakeDevice()
device.facts = replace(device.facts, name="NVIDIA H200")
choose.open_device = lambda *_, **__: device
tables.progress_report = lambda bar: lambda done, total, what: done == 7 and Path(sys.argv[1] + ".ready").touch()
BEFORE
arguments = ["session", "--variant", "retained", "--rows", "1", "--width", "300", "--rounds", "100000"]
sys.exit(run([*arguments, "--out", sys.argv[1]]))
"""


def endless(path: Path, before: str = "") -> subprocess.Popen[str]:
    code = ENDLESS.replace("BEFORE", before)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_rounds(path: Path) -> None:
    """Until several rounds are finished."""
    for _ in range(600):
        if path.with_name(path.name + ".ready").exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{path}: no round is finished")


@pytest.mark.parametrize("after_s", [0.0, 0.013, 0.3, 0.7, 1.1])
def test_a_kill_at_any_moment_loses_no_finished_round(tmp_path: Path, after_s: float) -> None:
    # tools/kill_sessions.py does fifty.
    assert killed_session(tmp_path, after_s) == []


def test_a_file_that_lost_a_round_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_its_rounds(path: Path) -> Session:
        with h5py.File(path, "r+") as file:
            for name in file["series"]:
                file["series"][name]["round"].resize(0, axis=0)
        return load(path)

    monkeypatch.setattr("tools.kill_sessions.load", without_its_rounds)
    assert any("is missing or wrong" in fault for fault in killed_session(tmp_path, 0.5))


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_a_session_cleanly(tmp_path: Path, number: signal.Signals, code: int, word: str) -> None:
    path = tmp_path / "a.h5"
    partial = tmp_path / "a.h5.partial"
    with endless(path) as child:
        wait_for_rounds(path)
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (code, "")
    assert err.splitlines()[-2:] == [f"the samples so far are in {partial}", f"mk: {word}"]
    assert "\x1b" not in err
    session = load(partial)
    assert (session.complete, session.interruption) == (False, word)
    assert min(len(series.rounds) for series in session.series) >= 5
    assert not path.exists()


LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then what is beyond the limit fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
"""


def test_a_disk_that_fills_up_ends_the_session_and_keeps_every_round(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    partial = tmp_path / "a.h5.partial"
    with endless(path, LIMITED.replace("LIMIT,", f"{8 * 2**20 + 300_000},")) as child:
        _, err = child.communicate(timeout=120)
    assert child.returncode == 2
    assert err.splitlines()[-2:] == [
        f"the samples so far are in {partial}",
        f"mk: the disk of {partial} has no room for another round (8192 KiB): File too large: make room, or name a "
        "file elsewhere with --out",
    ]
    session = load(partial)
    assert "no room for another round" in session.interruption
    (rounds,) = {len(series.rounds) for series in session.series}
    assert rounds >= 5
    assert partial.stat().st_size < 400_000


def test_a_write_that_fails_all_the_same_ends_in_one_line_and_no_crash(tmp_path: Path) -> None:
    # HDF5 would write again when its objects are closed, and crash the process.
    blind = "\nfrom megakernel.record.writer import SessionWriter\nSessionWriter.require_room = lambda self: None\n"
    with endless(tmp_path / "a.h5", LIMITED.replace("LIMIT,", "200_000,") + blind) as child:
        _, err = child.communicate(timeout=120)
    assert child.returncode == 2
    assert err.splitlines()[-1].startswith(f"mk: cannot write {tmp_path}/a.h5.partial: ")
    assert "Traceback" not in err


def test_a_finished_file_gives_back_the_room_that_it_did_not_need(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    writer.require_room()
    assert writer.partial.stat().st_size > 8 * 2**20
    writer.finish()
    assert (tmp_path / "a.h5").stat().st_size < 100_000
    assert load(tmp_path / "a.h5").complete


def test_a_write_that_fails_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    series = writer.add_series(writer.add_shape(Problem(1), ""), subject("v"))

    def fail() -> None:
        raise RuntimeError("Can't write data (file write failed: errno = 28)\nmore")

    monkeypatch.setattr(writer._file, "flush", fail)
    writer.append(series, 0, 0, sample(1.0))
    with pytest.raises(RecordError, match=r"^cannot write .*a\.h5\.partial: Can't write data .*errno = 28\)$"):
        writer.finish_round(0, RoundState(STATE, STATE))


@pytest.mark.parametrize("name", ["host_completion", "round", "sm_clock_mhz"])
def test_an_interrupted_entry_is_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    shape = writer.add_shape(Problem(16, 1000), "x")
    series = writer.add_series(shape, subject("retained"))
    for number in range(2):
        writer.append(series, number, 0, sample(100))
        writer.finish_round(shape, RoundState(STATE, STATE))
    stored = h5py.Dataset.__setitem__

    def third_round() -> None:
        writer.append(series, 2, 0, sample(100))
        writer.finish_round(shape, RoundState(STATE, STATE))

    def interrupted(dataset: h5py.Dataset, key: object, value: object) -> None:
        if dataset.name.endswith(f"/{name}"):
            raise KeyboardInterrupt
        stored(dataset, key, value)

    monkeypatch.setattr(h5py.Dataset, "__setitem__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        third_round()
    monkeypatch.undo()
    assert writer.abandon("interrupted")
    assert load(tmp_path / "a.h5.partial").series[0].rounds.tolist() == (
        [0, 1, 2] if name == "sm_clock_mhz" else [0, 1]
    )
    with h5py.File(tmp_path / "a.h5.partial") as file:
        assert len(file["shapes/0000"]["sm_clock_mhz"]) == 2
        assert (file["series/0000/round"][()] >= range(len(file["series/0000/round"]))).all()
