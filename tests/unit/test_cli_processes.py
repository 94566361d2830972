"""The command as a process of its own: what it imports, how fast it starts, what it needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.samples import write_session

MK = [sys.executable, "-m", "megakernel"]
NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8:strict"}


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=NO_GPU)


def processor_seconds() -> float:
    """Of all child processes so far: unlike the time of day, it does not grow when the machine is busy."""
    times = os.times()
    return times.children_user + times.children_system


def test_help_starts_at_once() -> None:
    seconds = []
    for _ in range(5):
        started = processor_seconds()
        done = subprocess.run([*MK, "--help"], capture_output=True, text=True, env=NO_GPU)
        seconds.append(processor_seconds() - started)
        assert done.returncode == 0
        assert done.stderr == ""
        assert "bench" in done.stdout
    assert min(seconds) < 0.8


def test_the_command_line_loads_no_heavy_package() -> None:
    # What an environment loads by itself at start-up does not count.
    code = (
        "import sys; before = set(sys.modules); import megakernel.cli.main; "
        "heavy = {'cuda', 'h5py', 'numpy', 'rich', 'cffi', 'megakernel.variants.catalogue', 'megakernel.record.plan'}; "
        "print(heavy & (set(sys.modules) - before))"
    )
    assert python(code).stdout == "set()\n"


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cuda", "cffi"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
from megakernel.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def test_results_are_shown_where_cuda_is_not_installed(tmp_path: Path) -> None:
    path = write_session(tmp_path / "a.h5", {"copy": [4.0], "v": [8.0]})
    done = python(BLOCKED, "show", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert " v " in done.stdout
    assert "\x1b" not in done.stdout
    assert python(BLOCKED, "--help").returncode == 0


def test_where_cuda_is_not_installed_a_command_that_needs_it_says_so() -> None:
    done = python(BLOCKED, "devices")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "blocked" in done.stderr


def test_without_a_gpu_bench_ends_with_one_line_and_no_file(tmp_path: Path) -> None:
    done = subprocess.run([*MK, "bench", "--device", "0"], capture_output=True, text=True, cwd=tmp_path, env=NO_GPU)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mk: ")
    assert done.stderr.count("\n") == 1
    assert "emulator" in done.stderr
    assert list(tmp_path.iterdir()) == []


STARTS = """
import os, sys
from megakernel.__main__ import main
class Send:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Send())
sys.argv[1:] = ["--help"]
main()
"""


@pytest.mark.parametrize(("number", "code", "said"), [(2, 130, "interrupted"), (15, 143, "terminated")])
@pytest.mark.parametrize("wanted", ["megakernel.cli.main", "typer", "megakernel.cli.bench"])
def test_a_signal_while_the_command_is_loaded_is_no_traceback(number: int, code: int, said: str, wanted: str) -> None:
    done = python(f"wanted, number = {wanted!r}, {number}\n{STARTS}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"mk: {said}\n")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = write_session(tmp_path / "a.h5", {f"variant_{i}": [8.0] for i in range(40)})
    command = f"{sys.executable} -m megakernel show {path} --json"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -c 1; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[", "")


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path: Path) -> None:
    code = "from megakernel.report import tables\ntables.print_lines(['a\\udcff'])\n"
    code += "tables.print_table([('n\\udcff', False)], [['b\\udcff']], 't\\udcff')"
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [f"{letter}\\udcff" for letter in "atnb"]
