"""Every shipped variant is right: all inputs, many shapes, many interleavings, direct and as a graph."""

import pytest

from megakernel.device.emulator import Emulator
from megakernel.device.host_compiler import BuildOptions
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import ALL_FIXTURES
from megakernel.run.prepare import KernelStore
from megakernel.variants.catalogue import CATALOGUE
from tests.emulated.checking import SOFTMAXES, UNALIGNED, assert_verified

WIDTHS = (1, 31, 1540, 4096, 4097)


@pytest.mark.parametrize("fixture", ALL_FIXTURES)
@pytest.mark.parametrize("variant", CATALOGUE)
def test_every_fixture(emulator: Emulator, store: KernelStore, variant: str, fixture: str) -> None:
    assert_verified(emulator, store, variant, Problem(3, UNALIGNED), fixtures=[fixture])


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("variant", CATALOGUE)
def test_shapes(emulator: Emulator, store: KernelStore, variant: str, width: int, rows: int) -> None:
    assert_verified(emulator, store, variant, Problem(rows, width))


@pytest.mark.parametrize("width", [50_257, 131_072])
@pytest.mark.parametrize("variant", CATALOGUE)
def test_long_rows(emulator: Emulator, store: KernelStore, variant: str, width: int) -> None:
    """99 and 256 tiles: more than the lanes of a warp hold, and more than they read ahead."""
    assert_verified(emulator, store, variant, Problem(1, width))


@pytest.mark.parametrize("weak_stores", [False, True], ids=["strong", "weak"])
@pytest.mark.parametrize("variant", SOFTMAXES)
def test_interleavings(variant: str, weak_stores: bool) -> None:
    for seed in range(1, 10):
        with Emulator(seed=seed, weak_stores=weak_stores) as device, KernelStore(device) as store:
            assert_verified(device, store, variant, Problem(3, UNALIGNED), submissions=["direct"])


@pytest.mark.parametrize("eps", [1e-12, 1e-5, 1.0])
def test_eps_is_an_argument(emulator: Emulator, store: KernelStore, eps: float) -> None:
    for variant in SOFTMAXES:
        assert_verified(emulator, store, variant, Problem(2, UNALIGNED, eps), fixtures=["tiny", "zeros"])


def test_portable_context_switch() -> None:
    with Emulator(seed=1, build_options=BuildOptions(portable_switch=True)) as device, KernelStore(device) as store:
        assert_verified(device, store, "row_retained", Problem(2, UNALIGNED))
