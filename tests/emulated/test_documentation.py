"""The variant that the documentation shows is right."""

import re
from pathlib import Path

import pytest

from megakernel.cli.main import run

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"


ARGUMENTS = ["--device", "emulator", "--rows", "3", "--fixture", "timing"]


@pytest.fixture
def documented(tmp_path: Path) -> Path:
    text = DOCUMENT.read_text()
    for language, name in (("cuda", "mine.cu"), ("python", "mine.py")):
        (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
        (tmp_path / name).write_text(block)
    return tmp_path / "mine.py"


@pytest.mark.parametrize("width", ["1000", "4097"])
def test_the_variant_of_the_documentation_verifies(documented: Path, width: str) -> None:
    assert run(["verify", f"{documented}:MINE", "--width", width, *ARGUMENTS, "--fixture", "overflow"]) == 0


def test_a_declaration_that_leaves_out_a_read_does_not(documented: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documented.write_text(documented.read_text().replace("X.row, X.row, X.row", "X.row, X.row"))
    assert run(["verify", f"{documented}:MINE", "--width", "1000", *ARGUMENTS, "--json"]) == 1
    output = capsys.readouterr().out
    assert "launch 1 (row_softmax<256>) declares 24000 bytes read, and moved 36000" in output
