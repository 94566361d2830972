"""Builds kernels once a session and launches them with plain numpy arguments."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from megakernel.device.emulator import Emulator
from megakernel.device.emulator_library import Library
from megakernel.device.guarded_memory import GuardedMemory
from megakernel.device.host_compiler import BuildOptions, SharedObject, build
from megakernel.run.prepare import KernelStore
from tests.emulated.checking import StoreBySource

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all processes of a parallel run: they then build each object once, or at the same time."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"


@pytest.fixture
def memory() -> Iterator[GuardedMemory]:
    with GuardedMemory() as memory:
        yield memory


@pytest.fixture
def load(cache_folder: Path, memory: GuardedMemory) -> Iterator[Callable[..., Library]]:
    """load(source, name_expressions, options): the library, closed after the test."""
    opened: list[Library] = []

    def load(source: Path, names: tuple[str, ...], options: BuildOptions | None = None) -> Library:
        built: SharedObject = build(source, names, cache_folder=cache_folder, options=options)
        opened.append(Library(built, memory))
        return opened[-1]

    yield load
    for library in opened:
        library.close()


@pytest.fixture
def pack() -> Callable[..., int]:
    """pack(*scalars): the address of an array of pointers to them, as cuLaunchKernel takes it."""
    keep_alive: list[NDArray[np.generic]] = []

    def pack(*scalars: np.generic) -> int:
        cells = [np.array([scalar]) for scalar in scalars]
        pointers = np.array([cell.ctypes.data for cell in cells], np.uint64)
        keep_alive.extend([*cells, pointers])
        return int(pointers.ctypes.data)

    return pack


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """The device that the tests share; each shipped kernel is built once, in the cache on disk."""
    with Emulator() as emulator:
        yield emulator


@pytest.fixture(scope="session")
def store(emulator: Emulator) -> Iterator[KernelStore]:
    with StoreBySource(emulator) as store:
        yield store
