"""The four metrics mean what they say, and a run that goes wrong keeps what it has."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.gpu.planted import TEN_MILLISECONDS

from megakernel.device.face import Device
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS, Submission
from megakernel.record.protocol import Protocol
from megakernel.record.reader import load
from megakernel.run.measure import measure_round
from megakernel.run.prepare import KernelStore, Operands, prepare

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

PLANTED = Path(__file__).parent / "planted.py"


@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_a_kernel_of_ten_milliseconds(gpu: Device, store: KernelStore, submission: Submission) -> None:
    """Completion and event interval see the kernel; enqueueing it does not."""
    batch = 4
    with (
        Operands(gpu, Problem(1, 128)) as operands,
        prepare(gpu, store, TEN_MILLISECONDS, operands) as prepared,
        prepared.executable(submission) as executable,
    ):
        executable.prepare()
        with gpu.stopwatch() as stopwatch:
            sample = measure_round(executable, stopwatch, Protocol(warmups=1, singles=3, batch=batch))
    assert sample.singles_ns == pytest.approx(1e7, rel=0.1)
    assert sample.event_ns / batch == pytest.approx(1e7, rel=0.1)
    assert sample.batch_ns / batch == pytest.approx(1e7, rel=0.1)
    assert sample.enqueue_ns / batch < 1e6


def _mk(*arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "megakernel", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)


def test_a_hang_is_reported_and_ends_the_process(tmp_path: Path) -> None:
    out = tmp_path / "hang.h5"
    started = time.monotonic()
    arguments = ["--variant", f"{PLANTED}:HANG", "--rows", "2", "--watchdog", "2", "--rounds", "1"]
    done = _mk("bench", *arguments, "--out", str(out))
    assert time.monotonic() - started < 60
    assert done.returncode == 2
    assert "hang: never_met" in done.stderr
    assert "launch 1 of 1: never_met, 64 blocks of 256" in done.stderr
    assert "row 0: 31 of 32 blocks arrived" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fault_names_its_call_and_keeps_the_samples(tmp_path: Path) -> None:
    """The kernel writes outside its memory after some rounds: the driver's first error ends the run."""
    out = tmp_path / "fault.h5"
    arguments = ["--variant", f"{PLANTED}:FAULT_LATER", "--rows", "1", "--warmups", "1", "--singles", "2"]
    done = _mk("bench", *arguments, "--batch", "2", "--rounds", "40", "--submission", "direct", "--out", str(out))
    assert done.returncode == 2, done.stderr
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()
    session = load(Path(f"{out}.partial"))
    assert not session.complete
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in session.interruption
    finished = {series.variant: len(series.rounds) for series in session.series}
    assert finished["copy_then_fault"] >= 1
    assert finished["empty"] >= finished["copy_then_fault"]
