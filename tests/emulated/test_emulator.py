"""Building kernels, and what a launch leaves behind in the process."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from megakernel.device import host_compiler
from megakernel.device.emulator_findings import DETECTORS, EmulatedFault
from megakernel.device.emulator_library import Library, release_workspace
from megakernel.device.guarded_memory import GuardedBuffer, GuardedMemory
from megakernel.device.host_compiler import BuildOptions, build, find_compiler
from megakernel.device.sources import kernel_folder
from megakernel.errors import CompileError, MissingError, UsageError

FAULTS = Path(__file__).parent / "kernels" / "faults.cu"
NAMES = ("correct", "trap", "endless_loop", "raw_write_past_end")
COPY = "copy<64, 256, Shape::exact>"


def handled_and_blocked_signals() -> list[str]:
    status = Path("/proc/thread-self/status").read_text().splitlines()
    return [line for line in status if line.startswith(("SigCgt", "SigBlk", "SigIgn"))]


class Launcher:
    def __init__(self, library: Library, memory: GuardedMemory, pack: Callable[..., int]) -> None:
        self.library, self.pack = library, pack
        self.values: GuardedBuffer = memory.allocate(4096, "values")
        self.words: GuardedBuffer = memory.allocate(256, "words")

    def __call__(self, kernel: str, time_limit_s: float = 10.0, seed: int = 0) -> int:
        self.words.bytes[:] = 0
        parameters = self.pack(np.uint64(self.values.address), np.uint64(self.words.address))
        return self.library.launch(
            kernel,
            grid=4,
            block=64,
            shared_bytes=256,
            parameters_address=parameters,
            time_limit_s=time_limit_s,
            seed=seed,
        ).switches


@pytest.fixture
def launcher(load: Callable[..., Library], memory: GuardedMemory, pack: Callable[..., int]) -> Launcher:
    return Launcher(load(FAULTS, NAMES), memory, pack)


@pytest.mark.parametrize("kernel", ["correct", "trap", "endless_loop", "raw_write_past_end"])
def test_signals_are_given_back(launcher: Launcher, kernel: str) -> None:
    before = handled_and_blocked_signals()
    try:
        launcher(kernel, time_limit_s=0.1)
    except EmulatedFault:
        assert kernel != "correct"

    assert handled_and_blocked_signals() == before


def test_endless_loop_ends_in_time(launcher: Launcher) -> None:
    started = time.monotonic()
    with pytest.raises(EmulatedFault, match="endless_loop"):
        launcher("endless_loop", time_limit_s=0.2)

    assert time.monotonic() - started < 5


def test_interrupt_arrives_after_the_launch(launcher: Launcher) -> None:
    arrived: list[int] = []

    def note(number: int, _: object) -> None:
        arrived.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        # Python drops an exception that a handler raises inside a finaliser: the launch's own fault is seen then.
        with pytest.raises((KeyboardInterrupt, EmulatedFault)):
            launcher("endless_loop", time_limit_s=0.5)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert arrived == [signal.SIGINT]

    launcher("correct")


def test_other_threads_run_and_launch(launcher: Launcher) -> None:
    failures: list[BaseException] = []

    def fail_often() -> None:
        for _ in range(20):
            try:
                launcher("trap")
            except EmulatedFault:
                continue
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=fail_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures


def test_seed_repeats_a_run(launcher: Launcher) -> None:
    assert [launcher("correct", seed=seed) for seed in range(5)] == [
        launcher("correct", seed=seed) for seed in range(5)
    ]


def test_finding_reads_as_a_sentence(launcher: Launcher) -> None:
    with pytest.raises(EmulatedFault) as caught:
        launcher("trap")

    line = FAULTS.read_text().splitlines().index("  if (blockIdx.x == 3 && threadIdx.x == 2) __trap();  // fault")
    assert str(caught.value) == f"trap: trap by block 3 thread 2 at faults.cu:{line + 1}: __trap (seed 0)"
    assert "trap" in DETECTORS


def test_workspace_can_be_released(launcher: Launcher) -> None:
    launcher("correct")
    release_workspace()
    launcher("correct")


def test_impossible_launches_are_refused(launcher: Launcher) -> None:
    launch = launcher.library.launch
    with pytest.raises(UsageError, match="was built without"):
        launch("absent", grid=4, block=64, parameters_address=0)
    for grid, block, cluster in ((0, 64, 1), (4, 0, 1), (4, 1025, 1), (4, 64, 3)):
        with pytest.raises(UsageError):
            launch("correct", grid=grid, block=block, cluster=cluster, parameters_address=0)


def test_libraries_share_buffers(launcher: Launcher, load: Callable[..., Library], memory: GuardedMemory) -> None:
    launcher("correct")
    copied = memory.allocate(4096, "copied")
    floors = load(kernel_folder() / "floors.cu", (COPY, "empty"))
    parameters = (
        np.uint64(launcher.values.address),
        np.uint64(copied.address),
        np.uint32(1024),
        np.uint32(4),
    )
    floors.launch(COPY, grid=4, block=64, parameters_address=launcher.pack(*parameters))
    floors.launch("empty", grid=1, block=1, parameters_address=0)

    assert np.array_equal(copied.bytes, launcher.values.bytes)
    memory.free(copied)
    with pytest.raises(EmulatedFault, match="belongs to no buffer"):
        floors.launch(COPY, grid=4, block=64, parameters_address=launcher.pack(*parameters))


@pytest.mark.parametrize("nbytes", [0, 4, 16, 65535, 65536, 201_028])
def test_buffers_of_any_size(memory: GuardedMemory, nbytes: int) -> None:
    buffer = memory.allocate(nbytes, "odd")

    assert buffer.address % 16 == 0
    assert (buffer.bytes == 0xFF).all()
    assert buffer.bytes.nbytes == nbytes


def test_portable_context_switch(load: Callable[..., Library], memory: GuardedMemory, pack: Callable[..., int]) -> None:
    portable = Launcher(load(FAULTS, NAMES, BuildOptions(portable_switch=True)), memory, pack)

    for seed in range(3):
        assert portable("correct", seed=seed) > 0
        with pytest.raises(EmulatedFault, match="out_of_bounds_global by block"):
            portable("raw_write_past_end", seed=seed)
    assert float(portable.values.bytes.view(np.float32)[0]) == 63.0


def test_build_is_cached_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "tiny.cu"
    source.write_text('#include "primitives.cuh"\n__global__ void tiny() {}\n')
    first = build(source, ["tiny"], cache_folder=tmp_path)
    monkeypatch.setattr(host_compiler, "_compile_stub", lambda *_: pytest.fail("compiled again"))

    assert build(source, ["tiny"], cache_folder=tmp_path) == first
    source.write_text(source.read_text() + "// changed\n")
    with pytest.raises(pytest.fail.Exception):
        build(source, ["tiny"], cache_folder=tmp_path)


def test_processes_may_build_at_the_same_time(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from megakernel.device.host_compiler import build\n"
        "print(build(pathlib.Path(sys.argv[1]), ['empty'], cache_folder=pathlib.Path(sys.argv[2])).path)"
    )
    source = kernel_folder() / "floors.cu"
    command = [sys.executable, "-c", program, str(source), str(tmp_path)]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    builds = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    printed = {process.communicate()[0].strip() for process in builds}

    assert [process.returncode for process in builds] == [0, 0]
    assert printed == {str(path) for path in (tmp_path / "emulator").glob("*.so")}


def test_compile_error_carries_the_output(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="absent"):
        build(kernel_folder() / "floors.cu", ["absent"], cache_folder=tmp_path)


def test_ziglang_package_is_a_compiler(
    tmp_path: Path, memory: GuardedMemory, pack: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ziglang")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    built = build(FAULTS, NAMES, cache_folder=tmp_path)

    with Library(built, memory) as library:
        assert Launcher(library, memory, pack)("correct") > 0


def test_compiler_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MissingError, match="no-such-compiler"):
        find_compiler()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError, match="needs a C"):
        find_compiler()


def test_a_damaged_object_is_built_again(tmp_path: Path) -> None:
    source = kernel_folder() / "floors.cu"
    built = build(source, ("empty",), cache_folder=tmp_path)
    whole = built.path.read_bytes()
    for damage in (b"", whole[: len(whole) // 2], whole[:5000] + b"x" + whole[5001:]):
        built.path.write_bytes(damage)
        assert build(source, ("empty",), cache_folder=tmp_path).path == built.path
        assert len(built.path.read_bytes()) == len(whole)
    built.path.unlink()
    built.path.mkdir()
    assert build(source, ("empty",), cache_folder=tmp_path).path.is_file()
