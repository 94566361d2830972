"""The README's tour: every command of it runs, on a machine without a GPU."""

import re
import shlex
from pathlib import Path

import pytest

from megakernel.cli.main import run

ROOT = Path(__file__).resolve().parents[2]


def commands() -> list[list[str]]:
    text = (ROOT / "README.md").read_text()
    (tour,) = re.findall(r"## A five-minute tour\n.*?```console\n(.*?)```", text, re.DOTALL)
    lines = [line.partition("#")[0] for line in tour.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("mk ")]


def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").symlink_to(ROOT / "data")
    monkeypatch.chdir(tmp_path)
    toured = commands()
    assert {command[0] for command in toured} >= {
        "occupancy",
        "compile",
        "verify",
        "bench",
        "show",
        "report",
        "compare",
    }
    for command in toured:
        if "--html" in command:
            pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
        assert run(command) == (command[0] == "compare"), command  # it says that the second GPU is slower at one row
        assert capsys.readouterr().out
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
