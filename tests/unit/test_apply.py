"""The operator on arrays."""

import numpy as np
import pytest
from tests.unit.fakes import FakeDevice

from megakernel.errors import UsageError, VerdictError
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import make
from megakernel.operator.reference import Reference
from megakernel.run.apply import rms_softmax


def test_an_array_is_computed_on_the_device_and_its_memory_is_freed() -> None:
    device, problem = FakeDevice(), Problem(3, 1000)
    x = make("timing", problem)
    y = rms_softmax(x, device=device)
    np.testing.assert_array_equal(y, Reference(x, problem).y.astype(np.float32))
    assert all(buffer.closed for buffer in device.buffers)
    assert all(module.closed for module in device.modules)


def test_an_empty_batch_needs_no_launch() -> None:
    # A launch of zero blocks is an invalid configuration.
    device = FakeDevice()
    y = rms_softmax(np.empty((0, 131_072), np.float32), device=device)
    assert y.shape == (0, 131_072)
    assert y.dtype == np.float32
    assert not device.submissions
    assert not device.buffers


def test_rows_outside_the_contract_are_nan_and_raise_when_checked() -> None:
    x = make("nan", Problem(3, 1000))
    assert np.isnan(rms_softmax(x, device=FakeDevice())).all(axis=1).tolist() == [False, True, False]
    with pytest.raises(VerdictError, match=r"^row 1 of x is outside the contract: .*\(1 of 3 rows\)$"):
        rms_softmax(x, device=FakeDevice(), check=True)


@pytest.mark.parametrize("x", [np.zeros((2, 3)), np.zeros(6, np.float32), np.zeros((1, 2, 3), np.float32)])
def test_other_arrays_are_refused(x: np.ndarray) -> None:
    with pytest.raises(UsageError, match=r"^x is float"):
        rms_softmax(x, device=FakeDevice())


def test_a_floor_does_not_compute_the_operator() -> None:
    with pytest.raises(UsageError, match="copy does not compute the operator"):
        rms_softmax(np.zeros((1, 8), np.float32), variant="copy", device=FakeDevice())
