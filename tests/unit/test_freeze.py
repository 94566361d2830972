"""The manifest: the same tree gives the same bytes, and every change of it is named."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import megakernel
from megakernel.cli.main import run
from megakernel.device.sources import kernel_folder
from megakernel.errors import RecordError
from megakernel.operator.fixtures import hashed
from megakernel.operator.tolerances import TOLERANCES
from megakernel.record import manifest
from megakernel.record.protocol import SESSION, Protocol
from megakernel.run import freeze as freezing
from megakernel.run.freeze import compare, freeze, package_hashes
from megakernel.variants.frozen import FrozenTable, shipped

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.json"
    manifest.write(freeze(shipped()), path)
    return path


def test_a_manifest_is_deterministic_and_names_everything(frozen: Path) -> None:
    assert frozen.read_text() == freeze(shipped()).text
    stored = json.loads(frozen.read_text())
    assert list(stored) == sorted(stored)
    assert {"local.cu", "emulator/scheduler.hpp"} <= set(stored["kernel_sources"])
    assert {"run/session.py", "device/resources.json"} <= set(stored["package"])
    assert stored["protocol"]["rounds"] == 21
    assert set(TOLERANCES) <= set(stored["tolerances"])
    assert compare(frozen, shipped(), SESSION).state == "as frozen"
    assert manifest.load(frozen).text == frozen.read_text()


def test_the_second_session_is_as_frozen_too(frozen: Path) -> None:
    second = replace(SESSION, order_seed=1, shape_order="descending")
    assert compare(frozen, shipped(), second).state == "as frozen"


def test_without_a_manifest_nothing_is_compared() -> None:
    assert compare(None, shipped(), SESSION).state == "none"


def _edited_kernel(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    shutil.copytree(kernel_folder(), folder / "cuda")
    (folder / "cuda" / "local.cu").write_text("// changed\n")
    (folder / "cuda" / "more.cu").write_text("// new\n")
    (folder / "cuda" / "floors.cu").unlink()
    monkeypatch.setattr(freezing, "kernel_folder", lambda: folder / "cuda")


def _edited_package(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    shutil.copytree(Path(megakernel.__file__).parent, folder / "megakernel")
    (folder / "megakernel" / "run" / "measure.py").write_text("")
    monkeypatch.setattr(freezing, "_PACKAGE", folder / "megakernel")


def _looser_rules(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(freezing, "acceptance_rules", lambda: {"y": "anything goes"})


def _other_fixture(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(freezing, "hashed", lambda rows, width: hashed(rows, width, seed=42))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            _edited_kernel,
            ["kernel_sources: floors.cu is gone", "kernel_sources: local.cu is ", "kernel_sources: more.cu is new"],
        ),
        (_edited_package, ["package: run/measure.py is "]),
        (_looser_rules, ["tolerances: y is anything goes, but was frozen as ", "tolerances: y.row_sums is gone"]),
        (_other_fixture, ["fixture: sha256 of 4 x 4096 is "]),
    ],
)
def test_every_change_of_the_tree_is_named(
    frozen: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch, Path], None],
    named: list[str],
) -> None:
    change(monkeypatch, tmp_path)
    found = compare(frozen, shipped(), SESSION)
    assert found.state == "changed"
    for words in named:
        assert [line for line in found.changes if line.startswith(words)], found.changes


def test_another_protocol_or_table_is_a_change(frozen: Path) -> None:
    found = compare(frozen, shipped(), replace(SESSION, rounds=3))
    assert found.changes == ("protocol: rounds is 3, but was frozen as 21",)
    assert compare(frozen, shipped(), Protocol()).changes
    (line,) = compare(frozen, FrozenTable((), "another"), SESSION).changes
    assert line.startswith("configurations: frozen.toml is ")


def test_installed_kernels_are_hashed_once(tmp_path: Path) -> None:
    for name in ("a.py", "kernels/k.py", "run/kernels/b.py", "c.json", "d.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert set(package_hashes(tmp_path)) == {"a.py", "run/kernels/b.py", "c.json"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is no manifest"),
        ('{"schema": "megakernel.manifest", "schema_version": 2}', "is no manifest"),
        ('{"schema": "megakernel.manifest", "schema_version": 1, "a": 3}', "section 'a' holds something else"),
        ('{"schema": "megakernel.manifest", "schema_version": 1, "a": {"b": []}}', "section 'a' holds something else"),
    ],
)
def test_what_is_no_manifest_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=message) as caught:
        manifest.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_freeze_writes_checks_and_never_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["freeze"]) == 0
    assert capsys.readouterr().out.endswith("manifest: manifest.json\n")
    before = (tmp_path / "manifest.json").read_bytes()
    assert run(["freeze"]) == 2
    assert capsys.readouterr().err == ("mk: manifest.json exists already: name another file, or move it away\n")
    assert (tmp_path / "manifest.json").read_bytes() == before
    assert run(["freeze", "--check", "manifest.json"]) == 0
    assert capsys.readouterr().out == "as frozen in manifest.json\n"
    assert run(["freeze", "--device", "emulator:h100", "--out", "emulated.json"]) == 0
    assert run(["freeze", "--device", "emulator", "--check", "emulated.json"]) == 0
    capsys.readouterr()
    assert run(["freeze", "--check", "emulated.json"]) == 1
    assert "protocol: rounds is 21, but was frozen as 3" in capsys.readouterr().out
    monkeypatch.setattr(freezing, "acceptance_rules", dict)
    assert run(["freeze", "--check", "manifest.json", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["state"] == "changed"
    assert captured.err.endswith("things are not as frozen in manifest.json\n")
    assert run(["freeze", "--out", "none/m.json"]) == 2


OWN = """
from pathlib import Path
from megakernel.variants.declaration import Configuration, Stage, Variant, X, Y
MINE = Variant("mine", source=str(Path(__file__).with_name("mine.cu")), configurations=(Configuration(256, 1024),),
               stages=(Stage("mine", reads=(X.tile,), writes=(Y.tile,)),))
"""


@pytest.mark.parametrize(
    ("changed", "line"),
    [("mine.cu", "kernel_sources: {}/mine.cu is "), ("mine.py", "own_variants: mine is ")],
)
def test_a_variant_of_ones_own_is_frozen_with_its_source(
    tmp_path: Path, capsys: Capture, changed: str, line: str
) -> None:
    (tmp_path / "mine.cu").write_text("// first\n")
    (tmp_path / "mine.py").write_text(OWN)
    own, path = f"{tmp_path}/mine.py:MINE", str(tmp_path / "manifest.json")
    assert run(["freeze", "--variant", own, "--out", path]) == 0
    assert run(["freeze", "--variant", own, "--check", path]) == 0
    text = (tmp_path / changed).read_text()
    (tmp_path / changed).write_text(text.replace("first", "second").replace("256, 1024", "256, 2048"))
    capsys.readouterr()
    assert run(["freeze", "--variant", own, "--check", path]) == 1
    assert capsys.readouterr().out.startswith(line.format(tmp_path))
    (tmp_path / "mine.cu").unlink()
    assert run(["freeze", "--variant", own, "--check", path]) == 2
    assert capsys.readouterr().err == f"mk: {tmp_path}/mine.cu: cannot be read: No such file or directory\n"
