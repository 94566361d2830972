"""The emulator as a device: the same kernel sources on one CPU thread, with the residency of a named GPU."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from megakernel.device.arguments import PackedArguments
from megakernel.device.emulator_findings import EmulatedFault
from megakernel.device.emulator_library import EARLIER_READS, EARLIER_WRITES, LaunchStats, Library
from megakernel.device.face import Buffer, Kernel
from megakernel.device.guarded_memory import GuardedMemory
from megakernel.device.host_compiler import BuildOptions, build, find_compiler
from megakernel.device.limits import DEFAULT_GPU, named_facts
from megakernel.device.offline import compiled_resources, offline_blocks_per_sm
from megakernel.errors import DeviceError, PlanError
from megakernel.record.facts import DeviceFacts, DeviceState, KernelResources
from megakernel.record.plan import GraphTimings, Launch, Plan, Submission, Topology

_PEEK_WORDS = 16_384


class EmulatedBuffer:
    """Guarded memory. See ``face.Buffer``."""

    def __init__(self, memory: GuardedMemory, nbytes: int, name: str) -> None:
        self._memory = memory
        self._buffer = memory.allocate(nbytes, name)
        self.address = self._buffer.address
        self.nbytes = nbytes

    def write(self, array: NDArray[np.generic]) -> None:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if raw.nbytes > self.nbytes:
            raise PlanError(f"{raw.nbytes} bytes do not fit a buffer of {self.nbytes}")
        self._buffer.bytes[: raw.nbytes] = raw

    def read(self, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[np.generic]:
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._buffer.bytes[:nbytes].copy().view(dtype).reshape(shape)

    def fill(self, word: int) -> None:
        self._buffer.bytes.view(np.uint32)[:] = word

    def close(self) -> None:
        if self.address:
            self._memory.free(self._buffer)
            self.address = 0


class EmulatedKernel:
    """A kernel in a shared object, with the resources that NVRTC reports for the GPU's architecture."""

    def __init__(self, library: Library, resources: KernelResources) -> None:
        self.library = library
        self.resources = resources


class EmulatedModule:
    """A loaded shared object. See ``face.Module``."""

    def __init__(self, library: Library, resources: Mapping[str, KernelResources]) -> None:
        self._library = library
        self.kernels: Mapping[str, Kernel] = {
            name: EmulatedKernel(library, kernel) for name, kernel in resources.items()
        }
        compiler = find_compiler()
        self.provenance: Mapping[str, str] = {
            "compiler": compiler.version.splitlines()[0],
            "options": " ".join(compiler.command),
            "arch": "emulated",
        }

    def close(self) -> None:
        self._library.close()


class EmulatedExecutable:
    """Runs the launches of a plan one after the other, each to its end. See ``face.Executable``.

    Attributes:
        launch_stats: what each launch of the latest invocation did.
    """

    def __init__(
        self,
        device: "Emulator",
        plan: Plan,
        kernels: Mapping[str, Kernel],
        addresses: Mapping[str, int],
        submission: Submission,
    ) -> None:
        self.submission: Submission = submission
        self.graph_timings: GraphTimings | None = None
        self.launch_stats: tuple[LaunchStats, ...] = ()
        self._device = device
        self._steps: list[tuple[Launch, EmulatedKernel, PackedArguments, int, Mapping[int, int]]] = []
        started = time.perf_counter_ns()
        for position, launch in enumerate(plan.launches):
            kernel = cast(EmulatedKernel, kernels[launch.kernel])
            cap = device.blocks_per_sm(kernel, launch.block, launch.shared_bytes) * device.facts.sm_count
            if launch.cooperative and launch.grid > cap:
                raise DeviceError(
                    f"cooperative launch of {launch.kernel} with {launch.grid} blocks is too large: "
                    f"{device.facts.name} holds {cap} at once"
                )
            packed = PackedArguments(launch, addresses)
            packed.require(kernel.library.parameter_sizes(launch.kernel), launch.kernel)
            in_use = _used_by_running(plan.launches[:position], addresses) if launch.programmatic else {}
            self._steps.append((launch, kernel, packed, cap, in_use))
        self._build_ns = time.perf_counter_ns() - started
        self.submit: Callable[[], object] = self._submit
        self.wait: Callable[[], object] = _nothing

    def _submit(self) -> None:
        self.launch_stats = tuple(self._launch(*step) for step in self._steps)

    def _launch(
        self, launch: Launch, kernel: EmulatedKernel, packed: PackedArguments, cap: int, in_use: Mapping[int, int]
    ) -> LaunchStats:
        try:
            return kernel.library.launch(
                launch.kernel,
                grid=launch.grid,
                block=launch.block,
                parameters_address=packed.pointers_address,
                shared_bytes=launch.shared_bytes,
                resident_blocks=cap,
                cooperative=launch.cooperative,
                seed=self._device.seed,
                weak_stores=self._device.weak_stores,
                shuffled_dispatch=self._device.seed != 0,
                earlier_launches=in_use,
                time_limit_s=self._device.time_limit_s,
            )
        except EmulatedFault as fault:
            if fault.detector != "deadlock":
                raise
            sms = self._device.facts.sm_count
            meet = f"{launch.barrier_members} of a row meet" if launch.barrier_members else "all of them may meet"
            plan = (
                f"the plan: rows {launch.first_row} to {launch.first_row + launch.rows - 1} in {launch.grid} blocks "
                f"({meet}); {self._device.facts.name} holds {cap} ({cap // sms} per SM x {sms} SMs)"
            )
            raise EmulatedFault(replace(fault.finding, message=f"{fault.finding.message}; {plan}")) from fault

    def check(self, submitted: object, waited: object = None) -> None:
        """A fault has already been raised where it happened."""

    def run(self) -> None:
        self._submit()

    def prepare(self) -> None:
        if self.submission == "graph":
            started = time.perf_counter_ns()
            self.submit()
            self.graph_timings = GraphTimings(self._build_ns, 0, 0, time.perf_counter_ns() - started)

    def topology(self) -> Topology | None:
        """There is no driver here that holds a graph, and so nothing to read back."""
        return None

    def counted_bytes(self) -> tuple[tuple[int, int], ...]:
        return tuple((stats.bytes_read, stats.bytes_written) for stats in self.launch_stats)

    def __enter__(self) -> "EmulatedExecutable":
        return self

    def __exit__(self, *_: object) -> None:
        self._steps.clear()


def _used_by_running(before: Sequence[Launch], addresses: Mapping[str, int]) -> dict[int, int]:
    """What the launches before a programmatic one do with which address, as far as they may still run: those back to
    the latest that was not programmatic itself.
    """
    used: dict[int, int] = {}
    for launch in reversed(before):
        for transfers, use in ((launch.reads, EARLIER_READS), (launch.writes, EARLIER_WRITES)):
            for address in (addresses[transfer.quantity] for transfer in transfers):
                used[address] = used.get(address, 0) | use
        if not launch.programmatic:
            break
    return used


def _nothing() -> None:
    """Everything submitted has already finished."""


class HostStopwatch:
    """The host's clock: an emulated launch runs on the host. See ``face.Stopwatch``."""

    def __init__(self) -> None:
        self._started = self._stopped = 0

    def __enter__(self) -> "HostStopwatch":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        self._started = time.perf_counter_ns()

    def stop(self) -> None:
        self._stopped = time.perf_counter_ns()

    def wait(self) -> None:
        pass

    def elapsed_ns(self) -> float:
        return float(self._stopped - self._started)


class Emulator:
    """See ``face.Device``.

    Args:
        gpu: a name of ``limits.NAMED_GPUS``, whose residency limits decide caps and splits.
        sms: SMs instead of that GPU's own.
        seed: 0 runs blocks depth first; every other seed is another interleaving.
        weak_stores: other blocks see published values only after a release.
        time_limit_s: processor time after which a launch counts as an endless loop.
        build_options: how kernels are built; the usual way unless given.
    """

    def __init__(
        self,
        gpu: str = DEFAULT_GPU,
        *,
        sms: int | None = None,
        seed: int = 0,
        weak_stores: bool = False,
        time_limit_s: float = 20.0,
        build_options: BuildOptions | None = None,
    ) -> None:
        find_compiler()  # fails at once, with the way out, where there is none
        self.facts: DeviceFacts = named_facts(gpu, sms=sms)
        self.seed = seed
        self.weak_stores = weak_stores
        self.time_limit_s = time_limit_s
        self._build_options = build_options
        self._memory = GuardedMemory()

    def build(self, source: Path, kernel_names: tuple[str, ...]) -> EmulatedModule:
        resources = compiled_resources(source, kernel_names, self.facts.arch)
        built = build(source, kernel_names, options=self._build_options)
        return EmulatedModule(Library(built, self._memory), resources)

    def blocks_per_sm(self, kernel: Kernel, threads: int, shared_bytes: int) -> int:
        return offline_blocks_per_sm(self.facts, kernel.resources, threads, shared_bytes)

    def require_library(self, library: str) -> str:
        raise PlanError(f"{library} runs on a GPU alone, and this is the emulator")

    def allocate(self, nbytes: int, name: str) -> EmulatedBuffer:
        return EmulatedBuffer(self._memory, nbytes, name)

    def executable(
        self, plan: Plan, kernels: Mapping[str, Kernel], addresses: Mapping[str, int], submission: Submission
    ) -> EmulatedExecutable:
        return EmulatedExecutable(self, plan, kernels, addresses, submission)

    def stopwatch(self) -> HostStopwatch:
        return HostStopwatch()

    def read_state(self) -> DeviceState:
        return DeviceState()

    def peek(self, buffer: Buffer) -> NDArray[np.uint32]:
        words = min(buffer.nbytes // 4, _PEEK_WORDS)
        return np.asarray(buffer.read(np.uint32, (words,)), np.uint32)

    def __enter__(self) -> "Emulator":
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()
