"""Every wrong kernel is rejected for the right reason, and its correct twin passes."""

import re
from collections import Counter
from pathlib import Path

import pytest

from megakernel.device.emulator_findings import DETECTORS
from megakernel.record.verification import Verification
from megakernel.run.prepare import KernelStore
from megakernel.variants.catalogue import CATALOGUE
from tests.wrong.apply import edited, edited_store, line_numbers
from tests.wrong.catalogue import FAULTS, HARMLESS, TWINS, setting_name
from tests.wrong.controls import WRONG_BYTES
from tests.wrong.fault import Edit, Fault, Harmless, Line, Setting
from tests.wrong.verdict import emulator_for, verdict


def first_rejection(fault: Fault, folder: Path) -> Verification:
    for seed in fault.setting.seeds:
        device = emulator_for(fault.setting, seed, for_host_only=not fault.on_gpu)
        with device, edited_store(device, fault.edits, folder) as store:
            verification = verdict(device, store, fault.setting)
        if not verification.passed:
            return verification
    pytest.fail(f"{fault.name} passed with every seed")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_rejected(fault: Fault, tmp_path: Path) -> None:
    failures = {check.name: check for check in first_rejection(fault, tmp_path).failures}

    assert set(fault.caught_by) <= set(failures)
    detail = failures[fault.caught_by[0]].detail
    if isinstance(fault.where, Line):
        places = [f"{fault.where.file}:{number}:" for number in line_numbers(tmp_path, fault.where)]
        assert any(place in detail for place in places), f"{places} not named in {detail}"
    else:
        assert fault.where in detail


@pytest.mark.parametrize("setting", TWINS, ids=setting_name)
def test_correct_twin_passes(setting: Setting) -> None:
    for seed in setting.seeds:
        with emulator_for(setting, seed) as device, KernelStore(device) as store:
            verification = verdict(device, store, setting)
        assert verification.passed, [str(check) for check in verification.failures]


@pytest.mark.parametrize("fault", WRONG_BYTES, ids=lambda fault: fault.name)
def test_fault_that_no_value_shows_is_counted(fault: Fault, tmp_path: Path) -> None:
    failures = first_rejection(fault, tmp_path).failures
    assert tuple(dict.fromkeys(check.name for check in failures)) == fault.caught_by
    assert re.search(r"launch \d+ \(\w+<.*>\) declares \d+ bytes \w+, and moved \d+$", failures[0].detail)


@pytest.mark.parametrize("harmless", HARMLESS, ids=lambda harmless: harmless.name)
def test_harmless_edit_raises_no_alarm(harmless: Harmless, tmp_path: Path) -> None:
    for seed in range(8):
        for weak_stores in (False, True):
            device = emulator_for(harmless.setting, seed, weak_stores, for_host_only=True)
            with device, edited_store(device, harmless.edits, tmp_path) as store:
                verification = verdict(device, store, harmless.setting)
            assert verification.passed, [str(check) for check in verification.failures]


@pytest.mark.parametrize("seed", range(8))
def test_weakened_release_hides_without_weak_stores(seed: int, tmp_path: Path) -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == "release_weakened")
    device = emulator_for(fault.setting, seed, weak_stores=False)
    with device, edited_store(device, fault.edits, tmp_path) as store:
        assert verdict(device, store, fault.setting).passed


def test_faults_are_named_apart_and_cover_every_source() -> None:
    assert max(Counter(fault.name for fault in FAULTS + WRONG_BYTES).values()) == 1
    assert {fault.setting.variant for fault in FAULTS} == set(CATALOGUE) - {"empty"}
    detectors = {name.partition(".")[2] for fault in FAULTS for name in fault.caught_by if name.startswith("launch.")}
    assert detectors <= set(DETECTORS)


def test_edit_must_be_unambiguous() -> None:
    with pytest.raises(ValueError, match="occurs 2 times, not once"):
        edited("a b a", Edit("x.cu", "a", "c"))
    with pytest.raises(ValueError, match="occurs 0 times"):
        edited("a b a", Edit("x.cu", "z", "c"))
    with pytest.raises(ValueError, match="number 2 was meant"):
        edited("a b a", Edit("x.cu", "a", "c", occurrence=2))
    assert edited("a b a", Edit("x.cu", "a", "c", occurrence=1)) == "a b c"
