"""A device without hardware. It computes what a plan asks for from the float64 reference, so that a correct
program verifies and measures on it; a test can make it wrong, slow, small or broken.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from megakernel.device.face import Buffer, Kernel
from megakernel.operator.reference import Reference
from megakernel.record.facts import DeviceFacts, DeviceState, KernelResources
from megakernel.record.plan import GraphTimings, Launch, Plan, Pointer, Submission, Topology
from megakernel.run.graph import expected_topology
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import X, Y

FACTS = DeviceFacts(
    kind="gpu",
    name="Fake GPU",
    uuid="GPU-fake",
    compute_capability="9.0",
    sm_count=132,
    l2_bytes=50 * 2**20,
    memory_bytes=80 * 2**30,
    threads_per_sm=2048,
    blocks_per_sm=32,
    registers_per_sm=65536,
    shared_bytes_per_sm=233472,
    shared_bytes_per_block=232448,
    driver_version="13.0",
)


def resources(name: str, registers: int = 32) -> KernelResources:
    return KernelResources(name, f"_Z{name}", registers, 0, 0, 0, 0)


class FakeBuffer:
    def __init__(self, address: int, nbytes: int, name: str) -> None:
        self.address = address
        self.nbytes = nbytes
        self.name = name
        self.closed = False
        self.memory = np.zeros(nbytes, np.uint8)

    def write(self, array: NDArray[np.generic]) -> None:
        self.put(0, array)

    def put(self, offset: int, array: NDArray[np.generic]) -> None:
        raw = np.frombuffer(array.tobytes(), np.uint8)
        assert not self.closed
        assert offset + raw.size <= self.nbytes, f"{self.name}: {offset} + {raw.size} bytes of {self.nbytes}"
        self.memory[offset : offset + raw.size] = raw

    def read(self, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[np.generic]:
        assert not self.closed
        count = int(np.prod(shape))
        return self.memory[: count * np.dtype(dtype).itemsize].view(dtype).reshape(shape).copy()

    def fill(self, word: int) -> None:
        self.memory.view(np.uint32)[:] = word

    def close(self) -> None:
        self.closed = True


class FakeKernel:
    def __init__(self, name: str) -> None:
        self.resources = resources(name)


class FakeModule:
    def __init__(self, names: tuple[str, ...]) -> None:
        self.kernels: Mapping[str, Kernel] = {name: FakeKernel(name) for name in names}
        self.provenance: Mapping[str, str] = {"compiler": "none"}
        self.closed = False

    def close(self) -> None:
        self.closed = True


class FakeStopwatch:
    def __init__(self, device: "FakeDevice") -> None:
        self._device = device
        self._started = self._stopped = 0

    def __enter__(self) -> "FakeStopwatch":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        self._started = self._device.now_ns

    def stop(self) -> None:
        self._stopped = self._device.now_ns

    def wait(self) -> None:
        pass

    def elapsed_ns(self) -> float:
        return float(self._stopped - self._started)


class FakeExecutable:
    def __init__(
        self,
        device: "FakeDevice",
        plan: Plan,
        kernels: Mapping[str, Kernel],
        addresses: Mapping[str, int],
        submission: Submission,
    ) -> None:
        self.device, self.plan, self.kernels, self.addresses = device, plan, kernels, addresses
        self.submission: Submission = submission
        self.graph_timings: GraphTimings | None = None
        self.submit: Callable[[], object] = self._submit
        self.wait: Callable[[], object] = lambda: None
        self.prepared = False

    def _submit(self) -> None:
        device = self.device
        device.submissions.append((self.plan.variant, self.submission))
        device.before_submit(self)
        device.now_ns += device.cost_ns(self.plan)
        for launch in self.plan.launches:
            device.compute(self.plan, launch, self.addresses)

    def check(self, submitted: object, waited: object = None) -> None:
        for outcome in (submitted, waited):
            if isinstance(outcome, Exception):
                raise outcome

    def run(self) -> None:
        self.check(self.submit(), self.wait())

    def counted_bytes(self) -> None:
        return None

    def topology(self) -> Topology | None:
        if self.submission == "direct":
            return None
        return self.device.read_back(expected_topology(self.plan, self.kernels, self.addresses))

    def prepare(self) -> None:
        self.prepared = True
        if self.submission == "graph":
            self.graph_timings = GraphTimings(4, 3, 2, 1)
            self.run()

    def __enter__(self) -> "FakeExecutable":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeDevice:
    """See the module.

    Attributes:
        tamper: called with the variant, the name and the values of each quantity that a launch writes.
        before_submit: called before each invocation; raise from it what a driver would report.
        read_back: changes what a graph says of itself.
        refuse: the message of a compile error, by variant source name.
    """

    def __init__(
        self,
        sm_count: int = 132,
        blocks_per_sm: int | Callable[[str, int, int], int] = 4,
    ) -> None:
        self.facts = replace(FACTS, sm_count=sm_count)
        self._blocks_per_sm = blocks_per_sm
        self.buffers: list[FakeBuffer] = []
        self.modules: list[FakeModule] = []
        self.built: list[tuple[Path, tuple[str, ...]]] = []
        self.asked: list[tuple[str, int, int]] = []
        self.submissions: list[tuple[str, Submission]] = []
        self.now_ns = 0
        self.cost_ns: Callable[[Plan], int] = lambda plan: 1000
        self.tamper: Callable[[str, str, NDArray[np.float32]], None] = lambda variant, name, values: None
        self.before_submit: Callable[[FakeExecutable], None] = lambda executable: None
        self.before_build: Callable[[Path], None] = lambda source: None
        self.read_back: Callable[[Topology], Topology] = lambda topology: topology
        self.state = DeviceState(sm_clock_mhz=1980, throttle_reasons=0)
        self._references: dict[bytes, Reference] = {}
        self._values: dict[tuple[int, str, int], NDArray[np.float32]] = {}

    def build(self, source: Path, kernel_names: tuple[str, ...]) -> FakeModule:
        self.before_build(source)
        self.built.append((source, kernel_names))
        self.modules.append(FakeModule(kernel_names))
        return self.modules[-1]

    def require_library(self, library: str) -> str:
        return "1.2.3"

    def blocks_per_sm(self, kernel: Kernel, threads: int, shared_bytes: int) -> int:
        self.asked.append((kernel.resources.name, threads, shared_bytes))
        if isinstance(self._blocks_per_sm, int):
            return self._blocks_per_sm
        return self._blocks_per_sm(kernel.resources.name, threads, shared_bytes)

    def allocate(self, nbytes: int, name: str) -> FakeBuffer:
        self.buffers.append(FakeBuffer((len(self.buffers) + 1) << 40, nbytes, name))
        return self.buffers[-1]

    def executable(
        self, plan: Plan, kernels: Mapping[str, Kernel], addresses: Mapping[str, int], submission: Submission
    ) -> FakeExecutable:
        return FakeExecutable(self, plan, kernels, addresses, submission)

    def stopwatch(self) -> FakeStopwatch:
        return FakeStopwatch(self)

    def read_state(self) -> DeviceState:
        return self.state

    def peek(self, buffer: Buffer) -> NDArray[np.uint32]:
        assert isinstance(buffer, FakeBuffer)
        return buffer.memory.view(np.uint32)[:16384].copy()

    def compute(self, plan: Plan, launch: Launch, addresses: Mapping[str, int]) -> None:
        """Writes the rows of every quantity whose address the launch is given."""
        if plan.variant == "sweep":  # what it writes is of no interest
            return
        variant = CATALOGUE[plan.variant]
        problem, tile = plan.problem, plan.configuration.tile
        pointers = {a.quantity: a.offset_bytes for a in launch.arguments if isinstance(a, Pointer)}
        for quantity in variant.quantities:
            if quantity == X or not quantity.components or quantity.name not in pointers:
                continue
            reference = self._reference(plan, addresses[X.name])
            whole = reference.x if (variant.computes, quantity) == ("copy", Y) else None
            columns = []
            for name in quantity.components:
                values = whole if whole is not None else self._rounded(reference, name, tile)
                part = values[launch.first_row : launch.first_row + launch.rows].copy()
                self.tamper(plan.variant, name, part)
                columns.append(part)
            offset = pointers[quantity.name]
            assert offset == launch.first_row * quantity.row_bytes(problem, tile)
            self._buffer(addresses[quantity.name]).put(offset, np.stack(columns, axis=-1))

    def _reference(self, plan: Plan, address: int) -> Reference:
        raw = self._buffer(address).memory.tobytes()
        if raw not in self._references:
            x = np.frombuffer(raw, np.float32).reshape(plan.problem.rows, plan.problem.width)
            self._references[raw] = Reference(x, plan.problem)
        return self._references[raw]

    def _rounded(self, reference: Reference, name: str, tile: int) -> NDArray[np.float32]:
        key = (id(reference), name, tile)
        if key not in self._values:
            with np.errstate(over="ignore"):
                self._values[key] = reference.quantity(name, tile).astype(np.float32)
        return self._values[key]

    def _buffer(self, address: int) -> FakeBuffer:
        return next(buffer for buffer in self.buffers if buffer.address == address and not buffer.closed)

    def __enter__(self) -> "FakeDevice":
        return self

    def __exit__(self, *_: object) -> None:
        pass
