"""What is recorded of a device and of a compiled kernel."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from megakernel.variants.frozen import EMULATED_MARK


@dataclass(frozen=True)
class DeviceFacts:
    """A device as its driver describes it (or as the emulator stands in for it).

    Attributes:
        kind: results of the two kinds are never compared.
        compute_capability: such as ``"9.0"``.
        sm_count: streaming multiprocessors that this process may use (MIG and MPS reduce it).
        shared_bytes_per_block: dynamic plus static shared memory after opting in.
        driver_version: of CUDA, as ``"13.0"``; empty where there is no driver.
    """

    kind: Literal["gpu", "emulator"]
    name: str
    uuid: str
    compute_capability: str
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    driver_version: str

    @property
    def arch(self) -> str:
        """The architecture that kernels are compiled for, such as ``sm_90``."""
        return "sm_" + self.compute_capability.replace(".", "")

    @property
    def label(self) -> str:
        """The device's name, marked where it is emulated: what an emulator found must not pass as a GPU's."""
        return f"{self.name}{EMULATED_MARK}" if self.kind == "emulator" else self.name

    @property
    def capability(self) -> tuple[int, ...]:
        """The compute capability as numbers, to be compared."""
        return tuple(int(part) for part in self.compute_capability.split("."))


@dataclass(frozen=True)
class KernelResources:
    """What one compiled kernel takes.

    Attributes:
        name: the name expression it was compiled from.
        symbol: its mangled name in the binary.
        local_bytes: per thread, spills and stack included.
    """

    name: str
    symbol: str
    registers: int
    static_shared_bytes: int
    local_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True)
class DeviceState:
    """Clocks and the like at one moment. What could not be read is None, and never stops a run.

    Attributes:
        throttle_reasons: NVML's bit mask of reasons why the clock is not at its maximum.
    """

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    throttle_reasons: int | None = None

    # Idle (1), the applications' clock setting (2), sync boost (16) and display clocks (256) say what was asked for.
    _BENIGN_REASONS: ClassVar[int] = 1 | 2 | 16 | 256

    @property
    def throttled(self) -> bool:
        """Whether power or heat held the clock down."""
        return bool((self.throttle_reasons or 0) & ~self._BENIGN_REASONS)
