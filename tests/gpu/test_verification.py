"""Every variant is right on the GPU, direct and as a graph."""

import numpy as np
import pytest

from megakernel.device.face import Device
from megakernel.errors import PlanError
from megakernel.operator.contract import BENCHMARK_ROWS, Problem
from megakernel.operator.fixtures import ALL_FIXTURES
from megakernel.record.plan import SUBMISSIONS
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.run.verify import verify_all
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Variant

pytestmark = pytest.mark.gpu

VARIANTS = [variant for variant in CATALOGUE.values() if not variant.libraries]


def _assert_verified(
    gpu: Device, store: KernelStore, problem: Problem, fixtures: list[str], variants: list[Variant] = VARIANTS
) -> None:
    results = list(verify_all(gpu, store, variants, [problem], fixtures, SUBMISSIONS))
    assert len(results) == len(variants) * len(fixtures) * len(SUBMISSIONS)
    failures = [
        f"{r.plan.variant} {r.submission} {r.verification.fixture}: {c}"
        for r in results
        for c in r.verification.failures
    ]
    assert not failures


@pytest.mark.parametrize("rows", BENCHMARK_ROWS)
def test_benchmark_shapes(gpu: Device, store: KernelStore, rows: int) -> None:
    _assert_verified(gpu, store, Problem(rows), ["timing"])


def test_every_fixture(gpu: Device, store: KernelStore) -> None:
    _assert_verified(gpu, store, Problem(3), list(ALL_FIXTURES))


@pytest.mark.parametrize("width", [1, 31, 4096, 50_257, 131_071])
def test_odd_widths(gpu: Device, store: KernelStore, width: int) -> None:
    _assert_verified(gpu, store, Problem(5, width), ["timing"])


@pytest.mark.parametrize(
    ("rows", "width"), [(2, 262_144), (3, 131_073), (7, 128_256), (33, 50_257), (65, 4096), (65, 31)]
)
def test_odd_shapes(gpu: Device, store: KernelStore, rows: int, width: int) -> None:
    _assert_verified(gpu, store, Problem(rows, width), ["timing"])


@pytest.fixture
def rms_cudnn(gpu: Device) -> Variant:
    try:
        gpu.require_library("cudnn")
    except PlanError as error:
        pytest.skip(str(error))
    return CATALOGUE["rms_cudnn"]


@pytest.mark.parametrize(
    ("rows", "width"), [(1, 131_072), (16, 131_072), (64, 131_072), (5, 50_257), (2, 262_144), (33, 31), (3, 1)]
)
def test_cudnn(gpu: Device, store: KernelStore, rms_cudnn: Variant, rows: int, width: int) -> None:
    _assert_verified(gpu, store, Problem(rows, width), ["timing"], [rms_cudnn])


def test_cudnn_on_every_fixture(gpu: Device, store: KernelStore, rms_cudnn: Variant) -> None:
    _assert_verified(gpu, store, Problem(3), list(ALL_FIXTURES), [rms_cudnn])


@pytest.mark.parametrize("name", ["retained", "row_retained"])
def test_64_rows_take_two_cooperative_launches(gpu: Device, store: KernelStore, name: str) -> None:
    with Operands(gpu, Problem(64)) as operands, prepare(gpu, store, CATALOGUE[name], operands) as prepared:
        launches = prepared.plan.launches
        assert [(launch.first_row, launch.rows, launch.cooperative) for launch in launches] == [
            (0, 32, True),
            (32, 32, True),
        ]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_survives_collection_between_build_and_replay(gpu: Device, store: KernelStore, variant: Variant) -> None:
    """Nodes and launches keep what they point at, whatever happens to the objects that built them."""
    import gc

    from megakernel.run.verify import Inputs, run_and_check

    problem = Problem(2, 50_257)
    inputs = Inputs.of("timing", problem)
    with Operands(gpu, problem) as operands, prepare(gpu, store, variant, operands) as prepared:
        inputs.load(operands)
        for submission in SUBMISSIONS:
            with prepared.executable(submission) as executable:
                gc.collect()
                overwritten = [np.full(4096, 0xDEAD, np.uint64) for _ in range(64)]
                executable.prepare()
                assert run_and_check(prepared, executable, inputs).passed
                del overwritten
