"""Every variant is right on the GPU, direct and as a graph."""

import numpy as np
import pytest

from megakernel.device.face import Device
from megakernel.operator.contract import BENCHMARK_ROWS, Problem
from megakernel.operator.fixtures import ALL_FIXTURES
from megakernel.record.plan import SUBMISSIONS
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.run.verify import verify_all
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Variant

pytestmark = pytest.mark.gpu

VARIANTS = list(CATALOGUE.values())


def _assert_verified(gpu: Device, store: KernelStore, problem: Problem, fixtures: list[str]) -> None:
    results = list(verify_all(gpu, store, VARIANTS, [problem], fixtures, SUBMISSIONS))
    assert len(results) == len(VARIANTS) * len(fixtures) * len(SUBMISSIONS)
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


@pytest.mark.parametrize("width", [1, 31, 4096, 50_257, 128_256, 131_071, 131_073])
def test_odd_widths(gpu: Device, store: KernelStore, width: int) -> None:
    _assert_verified(gpu, store, Problem(5, width), ["timing"])


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
