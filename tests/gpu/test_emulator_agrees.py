"""The emulator and the GPU agree within the tolerance table on every fixture, NaN rows included."""

import numpy as np
import pytest

from megakernel.device.face import Device
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import ALL_FIXTURES, make
from megakernel.operator.reference import Reference
from megakernel.operator.tolerances import allowed_error
from megakernel.run.prepare import KernelStore, Operands, Prepared, prepare, read_values
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration, Variant, Y

pytestmark = pytest.mark.gpu
pytest.importorskip("cffi", reason="the emulator needs cffi")

CONFIGURATION = Configuration(64, 512)
COMPUTING = [variant for variant in CATALOGUE.values() if variant.computes == "softmax" and not variant.libraries]


def _values(prepared: Prepared) -> dict[str, np.ndarray]:
    with prepared.executable("direct") as executable:
        executable.run()
    written = (*prepared.variant.intermediates, Y)
    return {name: v for q in written for name, v in read_values(prepared, q.name).items()}


@pytest.mark.parametrize("variant", COMPUTING, ids=lambda v: v.name)
def test_both_devices_agree(gpu: Device, store: KernelStore, variant: Variant) -> None:
    from megakernel.device.emulator import Emulator

    problem = Problem(3, 1541)
    with Emulator("h200") as emulator, KernelStore(emulator) as emulated_store:
        for fixture in ALL_FIXTURES:
            x = make(fixture, problem)
            found = []
            for device, kernels in ((gpu, store), (emulator, emulated_store)):
                with (
                    Operands(device, problem) as operands,
                    prepare(device, kernels, variant, operands, CONFIGURATION) as prepared,
                ):
                    operands.x.write(x)
                    found.append(_values(prepared))
            reference = Reference(x, problem)
            for name, on_gpu in found[0].items():
                emulated = found[1][name]
                assert np.array_equal(np.isnan(on_gpu), np.isnan(emulated)), (fixture, name)
                # Each may be off by the bound to its own side.
                bound = 2 * allowed_error(name, reference, CONFIGURATION.tile)
                with np.errstate(invalid="ignore"):
                    error = np.abs(on_gpu.astype(np.float64) - emulated)
                close = (error <= bound) | (on_gpu == emulated) | np.isnan(on_gpu)
                assert close.all(), (fixture, name, float(np.nanmax(error)))
