"""The audit passes what is sound, and names the fault in every damaged copy."""

import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from tests.unit.fakes import FakeDevice

from megakernel.cli.main import run
from megakernel.device.sources import kernel_folder, source_hashes
from megakernel.errors import RecordError
from megakernel.operator.fixtures import hashed
from megakernel.record.apart import read_archive_apart
from megakernel.record.digest import (
    CONTENTS_ATTRIBUTE,
    SAMPLE_DATASETS,
    SAMPLES_ATTRIBUTE,
    contents_sha256,
    samples_sha256,
)
from megakernel.record.plan import SUBMISSIONS
from megakernel.record.protocol import Protocol
from megakernel.record.seal import SUMMARY, seal
from megakernel.record.session import Sample
from megakernel.record.tree import Tree, read_archive, read_tree
from megakernel.record.writer import SessionWriter
from megakernel.report import audit_order
from megakernel.report.audit import audit_file, audit_tree
from megakernel.report.findings import Audit, Findings
from megakernel.run.session import Request, run_session
from megakernel.variants.catalogue import CATALOGUE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SOURCES = source_hashes(kernel_folder())
PROTOCOL = Protocol(rounds=12, warmups=0, singles=3, batch=4, order_seed=5, pilot_repeats=2)
VARIANTS = ("copy", "unfused", "row_retained")

Capture = pytest.CaptureFixture[str]
Edit = Callable[[Any], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session on a fake device that holds one row of row_retained a launch, with made-up times."""
    randomness = np.random.default_rng(1)

    def measured(executable: Any, *_: object) -> Sample:
        ns = 2000.0 * (1 + len(executable.plan.launches)) + randomness.integers(0, 200)
        event = float(np.float32(4 * ns / 1e6)) * 1e6  # float32 milliseconds, as a driver gives them
        singles = (ns + 3000 + randomness.integers(0, 900, 3)).astype(np.int64)
        return Sample(singles, int(3 * ns), int(4 * ns) + 2500, event)

    path = tmp_path_factory.mktemp("audit") / "whole.h5"
    device = FakeDevice(sm_count=16, blocks_per_sm=1)
    request = Request(tuple(CATALOGUE[name] for name in VARIANTS), (2,), 30_000, 1e-5, SUBMISSIONS, PROTOCOL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("megakernel.run.session.measure_round", measured)
        writer = SessionWriter(path)
        outcome = run_session(device, request, writer)
    assert (outcome.failures, outcome.refused) == ((), ())
    writer.finish()
    return path


@pytest.fixture(scope="module")
def unsealed(whole: Path) -> Path:
    """The same without digests and summaries, as an older version wrote it: nothing but sense gives damage away."""
    path = Path(shutil.copy(whole, whole.with_name("unsealed.h5")))
    edit(path, lambda file: None, sealed="removed")
    return path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "a.h5"))


def audited(path: Path) -> Audit:
    """In this process: quicker, and nothing here makes HDF5 spin."""
    return audit_tree(str(path), read_archive(path), SOURCES)


def faults(path: Path) -> list[str]:
    return [str(fault) for fault in audited(path).of_kind("fault")]


def edit(path: Path, change: Edit, *, sealed: str = "again") -> None:
    """Changes a file as somebody would who covers it up: ``again`` redoes digests and summaries, ``digests`` the
    digests alone, ``removed`` leaves it like an older file, ``kept`` changes nothing else.
    """
    with h5py.File(path, "r+") as file:
        change(file)
        if sealed in ("again", "removed"):
            for series in file["series"].values():
                series.pop(SUMMARY, None)
                series.attrs.pop(SAMPLES_ATTRIBUTE, None)
            file.attrs.pop(CONTENTS_ATTRIBUTE, None)
        if sealed == "again":
            seal(file)
        if sealed == "digests":
            for series in file["series"].values():
                samples = {name: series[name][()] for name in SAMPLE_DATASETS if name in series}
                series.attrs[SAMPLES_ATTRIBUTE] = samples_sha256(samples)
            file.attrs[CONTENTS_ATTRIBUTE] = contents_sha256(read_tree(file))


def find(file: Any, variant: str, submission: str = "graph", rows: int = 2) -> Any:
    return next(
        s
        for s in file["series"].values()
        if (s.attrs["variant"], s.attrs["submission"], s.attrs["rows"]) == (variant, submission, rows)
    )


def put(group: Any, name: str, change: Callable[[Any], object]) -> None:
    """Changes the values of a dataset in place."""
    values = group[name][()]
    change(values)
    group[name][...] = values


def replace_json(group: Any, name: str, change: Callable[[Any], object]) -> None:
    content = json.loads(group[name][()])
    change(content)
    del group[name]
    group.create_dataset(name, data=json.dumps(content), dtype=h5py.string_dtype())


def replace_text(group: Any, name: str, text: str) -> None:
    del group[name]
    group.create_dataset(name, data=text, dtype=h5py.string_dtype())


def set_value(index: Any, value: Any) -> Callable[[Any], object]:
    return lambda values: values.__setitem__(index, value)


def scale(factor: float) -> Callable[[Any], object]:
    return lambda values: values.__imul__(values.dtype.type(factor))


def drop_last_round(file: Any) -> None:
    series = find(file, "unfused")
    for name in ("host_completion", "host_enqueue", "host_batch_completion", "event_interval", "round", "position"):
        series[name].resize(len(series[name]) - 1, axis=0)


def sort_order(file: Any) -> None:
    for place, series in enumerate(file["series"].values()):
        series["position"][...] = place


def interrupted(file: Any) -> None:
    """As a kill in the last round leaves it, but marked complete."""
    drop_last_round(file)
    for series in file["series"].values():
        del series["verified_after"]


def changed_row(file: Any) -> None:
    holder = find(file, "unfused")["verified_after"].attrs["output_row_series"]
    put(file[f"series/{holder:04d}/verified_after"], "output_row", scale(1.001))


def same_time(file: Any) -> None:
    for name in ("host_completion", "host_enqueue"):
        put(find(file, "unfused"), name, set_value(slice(None), 20_000))


def flip_verdict(file: Any) -> None:
    after = find(file, "unfused")["verified_after"]
    after.attrs["passed"] = False


def hide_a_wrong_result(file: Any) -> None:
    after = find(file, "unfused")["verified_after"]
    put(after, "measured", set_value(2, 3.0))


def show_a_wrong_result(file: Any) -> None:
    hide_a_wrong_result(file)
    flip_verdict(file)
    put(find(file, "unfused")["verified_after"], "check_passed", set_value(2, False))


# What is done to a copy, and what must be said of it.
DAMAGE: dict[str, tuple[Edit, str]] = {
    "a hash of x": (lambda f: f["shapes/0000"].attrs.modify("x_sha256", "ab" * 32), "input: /shapes/0000: x_sha256"),
    "another fixture": (lambda f: f.attrs.modify("fixture", "ramp"), "input: /shapes/0000: x_sha256 is not"),
    "an unknown fixture": (lambda f: f.attrs.modify("fixture", "noise"), "no fixture is called 'noise'"),
    "an output's hash": (
        lambda f: find(f, "row_retained")["verified_after"].attrs.modify("output_sha256", "0" * 64),
        "output digest: /series",
    ),
    "a kernel source's hash is none": (
        lambda f: f["kernel_sources/sha256"].__setitem__(0, "zz"),
        "kernel sources: /kernel_sources: the hash of barriers.cuh is 'zz', no SHA-256",
    ),
    "order sorted": (sort_order, "order: /shapes/0000: all 12 rounds have the same order"),
    "another seed": (
        lambda f: f["protocol"].attrs.modify("order_seed", 6),
        "order: /shapes/0000: round 0 is not in the order that seed 6 gives",
    ),
    "a position twice": (
        lambda f: put(find(f, "unfused"), "position", lambda v: v.__setitem__(3, (v[3] + 1) % 6)),
        "order: /shapes/0000: round 3: position",
    ),
    "units swapped": (
        lambda f: find(f, "unfused")["host_completion"].attrs.modify("units", "us"),
        "units: /series/0003 (unfused, 2 rows, graph): host_completion is in 'us', not 'ns'",
    ),
    "values in another unit": (
        lambda f: put(find(f, "unfused"), "event_interval", scale(1000)),
        "units: /series/0003 (unfused, 2 rows, graph): event_interval is 9",
    ),
    "invocations": (
        lambda f: find(f, "unfused")["event_interval"].attrs.modify("invocations", 8),
        "event_interval is of 8 invocations, not 4",
    ),
    "a round missing": (drop_last_round, "completeness: /series/0003 (unfused, 2 rows, graph): 11 of 12 rounds"),
    "a round's number": (lambda f: put(find(f, "unfused"), "round", set_value(4, 9)), "12 of 12 rounds: round 4 is"),
    "complete though interrupted": (interrupted, "rows, direct): not verified after timing"),
    "interrupted and complete": (
        lambda f: f.attrs.modify("interruption", "lost the device"),
        "completeness: marked complete, but interrupted: lost the device",
    ),
    "incomplete": (lambda f: f.attrs.modify("complete", False), "completeness: the file is marked incomplete"),
    "a series missing": (lambda f: f["series"].pop("0003"), "structure: series 0003 is missing"),
    "a graph's edge removed": (
        lambda f: replace_json(find(f, "unfused"), "graph", lambda g: g["edges"].pop(2)),
        "graph: /series/0003 (unfused, 2 rows, graph): edge 2 -> 3 is missing",
    ),
    "a graph's edge added": (
        lambda f: replace_json(find(f, "unfused"), "graph", lambda g: g["edges"].append([0, 5])),
        "edge 0 -> 5 was not planned",
    ),
    "a programmatic edge": (
        lambda f: replace_json(find(f, "unfused"), "graph", lambda g: g.update(programmatic=[[0, 1]])),
        "edge 0 -> 1 is programmatic, which was not planned",
    ),
    "a graph's node removed": (
        lambda f: replace_json(find(f, "unfused"), "graph", lambda g: g["nodes"].pop()),
        "8 nodes for 9 launches",
    ),
    "not cooperative": (
        lambda f: replace_json(find(f, "row_retained"), "graph", lambda g: g["nodes"][0].update(cooperative=False)),
        "node 0: cooperative is False, planned True",
    ),
    "a scalar's bits": (
        lambda f: replace_json(find(f, "unfused"), "graph", lambda g: g["nodes"][3]["arguments"].__setitem__(-1, 0)),
        "node 3: eps has the bits 0x0, planned 0x3727c5ac",
    ),
    "a pointer": (
        lambda f: replace_json(find(f, "unfused"), "graph", lambda g: g["nodes"][2]["arguments"].__setitem__(0, 64)),
        "node 2: argument 0 points elsewhere into x",
    ),
    "a plan's grid": (
        lambda f: replace_json(find(f, "unfused", "direct"), "plan", lambda p: p["launches"][0].update(grid=1)),
        "declaration: /series/0002 (unfused, 2 rows, direct): launch 0 (squares",
    ),
    "a plan's rows": (
        lambda f: replace_json(find(f, "unfused", "direct"), "plan", lambda p: p["launches"][0].update(rows=1)),
        "do not cover 2 rows once",
    ),
    "too many blocks meet": (
        lambda f: replace_json(find(f, "row_retained"), "plan", lambda p: p["residencies"][0].update(blocks_per_sm=0)),
        "blocks meet, 0 are resident",
    ),
    "a plan is no JSON": (lambda f: replace_text(find(f, "unfused"), "plan", "{"), "plan: /series/0003"),
    "an output row replaced": (changed_row, "output row: /series/0002 (unfused, 2 rows, direct): y.accuracy"),
    "an intermediate changed": (
        lambda f: put(find(f, "unfused")["verified_after/intermediates"], "row_maxima", set_value(1, 7.5)),
        "intermediate: /series/0003 (unfused, 2 rows, graph): row_maxima.accuracy",
    ),
    "an intermediate changed within its tolerance": (
        lambda f: put(find(f, "unfused")["verified_after/intermediates"], "tile_square_sums", scale(1 + 2**-20)),
        "tile_square_sums.accuracy measures",
    ),
    "an intermediate missing": (
        lambda f: find(f, "unfused")["verified_after/intermediates"].pop("row_maxima"),
        "intermediate: /series/0003 (unfused, 2 rows, graph): row_maxima is missing",
    ),
    "a verdict flipped": (
        flip_verdict,
        "verdict: /series/0003 (unfused, 2 rows, graph): verified after: marked failed",
    ),
    "a wrong result hidden": (hide_a_wrong_result, "squares.accuracy is marked passed, measured 3, allowed 1"),
    "a wrong result": (show_a_wrong_result, "verified after: the result was wrong (squares.accuracy)"),
    "a tolerance widened": (
        lambda f: replace_text(
            f["tolerances"], "y", "1e-3 relative + 2.38418579e-07 x weighted argument + 5.60519386e-45 (more)"
        ),
        "tolerances: /tolerances: y is '1e-3 relative",
    ),
    "a tolerance missing": (lambda f: f["tolerances"].pop("y"), "tolerances: /tolerances: none for y"),
    "negative": (
        lambda f: put(find(f, "unfused"), "host_enqueue", set_value(2, -5)),
        "impossible value: /series/0003 (unfused, 2 rows, graph): host_enqueue holds -5 ns",
    ),
    "not a number": (lambda f: put(find(f, "unfused"), "event_interval", set_value(2, np.nan)), "holds nan ns"),
    "no variance": (same_time, "impossible value: /series/0003 (unfused, 2 rows, graph): all 36 samples of"),
    "faster than memory": (
        lambda f: put(find(f, "row_retained"), "event_interval", set_value(2, 16.0)),
        "event_interval takes 4 ns, less than x and y need at 40 TB/s (12 ns)",
    ),
    "faster than a copy": (
        lambda f: put(find(f, "unfused"), "event_interval", scale(0.1)),
        "than the copy in the same run",
    ),
    "submitted later than completed": (
        lambda f: put(find(f, "unfused"), "host_enqueue", set_value(2, 10**9)),
        "round 2: submitting took 1000000000 ns",
    ),
    "an interval off the driver's grid": (
        lambda f: put(find(f, "unfused"), "event_interval", lambda v: v.__setitem__(2, np.round(v[2]) + 0.25)),
        "is no float32 number of milliseconds",
    ),
    "another configuration of copy": (
        lambda f: put(f["shapes/0000/pilot"], "event_interval", set_value((slice(None), 5), 1.0)),
        "pilot: /series/0000 (copy, 2 rows, direct): its configuration is",
    ),
    "throttling hidden": (
        lambda f: put(f["shapes/0000"], "throttle_reasons", set_value((1, 1), 4.0)),
        "device state: /shapes/0000: the rounds marked throttled are not those with such a reason",
    ),
    "a shape's rows": (lambda f: f["shapes/0000"].attrs.modify("rows", 3), "rows is 2, but that of its shape 3"),
}


def test_a_sound_session_passes_and_says_what_was_repeated(whole: Path) -> None:
    audit = audited(whole)
    assert [str(fault) for fault in audit.of_kind("fault")] == []
    assert audit.passed
    repeated = {finding.check for finding in audit.of_kind("repeated")}
    assert repeated >= {
        *("structure", "completeness", "digest", "summary", "tolerances", "order", "impossible value", "event grid"),
        *("pilot", "verdict", "input", "output digest", "output row", "intermediate", "kernel sources"),
        *("plan", "declaration", "graph", "device state", "floors"),
    }
    assert {finding.check for finding in audit.of_kind("not stored")} <= {"manifest", "environment"}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_without_any_digest(unsealed: Path, tmp_path: Path, damage: str) -> None:
    change, message = DAMAGE[damage]
    path = Path(shutil.copy(unsealed, tmp_path / "a.h5"))
    edit(path, change, sealed="kept")
    found = faults(path)
    assert any(message in fault for fault in found), found
    assert damage == "a plan is no JSON" or not any("cannot be checked" in fault for fault in found), found
    assert all("\n" not in fault for fault in found)


@pytest.mark.parametrize("damage", ["an output row replaced", "order sorted", "a graph's edge removed"])
def test_damage_is_named_though_digests_and_summaries_were_made_anew(copy: Path, damage: str) -> None:
    change, message = DAMAGE[damage]
    edit(copy, change)
    found = faults(copy)
    assert any(message in fault for fault in found)
    assert not any(fault.startswith(("digest", "summary")) for fault in found)


def test_whatever_is_changed_alone_breaks_the_digest(whole: Path) -> None:
    tree = read_archive(whole)
    digest = contents_sha256(tree)
    assert digest == tree.root.attribute(CONTENTS_ATTRIBUTE)
    for path in random.Random(2).sample(sorted(tree.nodes), 20):
        node = tree.nodes[path]
        changed = [{p: n for p, n in tree.nodes.items() if p != path}]
        changed += [
            dict(tree.nodes) | {path: replace(node, attributes=dict(node.attributes) | {name: "other"})}
            for name in node.attributes
            if (path, name) != ("/", CONTENTS_ATTRIBUTE)
        ]
        if isinstance(node.value, np.ndarray) and node.value.size and node.value.dtype.kind in "iuf":
            values = node.value.copy()
            values.flat[-1] = 1 if values.flat[-1] == 0 else 0
            changed.append(dict(tree.nodes) | {path: replace(node, value=values)})
        assert len({digest, *(contents_sha256(Tree(nodes)) for nodes in changed)}) == len(changed) + 1


@pytest.mark.parametrize("name", ["host_completion", "host_enqueue", "host_batch_completion"])
def test_an_edited_sample_is_named_though_its_digests_were_made_anew(copy: Path, name: str) -> None:
    def one_less(file: Any) -> None:
        put(find(file, "unfused"), name, lambda values: values.__setitem__(0, values[0] - 1))

    edit(copy, one_less, sealed="digests")
    found = faults(copy)
    assert found
    assert all(f.startswith("summary: /series/0003 (unfused, 2 rows, graph): ") and name in f for f in found)


def test_an_edited_sample_without_its_digest_is_named_by_series(copy: Path) -> None:
    edit(copy, lambda f: put(find(f, "unfused"), "host_completion", set_value((0, 0), 22_345)), sealed="kept")
    assert "digest: /series/0003 (unfused, 2 rows, graph): its samples are not those" in "\n".join(faults(copy))


def test_what_an_audit_cannot_find(copy: Path) -> None:
    """A plausible sample whose digests and summary were all made anew: only a digest kept elsewhere shows it."""
    before = audited(copy)
    edit(copy, lambda f: put(find(f, "unfused"), "host_completion", set_value((0, 0), 22_345)))
    after = audited(copy)
    assert after.passed
    assert after.contents_sha256 != before.contents_sha256


def test_an_older_file_says_what_it_does_not_hold(unsealed: Path) -> None:
    audit = audited(unsealed)
    assert audit.passed
    assert {finding.check for finding in audit.of_kind("not stored")} >= {"manifest", "digest", "summary"}


def manifest(content: dict[str, Any]) -> Edit:
    def add(file: Any) -> None:
        del file["manifest"]  # that of a session without one
        group = file.create_group("manifest")
        group.attrs["state"] = "frozen"
        group.create_dataset("json", data=json.dumps(content), dtype=h5py.string_dtype())

    return add


def test_a_manifest_is_held_against_the_file(copy: Path) -> None:
    frozen = {"protocol": {"rounds": 12}, "kernel_sources": dict(SOURCES), "fixture": {"name": "timing", "seed": 41}}
    edit(copy, manifest(frozen))
    assert audited(copy).passed
    edit(copy, lambda f: f["kernel_sources/sha256"].__setitem__(0, "ab" * 32))
    assert any(f.startswith("manifest: kernel_sources barriers.cuh is 'abab") for f in faults(copy))
    edit(copy, manifest({"fixture": {"name": "zeros"}, "configurations": {"frozen.toml": "cd" * 32}}))
    found = faults(copy)
    assert any(f.startswith("manifest: fixture name is 'timing', but was frozen as 'zeros'") for f in found)
    assert any(f.startswith("manifest: configurations frozen.toml is '") for f in found)


def test_a_manifest_that_is_no_json_is_a_fault(copy: Path) -> None:
    edit(copy, manifest({}))
    edit(copy, lambda f: replace_text(f["manifest"], "json", "{"))
    assert any(fault.startswith("manifest: cannot be checked: JSONDecodeError") for fault in faults(copy))


def test_evicted_series_have_metrics_and_rounds_of_their_own(copy: Path) -> None:
    def add(file: Any) -> None:
        file["protocol"].attrs["evicted_rounds"] = 2
        file["protocol"].attrs["evicted_singles"] = 3
        states = file.create_group("shapes/0000/evicted")
        for name in ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_mw", "throttle_reasons", "throttled"):
            states[name] = file["shapes/0000"][name][:2]
        for series in file["series"].values():
            series.attrs["cache"] = "warm"
        file.copy("series/0004", "series/0006")
        series = file["series/0006"]
        series.attrs["cache"] = "evicted"
        for name in ("host_enqueue", "host_batch_completion"):
            del series[name]
        del series["event_interval"]
        for name in ("host_completion", "round", "position"):
            series[name].resize(2, axis=0)
        singles = series.create_dataset(
            "single_event_interval",
            data=(np.full((2, 3), 0.0025) + np.arange(3) / 1e6).astype(np.float32).astype(float) * 1e6,
        )
        singles.attrs.update(units="ns", invocations=1)
        series["position"][...] = 0

    edit(copy, add)
    assert faults(copy) == []
    edit(copy, lambda f: f["series/0006/host_completion"].resize(1, axis=0))
    assert any("host_completion has (1, 3) values for (2, 3)" in fault for fault in faults(copy))


@pytest.mark.parametrize(("name", "seed"), [("session-1.h5", 0), ("session-2.h5", 1)])
def test_the_committed_sessions_pass(name: str, seed: int) -> None:
    audit = audited(ROOT / "data" / "h200" / name)
    assert audit.passed, [str(fault) for fault in audit.of_kind("fault")]
    assert f"144 rounds reproduced from the seed {seed}" in " ".join(map(str, audit.of_kind("repeated")))


def test_digests_do_not_depend_on_how_hdf5_lays_a_file_out(whole: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.h5"
    with h5py.File(whole) as old, h5py.File(other, "w", libver="latest") as new:
        for name in reversed(list(old)):
            old.copy(name, new)
        new.attrs.update(old.attrs)
    assert contents_sha256(read_archive(other)) == contents_sha256(read_archive(whole))
    assert audited(other).passed


def test_exit_codes_and_what_is_printed(whole: Path, copy: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run(["audit", str(whole)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith(f"{whole}\n  contents ")
    assert captured.out.endswith("  passed\n")
    edit(copy, flip_verdict)
    assert run(["audit", str(whole), str(copy), str(tmp_path / "none.h5")]) == 1
    captured = capsys.readouterr()
    assert "    verdict: /series/0003" in captured.out
    assert captured.err.splitlines() == [
        f"mk: {tmp_path / 'none.h5'}: no such file",
        f"mk: 1 fault in {copy}",
    ]
    assert run(["audit", str(whole), str(tmp_path / "none.h5")]) == 2
    assert capsys.readouterr().err == f"mk: {tmp_path / 'none.h5'}: no such file\n"
    assert run(["audit", "--json", str(copy)]) == 1
    (record,) = json.loads(capsys.readouterr().out)
    assert list(record) == ["path", "passed", "contents_sha256", "findings"]
    assert not record["passed"]
    assert [f["check"] for f in record["findings"] if f["kind"] == "fault"] == ["verdict"]


def test_what_is_no_session_is_not_read(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.h5"
    path.write_text("rows,us\n")
    assert run(["audit", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"mk: {path} is not a readable session file: ")
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
    assert run(["audit", str(path)]) == 2
    assert "but not a session" in capsys.readouterr().err


def test_a_truncated_file_is_said_to_be_truncated(copy: Path) -> None:
    content = copy.read_bytes()
    for keep in np.linspace(1, len(content) - 1, 50).astype(int):
        copy.write_bytes(content[:keep])
        with pytest.raises(RecordError, match="is not a readable session file: ") as caught:
            audited(copy)
        assert "\n" not in str(caught.value)
        assert keep < 4096 or "truncated file" in str(caught.value)


def test_damaged_bytes_end_in_a_verdict(copy: Path) -> None:
    content = copy.read_bytes()
    randomness = random.Random(4)
    named = 0
    for _ in range(3):
        damaged = bytearray(content)
        for _ in range(20):
            at = randomness.randrange(len(damaged))
            damaged[at : at + 8] = randomness.randbytes(min(8, len(damaged) - at))
        copy.write_bytes(damaged)
        with suppress(RecordError):
            named -= audit_file(copy, SOURCES).passed
        named += 1
    assert named > 1  # what is left lies in space that the file does not use


def test_a_reader_that_does_not_come_back_or_dies_is_an_error(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecordError, match=r"a\.h5 is damaged: HDF5 had not read it after 0\.01 s"):
        read_archive_apart(copy, limit_s=0.01)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RecordError, match=r"a\.h5 is damaged: reading it ended with code 1"):
        read_archive_apart(copy)


def test_references_of_links_are_not_followed(copy: Path, tmp_path: Path) -> None:
    edit(
        copy,
        lambda f: f["series"].__setitem__("9999", h5py.ExternalLink(str(tmp_path / "secret.h5"), "/")),
        sealed="kept",
    )
    assert any("/series/9999: a link that leads elsewhere: cannot be read" in fault for fault in faults(copy))


def test_the_fixture_s_seed_is_used_where_it_is_stored(copy: Path) -> None:
    edit(copy, lambda f: f.attrs.__setitem__("fixture_seed", 40))
    assert any("x_sha256" in fault for fault in faults(copy))
    assert not np.array_equal(hashed(1, 8, seed=40), hashed(1, 8))


def test_half_a_summary_counts_in_a_finished_file_and_not_in_one_that_was_killed(copy: Path) -> None:
    """A process that is killed while it seals leaves a summary without a digest behind."""

    def half(file: Any) -> None:
        series = find(file, "unfused")
        del series.attrs[SAMPLES_ATTRIBUTE]
        del series[SUMMARY]["event_interval"]

    edit(copy, half, sealed="kept")
    assert any("was stored as None" in fault for fault in faults(copy))
    with h5py.File(copy, "r+") as file:
        file.attrs["complete"] = False
        file.attrs.pop(CONTENTS_ATTRIBUTE)
    assert faults(copy) == ["completeness: the file is marked incomplete: the process ended"]


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_session_that_was_interrupted_early_is_incomplete_and_no_more(copy: Path, rounds: int) -> None:
    """In the middle of a round: half of the series have one more."""
    with h5py.File(copy, "r+") as file:
        for place, series in enumerate(file["series"].values()):
            for name in (*SAMPLE_DATASETS, "round", "position"):
                if name in series:
                    series[name].resize(rounds + place % 2, axis=0)
            series.pop("verified_after")
            series.pop(SUMMARY)
            series.attrs.pop(SAMPLES_ATTRIBUTE)
        file.attrs.update(complete=False, interruption="terminated")
        file.attrs.pop(CONTENTS_ATTRIBUTE)
    found = faults(copy)
    assert all(fault.startswith("completeness: ") for fault in found), found
    assert found[0] == "completeness: the file is marked incomplete: terminated"


@pytest.mark.parametrize("subjects", [4, 6, 34])
def test_honest_orders_are_not_named(subjects: int) -> None:
    random = np.random.default_rng(1)
    for _ in range(5_000):
        orders = np.stack([random.permutation(subjects) for _ in range(21)])
        mine: Any = [SimpleNamespace(array=lambda _, column=column: column) for column in orders.T]
        findings = Findings()
        audit_order._statistics(mine, "/shapes/0000", findings)
        assert not [finding for finding in findings.found if finding.kind == "fault"]
