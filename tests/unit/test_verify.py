"""Verification on a device that computes what it should, and on one that does not."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.fakes import FakeDevice, FakeExecutable

from megakernel.errors import KernelFault, UsageError
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import ALL_FIXTURES
from megakernel.record.plan import SUBMISSIONS
from megakernel.record.verification import Verification
from megakernel.run.prepare import KernelStore
from megakernel.run.verify import fixture_names, verify_all
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration

PROBLEM = Problem(3, 2500)
CONFIGURATION = Configuration(256, 1024)
Float32 = NDArray[np.float32]


def verifications(
    device: FakeDevice, variant: str = "row_retained", fixtures: tuple[str, ...] = ("timing",)
) -> list[Verification]:
    with KernelStore(device) as store:
        results = list(verify_all(device, store, [CATALOGUE[variant]], [PROBLEM], fixtures, SUBMISSIONS, CONFIGURATION))
    return [result.verification for result in results]


@pytest.mark.parametrize("variant", CATALOGUE)
def test_correct_executables_pass_direct_and_as_a_graph(variant: str) -> None:
    device = FakeDevice(sm_count=4, blocks_per_sm=1)  # a row of three blocks a launch
    found = verifications(device, variant)
    assert [v.passed for v in found] == [True, True], [v.failures for v in found]
    names = {check.name for check in found[1].checks}
    assert "graph.audit" in names
    if CATALOGUE[variant].computes == "softmax":
        assert {"y.written", "y.accuracy", "changed_input_1.y.accuracy", "changed_input_2.y.accuracy"} <= names
        assert {f"{c}.accuracy" for q in CATALOGUE[variant].intermediates for c in q.components} <= names
    assert all(buffer.closed for buffer in device.buffers)
    assert all(module.closed for module in device.modules)


@pytest.mark.parametrize("fixture", ALL_FIXTURES)
def test_every_fixture_passes(fixture: str) -> None:
    assert all(v.passed for v in verifications(FakeDevice(), "unfused", (fixture,)))


def only(name: str, edit: Callable[[Float32], object]) -> Callable[[str, str, Float32], None]:
    def tamper(variant: str, quantity: str, values: Float32) -> None:
        if quantity == name:
            edit(values)

    return tamper


@pytest.mark.parametrize(
    ("quantity", "edit", "check"),
    [
        ("y", lambda v: v.fill(np.nan), "y.nan_rows"),
        ("y", lambda v: v.fill(0), "y.accuracy"),
        ("tile_maxima", lambda v: v.fill(8), "tile_maxima.accuracy"),
        ("tile_square_sums", lambda v: np.multiply(v, 1.0001, out=v), "tile_square_sums.accuracy"),
        ("tile_exponential_sums", lambda v: v[..., -1].fill(0), "tile_exponential_sums.accuracy"),
    ],
)
def test_a_wrong_value_fails_by_name_also_in_an_intermediate(
    quantity: str, edit: Callable[[Float32], object], check: str
) -> None:
    device = FakeDevice()
    device.tamper = only(quantity, edit)
    for verification in verifications(device):
        assert not verification.passed
        assert check in {c.name for c in verification.failures}


def test_a_kernel_that_writes_nothing_fails_because_memory_is_poisoned() -> None:
    device = FakeDevice()
    device.compute = lambda plan, launch, addresses: None  # type: ignore[method-assign]
    for verification in verifications(device):
        assert {"y.written", "tile_maxima.written"} <= {c.name for c in verification.failures}


def test_a_row_group_that_is_never_launched_fails() -> None:
    device = FakeDevice(sm_count=3, blocks_per_sm=1)
    compute = device.compute
    device.compute = lambda plan, launch, addresses: (  # type: ignore[method-assign]
        compute(plan, launch, addresses) if launch.first_row < 2 else None
    )
    for verification in verifications(device):
        (written,) = [c for c in verification.failures if c.name == "y.written"]
        assert "2500 of 7500 values not written, the first at row 2, column 0" in written.detail


def test_a_result_kept_from_the_first_input_fails_only_after_the_change() -> None:
    # A graph with stale pointers or a kernel that skips its work the second time.
    device = FakeDevice()
    kept: dict[tuple[str, int], Float32] = {}

    def stale(variant: str, quantity: str, values: Float32) -> None:
        values[...] = kept.setdefault((quantity, len(values)), values.copy())

    device.tamper = stale
    for verification in verifications(device):
        assert verification.failures
        assert {c.name.split(".")[0] for c in verification.failures} == {"changed_input_1", "changed_input_2"}


def test_a_graph_that_is_not_as_declared_is_not_even_run() -> None:
    device = FakeDevice()
    device.read_back = lambda topology: replace(
        topology, nodes=tuple(replace(node, cooperative=False) for node in topology.nodes)
    )
    direct, graph = verifications(device)
    assert direct.passed
    assert [c.name for c in graph.checks] == ["graph.audit"]
    assert "cooperative is False instead of True" in graph.failures[0].detail
    assert {submission for _, submission in device.submissions} == {"direct"}


def test_a_kernel_fault_is_a_failed_check_and_barriers_start_afresh() -> None:
    device = FakeDevice()

    def fault(executable: FakeExecutable) -> None:
        next(b for b in device.buffers if b.name == "row_barriers").fill(3)
        raise KernelFault("block 3 reads past x", "bounds")

    device.before_submit = fault
    for verification in verifications(device):
        assert [c.name for c in verification.failures] == ["launch.bounds"]
    assert not next(b for b in device.buffers if b.name == "row_barriers").memory.any()


def test_the_input_is_as_it_was_after_verifying() -> None:
    device = FakeDevice()
    first = verifications(device, fixtures=("ramp", "timing"))
    assert [v.fixture for v in first] == ["ramp", "ramp", "timing", "timing"]
    assert first[0].output_sha256 == first[1].output_sha256 != first[2].output_sha256
    assert first[0].output_row is not None
    assert first[0].output_row_index == 2
    assert set(first[0].intermediates) == {"tile_square_sums", "tile_maxima", "tile_exponential_sums"}


def test_all_stands_for_every_fixture_and_none_is_repeated() -> None:
    assert fixture_names(["timing", "all", "nan"]) == ["timing", *(n for n in ALL_FIXTURES if n != "timing")]
    with pytest.raises(UsageError, match="unknown fixture 'nothing'"):
        verifications(FakeDevice(), fixtures=("nothing",))
