"""The wrong kernels that a real GPU may run: rejected there by the same checks, while their correct twins pass."""

from pathlib import Path

import pytest

from megakernel.device.face import Device
from megakernel.errors import PlanError
from megakernel.record.plan import SUBMISSIONS, Submission
from megakernel.run.prepare import KernelStore
from megakernel.variants.catalogue import CATALOGUE
from tests.wrong.apply import edited_store
from tests.wrong.catalogue import FAULTS, setting_name
from tests.wrong.fault import Fault, Setting
from tests.wrong.verdict import verdict

pytestmark = pytest.mark.gpu

ON_GPU = [fault for fault in FAULTS if fault.on_gpu]
TWINS_ON_GPU = list(dict.fromkeys(fault.setting for fault in ON_GPU))


def skip_without_libraries(gpu: Device, setting: Setting) -> None:
    for library in CATALOGUE[setting.variant].libraries:
        try:
            gpu.require_library(library)
        except PlanError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("submission", SUBMISSIONS)
@pytest.mark.parametrize("fault", ON_GPU, ids=lambda fault: fault.name)
def test_fault_is_rejected(gpu: Device, fault: Fault, submission: Submission, tmp_path: Path) -> None:
    skip_without_libraries(gpu, fault.setting)
    with edited_store(gpu, fault.edits, tmp_path) as store:
        failures = {check.name: check for check in verdict(gpu, store, fault.setting, submission).failures}

    assert set(fault.caught_by) <= set(failures)
    assert isinstance(fault.where, str)
    assert fault.where in failures[fault.caught_by[0]].detail


@pytest.mark.parametrize("setting", TWINS_ON_GPU, ids=setting_name)
def test_correct_twin_passes(gpu: Device, setting: Setting) -> None:
    skip_without_libraries(gpu, setting)
    with KernelStore(gpu) as store:
        verification = verdict(gpu, store, setting)
    assert verification.passed, [str(check) for check in verification.failures]
