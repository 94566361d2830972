"""The variant that the documentation shows is right."""

import re
from pathlib import Path

import pytest

from megakernel.cli.main import run

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"


def test_the_variant_of_the_documentation_verifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCUMENT.read_text()
    for language, name in (("cuda", "mine.cu"), ("python", "mine.py")):
        (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
        (tmp_path / name).write_text(block)
    arguments = ["--device", "emulator", "--rows", "3", "--fixture", "timing", "--fixture", "overflow"]
    for width in ("1000", "4097"):
        assert run(["verify", f"{tmp_path}/mine.py:MINE", "--width", width, *arguments]) == 0
    assert "FAILED" not in capsys.readouterr().out
