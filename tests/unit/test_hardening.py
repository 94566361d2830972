"""What went wrong when somebody tried hard: each kind of fault ends in one line and the right exit code."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.samples import write_session

from megakernel.cli import interrupts
from megakernel.device.cache import writable
from megakernel.errors import RecordError, UsageError
from megakernel.record import writer as writing
from megakernel.record.reader import load
from megakernel.record.writer import SessionWriter
from megakernel.variants.catalogue import find
from megakernel.variants.declaration import Configuration, Quantity, SharedMemory, Stage, Variant, Y

MK = [sys.executable, "-m", "megakernel"]


def test_a_disk_that_fills_up_is_noticed_before_samples_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    monkeypatch.setattr(writing, "_LEAST_ROOM_BYTES", 2**62)
    with pytest.raises(RecordError, match="has no room for another round"):
        writer.require_room()
    writer.close()
    with pytest.raises(RecordError, match="are left on the disk"):
        SessionWriter(tmp_path / "b.h5")


def test_rounds_that_do_not_follow_one_another_are_damage(tmp_path: Path) -> None:
    import h5py

    path = write_session(tmp_path / "a.h5", {"v": [5.0, 6.0, 7.0]})
    with h5py.File(path, "r+") as file:
        file["series/0000/round"][2] = 0
    with pytest.raises(RecordError, match="rounds do not follow"):
        load(path)


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_an_output_that_names_no_file_is_refused(name: str) -> None:
    with pytest.raises(RecordError):
        SessionWriter(Path(name))


def test_a_dangling_link_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a.h5").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RecordError, match="exists already"):
        SessionWriter(tmp_path / "a.h5")


def test_an_interrupt_that_was_swallowed_is_raised_at_the_next_step() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupts.install()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        steps: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            interrupts.checked(steps.append)(1)
        assert steps == []
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupts.install()
        interrupts.checked(steps.append)(1)
        assert steps == [1]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("body", ["import sys; sys.exit(0)", "raise SystemExit('bye')", "1 / 0", "V = 3"])
def test_a_variant_file_that_ends_or_fails_is_a_usage_error(tmp_path: Path, body: str) -> None:
    (tmp_path / "v.py").write_text(body)
    with pytest.raises(UsageError, match=r"v\.py"):
        find(f"{tmp_path}/v.py:V")


ONE = (Configuration(32, 128),)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stage("k<{thread}>"),
        lambda: Stage("k<{0}>"),
        lambda: Stage("k{"),
        lambda: Stage("k", grid="blocks"),  # type: ignore[arg-type]
        lambda: Stage("k", barrier="cluster"),  # type: ignore[arg-type]
        lambda: Stage("k", threads=31),
        lambda: Stage("k", threads=-1),
        lambda: SharedMemory(alignment=0),
        lambda: SharedMemory(bytes_per_warp=-1),
        lambda: Quantity("q", "nonsense"),  # type: ignore[arg-type]
        lambda: Quantity("q", "tile", ("tile_maxima", "tile_square_sums")),
        lambda: Variant("v", "v.cu", (), ONE),
        lambda: Variant("v", "v.cu", (Stage("k", writes=(Y.tile,)),), ()),
        lambda: Variant("v", "v.cu", (Stage("k", writes=(Y.tile,)),), ("32x128",)),  # type: ignore[arg-type]
        lambda: Variant("v", "v.cu", (Stage("k", writes=(Y.tile,)),), ONE, for_rows={0: ONE[0]}),
        lambda: Variant("v", "v.cu", (Stage("k", writes=(Y.tile,)),), ONE, computes="love"),  # type: ignore[arg-type]
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused_where_it_is_made(make: object) -> None:
    assert callable(make)
    with pytest.raises(UsageError):
        make()


def test_a_reader_that_leaves_early_is_no_verdict(tmp_path: Path) -> None:
    path = write_session(tmp_path / "a.h5", {"v": [5.0]})
    for arguments in (["show", str(path)], ["show", str(path), "--json"]):
        command = f"{' '.join([*MK, *arguments])} | true; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_closed_standard_streams_change_no_exit_code(tmp_path: Path) -> None:
    path = write_session(tmp_path / "a.h5", {"v": [5.0]})
    for redirection, arguments, code in ((">&-", f"show {path}", 0), ("2>&-", "show nothing.h5", 2)):
        command = f"{' '.join(MK)} {arguments} {redirection}"
        assert subprocess.run(["bash", "-c", command], capture_output=True).returncode == code


def test_a_cache_that_cannot_be_written_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert writable(tmp_path / "here") == tmp_path / "here"
    other = writable(tmp_path / "file" / "below")
    assert other.is_dir()
    assert os.access(other, os.W_OK)
