"""``mk session`` and ``mk tune`` on a fake device: what they write, refuse and say."""

import json
from dataclasses import replace
from pathlib import Path

import h5py
import pytest
from tests.unit.fakes import FakeDevice, FakeExecutable

from megakernel.cli.main import run
from megakernel.errors import DeviceError, PlanError
from megakernel.record.protocol import Protocol
from megakernel.record.reader import load
from megakernel.run.pilot import Effort
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration
from megakernel.variants.frozen import load as load_table
from megakernel.variants.frozen import shipped

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]
QUICK = ["--width", "3000", "--rounds", "2", "--evicted-rounds", "1"]
TWO = ["--variant", "local_recompute", "--variant", "row_retained", *QUICK]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    fake = FakeDevice()
    fake.facts = replace(fake.facts, name="NVIDIA H200", l2_bytes=2**20)
    monkeypatch.setattr("megakernel.device.choose.open_device", lambda *_, **__: fake)
    protocol = Protocol(warmups=0, batch=1, evicted_singles=1)
    monkeypatch.setattr("megakernel.run.pilot.Effort", lambda: Effort(1, repeats=2, batches=1, protocol=protocol))
    return fake


@pytest.mark.usefixtures("device")
def test_a_session_measures_shapes_in_ascending_order_warm_and_evicted(capsys: Capture) -> None:
    assert run(["session", *TWO, "--rows", "4", "--rows", "1", "--out", "a.h5"]) == 0
    assert capsys.readouterr().err == "not frozen: no manifest (mk freeze); the file says so\n"
    session = load(Path("a.h5"))
    assert session.complete
    assert list(dict.fromkeys(s.problem.rows for s in session.series)) == [1, 4]
    assert {(s.variant, s.submission, s.cache) for s in session.series} == {
        (variant, submission, cache)
        for variant in ("empty", "copy", "local_recompute", "row_retained")
        for submission in ("direct", "graph")
        for cache in ("warm", "evicted")
    }
    assert (session.protocol["order_seed"], session.protocol["shape_order"]) == (0, "ascending")
    assert session.freeze_state == "none"


@pytest.mark.usefixtures("device")
def test_the_second_session_reverses_the_shapes_and_has_a_seed_of_its_own() -> None:
    assert run(["session", *TWO, "--rows", "1", "--rows", "4", "--reverse", "--out", "b.h5"]) == 0
    session = load(Path("b.h5"))
    assert list(dict.fromkeys(s.problem.rows for s in session.series)) == [4, 1]
    assert (session.protocol["order_seed"], session.protocol["shape_order"]) == (1, "descending")


def test_every_variant_is_measured_whose_library_is_there(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def require(library: str) -> None:
        raise PlanError(f"{library} is not installed")

    monkeypatch.setattr(device, "require_library", require)
    assert run(["session", *QUICK[:2], "--rounds", "1", "--evicted-rounds", "0", "--rows", "1", "--out", "a.h5"]) == 0
    assert "without rms_cudnn: cudnn is not installed\n" in capsys.readouterr().err
    assert {s.variant for s in load(Path("a.h5")).series} == {v.name for v in CATALOGUE.values() if not v.libraries}


SESSION = ["session", "--variant", "retained", "--width", "3000", "--rows", "1"]


def test_a_frozen_session_says_so_and_a_changed_one_is_refused(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert run(["freeze"]) == 0
    assert run([*SESSION, "--out", "a.h5"]) == 0
    assert load(Path("a.h5")).freeze_state == "as frozen"
    assert capsys.readouterr().err == ""
    with h5py.File("a.h5") as file:
        assert file["manifest/json"][()].decode() == Path("manifest.json").read_text()
    before = len(device.submissions)
    monkeypatch.setattr("megakernel.run.freeze.TIMING_SEED", 42)
    assert run([*SESSION, "--out", "b.h5"]) == 2
    assert capsys.readouterr().err == (
        "mk: this is not what was frozen: fixture: seed is 42, but was frozen as 41; "
        "--allow-changes measures it and marks the file\n"
    )
    assert not Path("b.h5").exists()
    assert len(device.submissions) == before
    assert run([*SESSION, "--allow-changes", "--out", "b.h5"]) == 0
    assert capsys.readouterr().err == "not frozen: 1 changes since the manifest; the file says so\n"
    changed = load(Path("b.h5"))
    assert (changed.freeze_state, changed.changes) == ("changed", ("fixture: seed is 42, but was frozen as 41",))


@pytest.mark.usefixtures("device")
def test_fewer_rounds_than_frozen_are_a_change(capsys: Capture) -> None:
    assert run(["freeze", "--out", "elsewhere.json"]) == 0
    assert run([*SESSION, "--rounds", "2", "--manifest", "elsewhere.json", "--out", "a.h5"]) == 2
    assert "protocol: rounds is 2, but was frozen as 21" in capsys.readouterr().err
    assert run([*SESSION, "--manifest", "none.json", "--out", "a.h5"]) == 2


def test_a_lost_gpu_leaves_what_was_measured(device: FakeDevice, capsys: Capture) -> None:
    def lose(executable: FakeExecutable) -> None:
        if executable.plan.variant == "sweep":  # the warm rounds are over
            raise DeviceError("cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED (719)")

    device.before_submit = lose
    assert run([*SESSION, "--rounds", "2", "--out", "a.h5"]) == 2
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "the samples so far are in a.h5.partial",
        "mk: cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED (719)",
    ]
    session = load(Path("a.h5.partial"))
    assert not session.complete
    assert "719" in session.interruption
    assert {len(s.rounds) for s in session.series if s.cache == "warm"} == {2}


def test_tune_writes_a_table_that_every_command_takes(device: FakeDevice, capsys: Capture) -> None:
    fast = Configuration(512, 8192)
    device.cost_ns = lambda plan: (5 if plan.configuration == fast else 9) * (1 if "local" in plan.variant else 2)
    assert run(["tune", "--width", "3000", "--rows", "4", "--rows", "2", "--out", "mine.toml"]) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("table: mine.toml\n")
    table = load_table(Path("mine.toml"))
    controls = {v.name for v in CATALOGUE.values() if v.family == "control"}
    tuned = [e for e in table.entries if e.rows in (2, 4)]  # the shipped table has neither
    assert [e.rows for e in tuned] == [2, 4]
    for e in tuned:
        chosen = {
            n: c for n, c in e.configurations.items() if n not in controls and fast in CATALOGUE[n].configurations
        }
        assert set(chosen.values()) == {fast}
        assert {name for name in CATALOGUE if name not in ("empty", "copy")} == set(e.configurations)
        assert e.figures["retained"]["event_ns"] == 10.0
    kept = [e for e in table.entries if e not in tuned]
    sixteen = shipped().own("NVIDIA H200", 132, 16)
    assert sixteen is not None
    for e in kept:  # the same device: its controls follow, and the rest is as it was
        shipped_entry = shipped().own(e.device, e.sm_count, e.rows)
        assert shipped_entry is not None
        assert {e.configurations[name] for name in controls} == {sixteen.configurations["retained"]}  # as before
        assert {n: c for n, c in e.configurations.items() if n not in controls} == {
            n: c for n, c in shipped_entry.configurations.items() if n not in controls
        }
    assert run([*SESSION[:-1], "2", "--rounds", "1", "--frozen", "mine.toml", "--out", "a.h5"]) == 0
    assert {s.configuration for s in load(Path("a.h5")).series if s.variant == "retained"} == {"512x8192"}


@pytest.mark.usefixtures("device")
def test_tune_prints_json_and_never_overwrites(capsys: Capture) -> None:
    assert run(["tune", "--width", "3000", "--rows", "1", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["rows"] == 1
    assert record["configurations"].keys() == record["figures"].keys()
    before = Path("frozen.toml").read_text()
    assert run(["tune", "--width", "3000", "--rows", "1"]) == 2
    assert capsys.readouterr().err == ("mk: frozen.toml exists already: name another file, or move it away\n")
    assert Path("frozen.toml").read_text() == before


def test_an_interrupted_pilot_keeps_the_row_counts_that_it_finished(device: FakeDevice, capsys: Capture) -> None:
    def interrupt(executable: FakeExecutable) -> None:
        if executable.plan.problem.rows == 3:
            raise KeyboardInterrupt

    device.before_submit = interrupt
    assert run(["tune", "--width", "3000", "--rows", "3", "--out", "a.toml"]) == 130
    assert not Path("a.toml").exists()
    assert "no row count was finished: a.toml is not there\n" in capsys.readouterr().err
    assert run(["tune", "--width", "3000", "--rows", "2", "--rows", "3", "--out", "a.toml"]) == 130
    said = capsys.readouterr().err
    assert "2 rows: " in said
    assert "a.toml holds the row counts so far: 2\n" in said
    assert {e.rows for e in load_table(Path("a.toml")).entries} == {2, *(e.rows for e in shipped().entries)}


def test_a_wrong_configuration_is_a_bad_verdict_of_the_pilot(device: FakeDevice, capsys: Capture) -> None:
    device.tamper = lambda variant, name, values: values.fill(0) if (variant, name) == ("unfused", "y") else None
    assert run(["tune", "--width", "3000", "--rows", "2", "--out", "a.toml"]) == 1
    assert capsys.readouterr().err.endswith("configurations were wrong: see above\n")
    own = next(e for e in load_table(Path("a.toml")).entries if e.rows == 2)
    assert "unfused" not in own.configurations
