"""What the GPU tests share. They are skipped, with the reason, where there is no GPU."""

from collections.abc import Iterator

import pytest

from megakernel.device.face import Device
from megakernel.run.prepare import KernelStore


@pytest.fixture(scope="session")
def store(gpu: Device) -> Iterator[KernelStore]:
    """Every kernel is compiled once for all tests."""
    with KernelStore(gpu) as store:
        yield store
