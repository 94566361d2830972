"""Pilot, freeze, session and table on the emulator: the whole pipeline, with tiny sizes."""

from dataclasses import replace
from pathlib import Path

import pytest

from megakernel.cli.main import run
from megakernel.device.emulator import EmulatedExecutable, Emulator
from megakernel.operator.contract import Problem
from megakernel.record.protocol import EMULATED, Protocol
from megakernel.record.reader import load
from megakernel.run.evict import sweep_problem, sweeper
from megakernel.run.pilot import EMULATED_EFFORT, tune
from megakernel.run.prepare import KernelStore
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration
from megakernel.variants.frozen import FrozenTable, merged, to_toml
from megakernel.variants.frozen import load as load_table
from tests.emulated.checking import SMALL, UNALIGNED

DEVICE = ["--device", "emulator:h200", "--rows", "2", "--width", str(UNALIGNED)]
OTHER = Configuration(128, 1024)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tuned table and a manifest of it."""
    folder = tmp_path_factory.mktemp("session")
    tried = [
        replace(CATALOGUE[name], configurations=(SMALL, OTHER), for_rows={})
        for name in ("local_recompute", "row_retained")
    ]
    with Emulator() as device, KernelStore(device) as store:
        tuned = tune(device, store, tried, Problem(2, UNALIGNED), "mk tune, emulated", EMULATED_EFFORT)
    assert tuned.failures == tuned.refused == ()
    (folder / "mine.toml").write_text(to_toml(merged(FrozenTable(()), [tuned.entry])))
    assert run(["freeze", "--frozen", str(folder / "mine.toml"), "--out", str(folder / "manifest.json")]) == 0
    return folder


def test_the_pilot_has_figures_for_what_it_chose(folder: Path) -> None:
    (entry,) = load_table(folder / "mine.toml").entries
    assert (entry.device, entry.sm_count, entry.rows) == ("NVIDIA H200 (emulated)", 132, 2)
    assert (entry.local, entry.megakernel) == ("local_recompute", "row_retained")
    for name in ("local_recompute", "row_retained"):
        assert entry.configurations[name] in (SMALL, OTHER)
        figures = entry.figures[name]
        assert (figures["candidates"], figures["repeats"]) == (2, 2)
        assert all(float(figures[f"{what}_ns"]) > 0 for what in ("event", "host", "runner_up_event", "evicted_event"))


def test_a_session_takes_its_table_and_says_what_is_not_as_frozen(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # What was frozen is the protocol of a GPU's session; the emulator's is another.
    arguments = ["session", "--variant", "local_recompute", "--variant", "row_retained", *DEVICE, "--rounds", "2"]
    arguments += ["--frozen", str(folder / "mine.toml"), "--manifest", str(folder / "manifest.json")]
    arguments += ["--out", str(folder / "a.h5")]
    assert run(arguments) == 2
    assert "mk: this is not what was frozen: protocol: " in capsys.readouterr().err
    assert run([*arguments, "--allow-changes"]) == 0
    session = load(folder / "a.h5")
    assert session.complete
    assert session.freeze_state == "changed"
    assert all(line.startswith("protocol: ") for line in session.changes)
    (entry,) = load_table(folder / "mine.toml").entries
    assert session.stand_ins[2].megakernel == "row_retained"
    for series in session.series:
        assert series.verified_before
        assert series.verified_after
        assert len(series.rounds) == (2 if series.cache == "warm" else 1)
        if series.variant in entry.configurations:
            assert series.configuration == str(entry.configurations[series.variant])
        times = series.event_ns if series.cache == "warm" else series.single_event_ns
        assert (times > 0).all()
    assert {(s.variant, s.submission, s.cache) for s in session.series} == {
        (variant, submission, cache)
        for variant in ("empty", "copy", "local_recompute", "row_retained")
        for submission in ("direct", "graph")
        for cache in ("warm", "evicted")
    }
    assert run(["audit", str(folder / "a.h5")]) == 0  # also the evicted rounds' order follows from the seed
    assert "its state: changed" in capsys.readouterr().out


def test_a_sweep_reads_every_byte_of_its_buffer(emulator: Emulator, store: KernelStore) -> None:
    protocol = replace(EMULATED, evicted_bytes=2**20 + 1)
    with sweeper(emulator, store, protocol) as sweep:
        assert isinstance(sweep, EmulatedExecutable)
        sweep.run()
        (stats,) = sweep.launch_stats
    problem = sweep_problem(protocol, emulator.facts)
    assert stats.bytes_read == 4 * problem.elements > 2**20
    assert 4 * sweep_problem(Protocol(), emulator.facts).elements >= max(256 * 2**20, 2 * emulator.facts.l2_bytes)
