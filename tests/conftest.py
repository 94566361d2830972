"""What tests of several folders share."""

from collections.abc import Iterator

import pytest

from megakernel.device.face import Device
from megakernel.errors import MissingError


@pytest.fixture(scope="session")
def gpu() -> Iterator[Device]:
    """The first GPU; a test that asks for it is skipped where there is none."""
    from megakernel.device.gpu import Gpu

    try:
        device = Gpu(0)
    except MissingError as error:
        pytest.skip(str(error))
    with device:
        yield device
