"""Files that a command leaves behind are new ones, whole or not at all."""

import errno
import os
from pathlib import Path
from typing import IO

import pytest

from megakernel.cli.main import run
from megakernel.errors import RecordError, printable
from megakernel.files import write_new


def test_a_new_file_is_written(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"abc")
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_nothing_that_exists_is_written_over_not_even_through_a_link(tmp_path: Path) -> None:
    kept = tmp_path / "session.h5"
    kept.write_bytes(b"samples")
    os.link(kept, tmp_path / "hard.html")
    (tmp_path / "soft.html").symlink_to(kept)
    for name in ("session.h5", "hard.html", "soft.html"):
        with pytest.raises(RecordError, match=f"{name} exists already: name another file"):
            write_new(tmp_path / name, b"page")
    assert kept.read_bytes() == b"samples"


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"^cannot write .*/none/a: there is no folder .*/none: make it first$"):
        write_new(tmp_path / "none" / "a", b"")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    class Full:
        def __init__(self, path: Path, mode: str) -> None:
            self._file: IO[bytes] = opened(path, mode)

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, data: bytes) -> None:
            self._file.write(data[:3])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda path, mode: Full(path, mode))
    with pytest.raises(RecordError, match=r"cannot write .*/a: No space left on device"):
        write_new(tmp_path / "a", b"x" * 10)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "{session}", "--html", "{taken}.html"],
        ["report", "{session}", "--figure", "completion", "--out", "{taken}.svg"],
        ["freeze", "--out", "{taken}.json"],
    ],
    ids=["html", "figure", "manifest"],
)
def test_no_command_writes_over_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    if arguments[0] == "report":
        pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
        pytest.importorskip("jinja2", reason="the extra 'report' is not installed")
    session = Path(__file__).resolve().parents[2] / "data" / "h200" / "exact-case.h5"
    for suffix in ("html", "svg", "json"):
        (tmp_path / f"taken.{suffix}").write_text("kept")
    assert run([a.format(session=session, taken=tmp_path / "taken") for a in arguments]) == 2
    assert "exists already: name another file" in capsys.readouterr().err
    assert {path.read_text() for path in tmp_path.iterdir()} == {"kept"}


READERS = [
    ["show", "{path}"],
    ["report", "{path}"],
    ["audit", "{path}"],
    ["compare", "{path}", "b.h5"],
    ["freeze", "--check", "{path}"],
    ["session", "--out", "a.h5", "--manifest", "{path}", "--device", "emulator"],
    ["bench", "--frozen", "{path}", "--device", "emulator"],
    ["verify", "{path}:V", "--device", "emulator"],
]


@pytest.mark.parametrize("arguments", READERS, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_named_for_what_it_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own.py"  # a variant's file has that ending, and others may have any
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)  # opened, it would wait for a writer without end
    assert run([argument.format(path=path) for argument in arguments]) == 2
    said = {"folder": "is a folder: name a file", "pipe": "is no regular file: name one"}[kind]
    assert capsys.readouterr().err.splitlines()[-1] == f"mk: {path} {said}"
    assert list(tmp_path.iterdir()) == [path]


WRITERS = [
    ["session", "--out", "none/a.h5", "--device", "emulator"],
    ["bench", "--out", "none/a.h5", "--device", "emulator"],
    ["tune", "--out", "none/a.toml", "--device", "emulator"],
    ["freeze", "--out", "none/a.json"],
    ["graph", "copy", "--dot", "none/a.dot", "--device", "emulator"],
]


@pytest.mark.parametrize("arguments", WRITERS, ids=lambda arguments: arguments[0])
def test_every_command_says_which_folder_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    place = next(argument for argument in arguments if argument.startswith("none/"))
    said = f"mk: cannot write {place}: there is no folder none: make it first"
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert list(tmp_path.iterdir()) == []


def test_control_codes_are_written_out_and_line_breaks_are_not() -> None:
    assert printable("a\x1b[31m\r\n\tb\x7f\x9b") == "a\\x1b[31m\\x0d\n\tb\\x7f\\x9b"
    assert printable("µ [bold] 高") == "µ [bold] 高"


def test_a_path_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "no\x1b[31m.h5"]) == 2
    assert capsys.readouterr().err == "mk: no\\x1b[31m.h5: no such file\n"
