"""The face of a device: a GPU and the emulator implement it, and nothing else asks which of them it has."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from megakernel.record.facts import DeviceFacts, DeviceState, KernelResources
from megakernel.record.plan import GraphTimings, Plan, Submission, Topology


class Buffer(Protocol):
    """Global memory, owned by whoever allocated it and freed by ``close``."""

    address: int
    nbytes: int

    def write(self, array: NDArray[np.generic]) -> None:
        """Copies ``array`` to the start of the buffer and waits."""

    def read(self, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[np.generic]:
        """Waits for the device, then copies from the start of the buffer."""

    def fill(self, word: int) -> None:
        """Sets every 32-bit word, and waits."""

    def close(self) -> None: ...


class Kernel(Protocol):
    """A compiled kernel, loaded on its device."""

    @property
    def resources(self) -> KernelResources: ...


class Module(Protocol):
    """The kernels of one source, by name expression."""

    @property
    def kernels(self) -> Mapping[str, Kernel]: ...

    @property
    def provenance(self) -> Mapping[str, str]: ...

    def close(self) -> None: ...


class Stopwatch(Protocol):
    """Two events on the device's own clock, around what is submitted between them."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def wait(self) -> None:
        """Waits for the stop event."""

    def elapsed_ns(self) -> float: ...


class Executable(Protocol):
    """A plan bound to memory, ready to run as often as one likes.

    Attributes:
        submit: queues one invocation. Bound once, so that a timing loop builds nothing.
        wait: returns when all that was submitted has finished.
        graph_timings: of a graph; None of direct launches.

    ``submit`` and ``wait`` return outcomes for ``check`` to look at, once the clock has stopped.
    """

    submission: Submission
    submit: Callable[[], object]
    wait: Callable[[], object]
    graph_timings: GraphTimings | None

    def check(self, submitted: object, waited: object = None) -> None:
        """Raises what went wrong, if anything did.

        Raises:
            DeviceError: the driver refused the submission, or reports a fault.
        """

    def run(self) -> None:
        """One invocation, from submission to its end, checked."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def topology(self) -> Topology | None:
        """The graph as the device holds it; None of direct launches."""

    def counted_bytes(self) -> tuple[tuple[int, int], ...] | None:
        """What each launch of the latest invocation read and wrote of global memory; None where nothing counts it."""

    def prepare(self) -> None:
        """Does once what must not fall into a measurement: uploads a graph and replays it."""


class Planner(Protocol):
    """What is asked of a device to plan for it. A named GPU that is not there can answer too."""

    @property
    def facts(self) -> DeviceFacts: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def build(self, source: Path, kernel_names: tuple[str, ...]) -> Module:
        """Compiles and loads the kernels of one source.

        Raises:
            CompileError: with the compiler's log.
        """

    def require_library(self, library: str) -> str:
        """Makes sure that a library is there to be called, and returns its version.

        Raises:
            PlanError: it is not; the message says what to install.
        """

    def blocks_per_sm(self, kernel: Kernel, threads: int, shared_bytes: int) -> int:
        """Blocks of the kernel that one SM holds, as the launch will find it.

        Raises:
            PlanError: a block alone is beyond a limit of the device.
        """


class Device(Planner, Protocol):
    """Where kernels run."""

    def allocate(self, nbytes: int, name: str) -> Buffer: ...

    def executable(
        self,
        plan: Plan,
        kernels: Mapping[str, Kernel],
        addresses: Mapping[str, int],
        submission: Submission,
    ) -> Executable:
        """Binds a plan to loaded kernels and to the addresses of its quantities."""

    def stopwatch(self) -> Stopwatch: ...

    def read_state(self) -> DeviceState: ...

    def peek(self, buffer: Buffer) -> NDArray[np.uint32]:
        """The buffer's words (at most the first 16,384) while a launch may be running, and never waiting for it."""
