"""Files that are no session, or no longer: one error, with the path."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.unit.samples import write_session

from megakernel.errors import MissingError, RecordError
from megakernel.record.reader import load
from megakernel.record.session import Session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_session(tmp_path / "a.h5", {"copy": [4.0, 4.5], "v": [8.0, 9.0]})


def edit(path: Path, change: Callable[[Any], object]) -> None:
    with h5py.File(path, "r+") as file:
        change(file)


def refuse(path: Path, message: str) -> None:
    with pytest.raises(RecordError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"none\.h5: no such file$"):
        load(tmp_path / "none.h5")
    with pytest.raises(MissingError):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"rows,us\n1,2\n", b"\x89HDF\r\n\x1a\n", b"\0" * 4096])
def test_a_file_that_is_not_hdf5_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(content)
    refuse(path, "is not a readable session file: ")


def test_another_hdf5_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
    refuse(path, "is an HDF5 file, but not a session")


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_schema_version_is_refused_with_both_numbers(path: Path, version: int) -> None:
    edit(path, lambda file: file.attrs.modify("schema_version", version))
    refuse(path, f"has schema version {version}; this program reads version 1")


@pytest.mark.parametrize("name", ["host_completion", "host_enqueue", "host_batch_completion", "event_interval"])
@pytest.mark.parametrize("units", ["us", "ms", "", None])
def test_times_in_other_units_are_refused(path: Path, name: str, units: str | None) -> None:
    def change(file: Any) -> None:
        if units is None:
            del file["series/0001"][name].attrs["units"]
        else:
            file["series/0001"][name].attrs["units"] = units

    edit(path, change)
    refuse(path, rf"/series/0001/{name} has units {units!r}, not 'ns'")


DAMAGE: dict[str, Callable[[Any], object]] = {
    "no series": lambda file: file.__delitem__("series"),
    "no shapes": lambda file: file.__delitem__("shapes"),
    "no samples": lambda file: file.__delitem__("series/0000/event_interval"),
    "no rounds": lambda file: file.__delitem__("series/0000/round"),
    "no version": lambda file: file.attrs.__delitem__("schema_version"),
    "a version in words": lambda file: file.attrs.__setitem__("schema_version", "one"),
    "no completeness": lambda file: file.attrs.__delitem__("complete"),
    "no variant": lambda file: file["series/0001"].attrs.__delitem__("variant"),
    "another submission": lambda file: file["series/0001"].attrs.__setitem__("submission", "stream"),
    "rows in words": lambda file: file["series/0001"].attrs.__setitem__("rows", "many"),
    "no rows": lambda file: file["series/0001"].attrs.__setitem__("rows", 0),
    "an impossible tile": lambda file: file["series/0001"].attrs.__setitem__("tile", 7),
    "series is data": lambda file: (file.__delitem__("series"), file.__setitem__("series", np.arange(3))),
    "a series is data": lambda file: (
        file.__delitem__("series/0000"),
        file["series"].__setitem__("0000", np.arange(3)),
    ),
    "rounds is a group": lambda file: (
        file.__delitem__("series/0000/round"),
        file["series/0000"].create_group("round"),
    ),
    "samples in words": lambda file: (
        file.__delitem__("series/0000/host_enqueue"),
        file["series/0000"].create_dataset("host_enqueue", data=["a", "b"]).attrs.__setitem__("units", "ns"),
    ),
    "fewer samples than rounds": lambda file: file["series/0000/event_interval"].resize(1, axis=0),
    "flat singles": lambda file: (
        file.__delitem__("series/0000/host_completion"),
        file["series/0000"].create_dataset("host_completion", data=[1, 2]).attrs.__setitem__("units", "ns"),
    ),
    "environment is data": lambda file: (
        file.__delitem__("environment"),
        file.__setitem__("environment", np.arange(3)),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_session_with_a_part_missing_or_wrong_is_refused(path: Path, damage: str) -> None:
    edit(path, DAMAGE[damage])
    refuse(path, r"a\.h5")


def test_a_truncated_file_is_refused_or_read(path: Path) -> None:
    whole = path.read_bytes()
    for keep in (100, 1000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        refuse(path, "is not a readable session file: ")


def test_damaged_bytes_end_in_an_error_of_ours_or_in_a_session(path: Path) -> None:
    whole = path.read_bytes()
    randomness = random.Random(3)
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(randomness.choice((1, 30))):
            at = randomness.randrange(len(damaged))
            damaged[at : at + 8] = randomness.randbytes(min(8, len(damaged) - at))
        path.write_bytes(damaged)
        with suppress(RecordError):
            assert isinstance(load(path), Session)


def test_a_longer_array_of_an_unfinished_round_is_cut(path: Path) -> None:
    # A kill between two appends leaves some arrays one entry longer.
    edit(path, lambda file: file["series/0000/event_interval"].resize(3, axis=0))
    series = load(path).series[0]
    assert len(series.event_ns) == len(series.rounds) == len(series.singles_ns) == 2


def test_optional_groups_may_be_missing(path: Path) -> None:
    edit(path, lambda file: [file.__delitem__(name) for name in ("environment", "device")])
    session = load(path)
    assert (session.environment, session.device) == ({}, {})
    assert len(session.series) == 2


@pytest.mark.parametrize("name", ["host_completion", "host_enqueue", "host_batch_completion", "position"])
def test_a_dataset_of_another_kind_is_refused_by_name(path: Path, name: str) -> None:
    """A float NaN, cast to an integer, would be shown as a time."""

    def to_nan(file: Any) -> None:
        stored = file[f"series/0001/{name}"]
        values, attributes = np.full(stored.shape, np.nan), dict(stored.attrs)
        del file[f"series/0001/{name}"]
        file[f"series/0001/{name}"] = values
        file[f"series/0001/{name}"].attrs.update(attributes)

    edit(path, to_nan)
    refuse(path, rf"/series/0001/{name} holds float64, not int64$")
