"""docs/schema.md describes every group, dataset and attribute of a session file, and nothing else."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.unit.fakes import FakeDevice

from megakernel.record.plan import SUBMISSIONS
from megakernel.record.protocol import Protocol
from megakernel.record.reader import load
from megakernel.record.session import Freeze
from megakernel.record.writer import SessionWriter
from megakernel.run.session import Request, run_session
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration
from megakernel.variants.frozen import Entry, FrozenTable

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "schema.md"

# Places whose members' names are data.
SUMMARY = "/series/N/summary"
NAMED = {"/environment", "/tolerances", "/series/N/compiler", "/series/N/verified_after/intermediates"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session in which everything happened that a file can hold."""
    path = tmp_path_factory.mktemp("schema") / "a.h5"
    device = FakeDevice()
    device.tamper = lambda variant, name, values: values.fill(0) if (variant, name) == ("unfused", "y") else None
    chosen = Configuration(256, 1024)
    entry = Entry("Fake GPU", 132, 2, 300, "a test", {"local1": chosen, "retained": chosen}, "local1", "retained")
    protocol = Protocol(
        rounds=1, warmups=0, singles=1, batch=1, evicted_rounds=1, evicted_singles=1, evicted_bytes=1, evicted_l2s=0
    )
    variants = tuple(CATALOGUE[name] for name in ("copy", "unfused", "row_retained"))
    request = Request(variants, (2,), 300, 1e-5, SUBMISSIONS, protocol, FrozenTable((entry,), "text"), Freeze("{}"))
    writer = SessionWriter(path)
    run_session(device, request, writer)
    writer.finish()
    return path


def found(file: Path) -> set[str]:
    """Every place in the file; numbers of groups are N, and attributes stand behind an @."""
    places: set[str] = set()

    def place(name: str) -> str:
        path = re.sub(r"/\d{2,4}(?=/|$)", "/N", f"/{name}".rstrip("/") or "/")
        parent, _, _ = path.rpartition("/")
        if parent == SUMMARY:
            return f"{SUMMARY}/METRIC"
        return f"{parent}/NAME" if parent in NAMED else path

    def visit(name: str, thing: object) -> None:
        assert isinstance(thing, h5py.Group | h5py.Dataset)
        here = place(name)
        if isinstance(thing, h5py.Dataset):
            places.add(here)
        places.update(f"{here.rstrip('/')}@{attribute}" for attribute in thing.attrs)

    with h5py.File(file) as opened:
        visit("", opened)
        opened.visititems(visit)
    general = ("@units", "@invocations")  # of every time
    return {p for p in places if not p.endswith(general)}


def documented(text: str) -> set[str]:
    """The places of the document's table."""
    places: set[str] = set()
    for line in text.splitlines():
        if not line.startswith("| `/"):
            continue
        left, right = (cell.strip() for cell in line.strip("|").split("|", 1))
        paths = re.findall(r"`([^`]+)`", left)
        parent = paths[0].rpartition("/")[0]
        whole = [re.sub(r"/\d{2,4}(?=/|$)", "/N", p if p.startswith("/") else f"{parent}/{p}") for p in paths]
        if "attributes" in left:
            names = [name for name in re.findall(r"`(\w+)`", right) if name not in VALUES]
            places |= {f"{p.rstrip('/')}@{name}" for p in whole for name in names}
        else:
            places |= set(whole)
    return places


# Words of the document that are values of the attribute before them.
VALUES = {"gpu", "emulator", "none", "changed", "warm", "evicted"}


def expanded(places: set[str]) -> set[str]:
    """What the document says once for several places."""
    states = {"sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_mw", "throttle_reasons"}
    places = {p for p in places if "…" not in p}
    places |= {f"/shapes/N/evicted/{name}" for name in (*states, "throttled")}
    places |= {f"/shapes/N{inner}/{name}@columns" for name in states for inner in ("", "/evicted")}
    places |= {f"/series/N/verified_after@{name}" for name in ("output_row_index", "output_row_series")}
    checks = ("check", "check_passed", "measured", "allowed", "detail")
    return places | {f"/series/N/verified_after/{name}" for name in checks}


def test_the_document_says_what_is_in_a_file_and_nothing_else(file: Path) -> None:
    in_file, in_document = found(file), expanded(documented(DOCUMENT.read_text()))
    assert in_file - in_document == set(), "not documented"
    assert in_document - in_file == set(), "documented, but not there"
    assert len(in_file) > 90


def test_something_undocumented_would_be_noticed(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "b.h5"
    copy.write_bytes(file.read_bytes())
    with h5py.File(copy, "r+") as opened:
        opened["series/0000"].attrs["secret"] = 1
        opened["series/0001"]["more"] = np.arange(3)
    extra = found(copy) - expanded(documented(DOCUMENT.read_text()))
    assert extra == {"/series/N@secret", "/series/N/more"}
    without = DOCUMENT.read_text().replace(", `x_sha256`", "")
    assert found(file) - expanded(documented(without)) == {"/shapes/N@x_sha256"}


def test_every_time_says_its_unit(file: Path) -> None:
    times = []

    def visit(name: str, thing: object) -> None:
        if isinstance(thing, h5py.Dataset) and name.split("/")[-1] in {
            *("host_completion", "host_enqueue", "host_batch_completion", "event_interval", "single_event_interval"),
        }:
            times.append(name)
            assert thing.attrs["units"] == "ns", name
            assert thing.attrs["invocations"] >= 1, name

    with h5py.File(file) as opened:
        opened.visititems(visit)
    assert len(times) >= 6


def test_a_path_that_is_no_unicode_holds_a_session(tmp_path: Path) -> None:
    path = tmp_path / "a\udcff b.h5"
    variants = (CATALOGUE["retained"],)
    protocol = Protocol(rounds=1, warmups=0, singles=1, batch=1)
    writer = SessionWriter(path)
    run_session(FakeDevice(), Request(variants, (1,), 300, 1e-5, ("direct",), protocol), writer)
    assert writer.partial.is_file()
    writer.finish()
    assert load(path).complete
