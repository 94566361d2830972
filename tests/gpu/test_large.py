"""Beyond 2^31 and 2^32 elements: every offset into a tensor has 64 bits."""

from collections.abc import Iterator

import numpy as np
import pytest
from cuda.bindings import driver
from numpy.typing import NDArray
from tests.gpu.planted import NARROW_COPY

from megakernel.device.arguments import address_of
from megakernel.device.driver import call
from megakernel.device.face import Buffer, Device
from megakernel.operator.checks import POISON, check_quantity
from megakernel.operator.contract import BENCHMARK_WIDTH, Problem
from megakernel.operator.fixtures import make
from megakernel.operator.reference import Reference
from megakernel.record.plan import Plan
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Variant

pytestmark = pytest.mark.gpu

ROWS = 32_771
PERIOD = 61  # rows repeat: a prime, so that an offset that wraps lands on another row
ROW_BYTES = 4 * BENCHMARK_WIDTH
# Around every offset at which 30, 31 or 32 bits end, counted in elements or in bytes, and the first and last rows.
EDGES = sorted({row for k in (0, 2048, 4096, 8192, 16_384, 32_768) for row in range(k - 3, k + 3) if 0 <= row < ROWS})
SAMPLED = [*EDGES, *range(ROWS - 3, ROWS)]

SHIPPED = [v for v in CATALOGUE.values() if v.computes != "nothing" and not v.libraries]


def read_row(buffer: Buffer, row: int) -> NDArray[np.float32]:
    values = np.empty(BENCHMARK_WIDTH, np.float32)
    call(driver.cuMemcpyDtoH, address_of(values), buffer.address + row * ROW_BYTES, ROW_BYTES)
    return values


@pytest.fixture(scope="module")
def base() -> NDArray[np.float32]:
    return make("timing", Problem(PERIOD))


@pytest.fixture(scope="module")
def large(gpu: Device, base: NDArray[np.float32]) -> Iterator[Operands]:
    with Operands(gpu, Problem(ROWS)) as operands:
        for first in range(0, ROWS, PERIOD):
            rows = min(PERIOD, ROWS - first)
            call(driver.cuMemcpyHtoD, operands.x.address + first * ROW_BYTES, address_of(base), rows * ROW_BYTES)
        yield operands


@pytest.mark.parametrize("variant", SHIPPED, ids=lambda v: v.name)
def test_more_than_2_to_the_32_elements(
    gpu: Device, store: KernelStore, base: NDArray[np.float32], large: Operands, variant: Variant
) -> None:
    assert Problem(ROWS).elements > 2**32
    x = base[[row % PERIOD for row in SAMPLED]]
    with prepare(gpu, store, variant, large) as prepared, prepared.executable("direct") as executable:
        large.y.fill(POISON)
        executable.run()
        assert_covered(prepared.plan)
        y = np.stack([read_row(large.y, row) for row in SAMPLED])
    if variant.computes == "copy":
        assert np.array_equal(y.view(np.uint32), x.view(np.uint32))
        return
    reference = Reference(x, Problem(len(SAMPLED)))
    failed = [c for c in check_quantity("y", y, reference, prepared.plan.configuration.tile) if not c.passed]
    assert not failed


def test_offsets_of_32_bits_would_show(gpu: Device, store: KernelStore, large: Operands) -> None:
    with prepare(gpu, store, NARROW_COPY, large) as prepared, prepared.executable("direct") as executable:
        large.y.fill(POISON)
        executable.run()
    last = read_row(large.y, ROWS - 1)
    assert np.all(last.view(np.uint32) == np.uint32(POISON))


def assert_covered(plan: Plan) -> None:
    covered = {row for launch in plan.launches for row in range(launch.first_row, launch.first_row + launch.rows)}
    assert covered == set(range(ROWS))
