"""The table of frozen configurations: read, written, looked up, and what a device that it does not know gets."""

import dataclasses
from pathlib import Path

import pytest
from tests.unit.fakes import FakeDevice

from megakernel.errors import MissingError, PlanError, UsageError
from megakernel.operator.contract import BENCHMARK_ROWS, Problem
from megakernel.run.prepare import KernelStore, configuration_for
from megakernel.variants.catalogue import CATALOGUE, FLOORS
from megakernel.variants.declaration import Configuration, Variant
from megakernel.variants.frozen import EMULATED_MARK, Entry, FrozenTable, load, merged, shipped, shipped_path, to_toml

RETAINED = CATALOGUE["retained"]
SMALL, LARGE, OTHER = Configuration(256, 2048), Configuration(512, 16384), Configuration(256, 8192)


def entry(rows: int, chosen: Configuration, device: str = "NVIDIA H200", sm_count: int = 132) -> Entry:
    both = {"local_recompute": Configuration(256, 1024), "retained": chosen}
    return Entry(device, sm_count, rows, 131072, "a test", both, "local_recompute", "retained")


TABLE = FrozenTable((entry(1, SMALL), entry(16, OTHER), entry(16, LARGE, "GPU of 40", 40)))


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    odd = dataclasses.replace(
        entry(3, SMALL, 'GPU "9" \\ µ\x7f\n高'),
        configurations={"own/v 2": SMALL, "a.b": LARGE},
        local="own/v 2",
        megakernel="a.b",
        figures={"own/v 2": {"event_ns": 4000.25, "candidates": 7, "runner_up": "512x4096", "much": 1e300}},
    )
    text = to_toml([*TABLE.entries, odd])
    (tmp_path / "f.toml").write_text(text)
    assert load(tmp_path / "f.toml") == FrozenTable((*TABLE.entries, odd), text)


@pytest.mark.parametrize(("rows", "expected"), [(1, SMALL), (3, SMALL), (5, OTHER), (16, OTHER), (4096, OTHER)])
def test_a_row_count_without_an_entry_takes_the_nearest_of_its_device(rows: int, expected: Configuration) -> None:
    # By ratio: 5 is nearer to 16 than to 1.
    assert TABLE.suggestion(RETAINED, "NVIDIA H200", 132, rows) == expected


def test_a_variant_that_no_entry_has_takes_what_it_declares() -> None:
    copy = CATALOGUE["copy"]
    assert TABLE.suggestion(copy, "NVIDIA H200", 132, 16) == copy.default_configuration(16)


def test_an_unknown_device_borrows_from_the_nearest_by_its_sms() -> None:
    assert TABLE.suggestion(RETAINED, "Another", 50, 16) == LARGE
    assert TABLE.suggestion(RETAINED, "Another", 100, 16) == OTHER


def test_a_known_name_with_fewer_sms_is_another_device() -> None:
    # As MIG and MPS leave.
    assert TABLE.knows("NVIDIA H200", 132)
    assert not TABLE.knows("NVIDIA H200", 33)
    assert TABLE.own("NVIDIA H200", 132, 16) is TABLE.entries[1]
    assert TABLE.own("NVIDIA H200", 33, 16) is None
    assert TABLE.own("NVIDIA H200", 132, 32) is None
    assert TABLE.notice("NVIDIA H200", 132) == ""
    assert TABLE.notice("NVIDIA H200", 33).startswith("no frozen configuration for NVIDIA H200 with 33 SMs: ")


def chosen(device: FakeDevice, variant: Variant = RETAINED, rows: int = 16) -> Configuration:
    with KernelStore(device) as store:
        return configuration_for(device, store, variant, Problem(rows, 131072), TABLE)


def test_where_the_borrowed_one_does_not_fit_the_first_that_does_is_taken() -> None:
    fits = Configuration(512, 8192)
    device = FakeDevice(blocks_per_sm=lambda name, threads, shared: 4 if "<512, 8192" in name else 0)
    assert chosen(device) == fits
    assert chosen(FakeDevice()) == OTHER


def test_on_a_known_device_nothing_else_is_tried() -> None:
    device = FakeDevice(blocks_per_sm=0)
    device.facts = dataclasses.replace(device.facts, name="NVIDIA H200")
    assert chosen(device) == OTHER  # and the plan then refuses it, with the numbers
    assert device.built == []


def test_where_nothing_fits_the_first_refusal_is_told() -> None:
    with pytest.raises(PlanError, match=r"^retained 256x8192: not one block"):
        chosen(FakeDevice(blocks_per_sm=0))


def test_entries_tuned_later_replace_their_own_alone() -> None:
    table = merged(TABLE, [entry(16, SMALL), entry(64, LARGE)])
    assert [(e.device, e.rows, e.configurations["retained"]) for e in table] == [
        ("GPU of 40", 16, LARGE),
        ("NVIDIA H200", 1, SMALL),
        ("NVIDIA H200", 16, SMALL),
        ("NVIDIA H200", 64, LARGE),
    ]


HEAD = 'schema = "megakernel.frozen"\nschema_version = 1\n'
BODY = to_toml([entry(1, SMALL)]).partition("schema_version = 1\n")[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", "is not TOML: "),
        ("", "is no table of frozen configurations"),
        (HEAD.replace("1", "2") + BODY, "is no table of frozen configurations"),
        (HEAD + BODY.replace("rows = 1\n", ""), "entry 1: 'rows' is missing"),
        (HEAD + BODY.replace("rows = 1\n", "rows = 0\n"), "entry 1: rows is 0: give a whole number from 1 on"),
        (HEAD + BODY.replace("256x2048", "256"), "entry 1: '256' is not THREADSxTILE"),
        (HEAD + BODY.replace("256x2048", "256x2047"), "entry 1: tile is 2047"),
        (HEAD + BODY.replace('"retained"', '"none"', 1), "entry 1: megakernel is 'none', which has no configuration"),
        (HEAD + "entry = [3]\n", "entry 1: "),
        (HEAD + BODY + BODY, "NVIDIA H200 with 132 SMs has two entries of 1 rows"),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "f.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_table_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"none\.toml: no such file"):
        load(tmp_path / "none.toml")


def test_the_shipped_table_is_whole() -> None:
    """Every variant with something to choose, at every benchmark row count, in a configuration that it declares; the
    controls in one and the same.
    """
    for e in shipped().entries:
        tuned = {v.name for v in CATALOGUE.values() if v not in FLOORS and not v.libraries}
        assert tuned <= set(e.configurations)
        for name, configuration in e.configurations.items():
            assert configuration in CATALOGUE[name].configurations, name
        assert CATALOGUE[e.local].family == "local"
        assert CATALOGUE[e.megakernel].family == "megakernel"
    for device in {(e.device, e.sm_count) for e in shipped().entries}:
        assert {e.rows for e in shipped().entries if (e.device, e.sm_count) == device} == set(BENCHMARK_ROWS)
        sixteen = shipped().own(*device, 16)
        assert sixteen is not None
        controls = {
            c
            for e in shipped().entries
            for name, c in e.configurations.items()
            if (e.device, e.sm_count) == device and CATALOGUE[name].family == "control"
        }
        assert controls == {sixteen.configurations["retained"]}
    assert to_toml(shipped().entries) == shipped_path().read_text()


def test_every_shipped_variant_belongs_to_a_family() -> None:
    assert {v.name for v in CATALOGUE.values() if v.family == "own"} == set()
    assert {v.name for v in CATALOGUE.values() if v.family == "floor"} == {v.name for v in FLOORS}


def test_what_is_compiled_without_a_device_is_what_some_device_takes() -> None:
    assert TABLE.configurations(RETAINED, (1, 16)) == [SMALL, OTHER, LARGE]
    unfused = dataclasses.replace(
        CATALOGUE["unfused"], for_rows={1: Configuration(256, 1024), 16: Configuration(256, 4096)}
    )
    assert TABLE.configurations(unfused, (1, 16, 32)) == [Configuration(256, 1024), Configuration(256, 4096)]


def test_what_an_emulator_found_never_passes_as_a_gpus() -> None:
    emulator = f"NVIDIA H200{EMULATED_MARK}"
    real, emulated = entry(16, OTHER), entry(16, LARGE, emulator)
    both = FrozenTable(merged(FrozenTable((real,)), [emulated]))
    assert both.own("NVIDIA H200", 132, 16) == real
    assert both.own(emulator, 132, 16) == emulated
    assert both.suggestion(RETAINED, "NVIDIA H200", 132, 16) == OTHER
    assert both.suggestion(RETAINED, emulator, 132, 16) == LARGE
    assert FrozenTable((real,)).own(emulator, 132, 16) == real
    assert not FrozenTable((emulated,)).knows("NVIDIA H200", 132)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sm_count = 132", "sm_count = inf", "entry 1: sm_count is inf: give a whole number"),
        ("rows = 1\n", "rows = true\n", "entry 1: rows is True: give a whole number"),
        ("rows = 1\n", "rows = 99999999999999999999\n", "entry 1: rows is 99999999999999999999"),
        ('device = "NVIDIA H200"', "device = 1979-01-01", "entry 1: device is datetime.date"),
        ("event_ns = 11849.0", "event_ns = inf", "entry 1: figure event_ns of unfused is inf: give a number"),
        ("event_ns = 11849.0", "event_ns = true", "entry 1: figure event_ns of unfused is True: give a number"),
    ],
)
def test_a_wrong_type_in_a_table_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = shipped_path().read_text()
    assert old in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {said}")
