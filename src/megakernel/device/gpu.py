"""A GPU through the CUDA driver API."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from cuda.bindings import driver
from numpy.typing import NDArray

from megakernel.device.arguments import address_of
from megakernel.device.cubins import cubin_for
from megakernel.device.driver import call, initialise
from megakernel.device.face import Buffer, Executable, Kernel
from megakernel.device.gpu_executables import DirectLaunches, Graph
from megakernel.device.libraries import require_library
from megakernel.device.nvrtc import Cubin, nvrtc_version
from megakernel.device.telemetry import Telemetry
from megakernel.errors import DeviceError, MissingError, PlanError
from megakernel.record.facts import DeviceFacts, DeviceState, KernelResources
from megakernel.record.plan import Plan, Submission

_PEEK_WORDS = 16_384
_ATTRIBUTE = driver.CUdevice_attribute
_FUNCTION = driver.CUfunction_attribute


def read_facts(ordinal: int) -> DeviceFacts:
    """What the driver says of one GPU. Call ``driver.initialise`` first."""
    device = call(driver.cuDeviceGet, ordinal)

    def attribute(name: str) -> int:
        return int(call(driver.cuDeviceGetAttribute, getattr(_ATTRIBUTE, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    version = call(driver.cuDriverGetVersion)
    raw = bytes(call(driver.cuDeviceGetUuid, device).bytes).hex()
    return DeviceFacts(
        kind="gpu",
        name=call(driver.cuDeviceGetName, 256, device).split(b"\0")[0].decode(),
        uuid=f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}",
        compute_capability=f"{attribute('COMPUTE_CAPABILITY_MAJOR')}.{attribute('COMPUTE_CAPABILITY_MINOR')}",
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        memory_bytes=int(call(driver.cuDeviceTotalMem, device)),
        threads_per_sm=attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        blocks_per_sm=attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        registers_per_sm=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        shared_bytes_per_sm=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        shared_bytes_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        driver_version=f"{version // 1000}.{version % 1000 // 10}",
    )


def list_gpus() -> list[DeviceFacts]:
    """Every GPU that this process may use.

    Raises:
        MissingError: there is no driver or no GPU.
    """
    initialise()
    return [read_facts(ordinal) for ordinal in range(call(driver.cuDeviceGetCount))]


class GpuBuffer:
    """Global memory. See ``face.Buffer``."""

    def __init__(self, nbytes: int, stream: Any) -> None:
        self.nbytes = nbytes
        self._stream = stream
        self.address = int(call(driver.cuMemAlloc, max(4, nbytes)))

    def write(self, array: NDArray[np.generic]) -> None:
        contiguous = np.ascontiguousarray(array)
        if contiguous.nbytes > self.nbytes:
            raise PlanError(f"{contiguous.nbytes} bytes do not fit a buffer of {self.nbytes}")
        call(driver.cuMemcpyHtoDAsync, self.address, address_of(contiguous), contiguous.nbytes, self._stream)
        call(driver.cuStreamSynchronize, self._stream)

    def read(self, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[np.generic]:
        array = np.empty(shape, dtype)
        call(driver.cuMemcpyDtoHAsync, address_of(array), self.address, array.nbytes, self._stream)
        call(driver.cuStreamSynchronize, self._stream)
        return array

    def fill(self, word: int) -> None:
        call(driver.cuMemsetD32Async, self.address, word, self.nbytes // 4, self._stream)
        call(driver.cuStreamSynchronize, self._stream)

    def close(self) -> None:
        if self.address:
            driver.cuMemFree(self.address)  # its status would only repeat a fault that was already raised
            self.address = 0


class GpuKernel:
    """A kernel loaded on the GPU, with the shared memory that it has opted in to."""

    def __init__(self, function: Any, resources: KernelResources, shared_limit: int) -> None:
        self.function = function
        self.resources = resources
        self._shared_limit = shared_limit
        self._opted_in = 0

    def opt_in(self, shared_bytes: int) -> None:
        """Allows launches with that much dynamic shared memory.

        Raises:
            PlanError: it is more than a block may have.
        """
        total = shared_bytes + self.resources.static_shared_bytes
        if total > self._shared_limit:
            raise PlanError(
                f"{self.resources.name} needs {total} bytes of shared memory in a block; "
                f"this GPU gives a block at most {self._shared_limit} (after opting in)"
            )
        if shared_bytes > self._opted_in:
            name = _FUNCTION.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(driver.cuFuncSetAttribute, self.function, name, shared_bytes)
            self._opted_in = shared_bytes


class GpuModule:
    """A loaded cubin. See ``face.Module``."""

    def __init__(self, cubin: Cubin, shared_limit: int) -> None:
        self._module = call(driver.cuModuleLoadData, cubin.image)
        self.kernels: Mapping[str, Kernel] = {
            name: GpuKernel(
                call(driver.cuModuleGetFunction, self._module, resources.symbol.encode()),
                resources,
                shared_limit,
            )
            for name, resources in cubin.resources.items()
        }
        self.provenance: Mapping[str, str] = {
            "compiler": f"NVRTC {cubin.nvrtc_version}",
            "options": " ".join(cubin.options),
            "arch": cubin.arch,
        }

    def close(self) -> None:
        if self._module is not None:
            driver.cuModuleUnload(self._module)
            self._module = None


class GpuStopwatch:
    """Two CUDA events. See ``face.Stopwatch``."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._start = call(driver.cuEventCreate, 0)
        self._stop = call(driver.cuEventCreate, 0)

    def __enter__(self) -> "GpuStopwatch":
        return self

    def __exit__(self, *_: object) -> None:
        for event in (self._start, self._stop):
            driver.cuEventDestroy(event)  # its status would only repeat a fault that was already raised

    def start(self) -> None:
        call(driver.cuEventRecord, self._start, self._stream)

    def stop(self) -> None:
        call(driver.cuEventRecord, self._stop, self._stream)

    def wait(self) -> None:
        call(driver.cuEventSynchronize, self._stop)

    def elapsed_ns(self) -> float:
        return float(call(driver.cuEventElapsedTime, self._start, self._stop)) * 1e6


class Gpu:
    """One GPU's primary context, with a stream for work and a second one to look on. See ``face.Device``."""

    def __init__(self, ordinal: int) -> None:
        initialise()
        self.facts = read_facts(ordinal)
        self._device = call(driver.cuDeviceGet, ordinal)
        self._context = call(driver.cuDevicePrimaryCtxRetain, self._device)
        call(driver.cuCtxSetCurrent, self._context)
        non_blocking = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.stream = call(driver.cuStreamCreate, non_blocking)
        self._side_stream = call(driver.cuStreamCreate, non_blocking)
        # Page-locked before anything hangs: a copy into pageable memory could wait for the hung launch.
        self._peeked = np.zeros(_PEEK_WORDS, np.uint32)
        call(driver.cuMemHostRegister, address_of(self._peeked), self._peeked.nbytes, 0)
        self._telemetry = Telemetry(self.facts.uuid)

    def build(self, source: Path, kernel_names: tuple[str, ...]) -> GpuModule:
        self._require_driver_for(nvrtc_version())
        cubin = cubin_for(source, kernel_names, self.facts.arch)
        return GpuModule(cubin, self.facts.shared_bytes_per_block)

    def _require_driver_for(self, version: str) -> None:
        """Code of a newer minor version of CUDA runs on an older driver; of a newer major version it does not."""
        major = version.split(".")[0]
        if int(self.facts.driver_version.split(".")[0]) < int(major):
            raise MissingError(
                f"the driver is for CUDA {self.facts.driver_version}, and NVRTC {version} makes code for CUDA {major}: "
                f"update the driver, or install megakernel[cu{self.facts.driver_version.split('.')[0]}]"
            )

    def require_library(self, library: str) -> str:
        return require_library(library)

    def blocks_per_sm(self, kernel: Kernel, threads: int, shared_bytes: int) -> int:
        gpu_kernel = cast(GpuKernel, kernel)
        gpu_kernel.opt_in(shared_bytes)
        return int(call(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, gpu_kernel.function, threads, shared_bytes))

    def allocate(self, nbytes: int, name: str) -> Buffer:
        try:
            return GpuBuffer(nbytes, self.stream)
        except DeviceError as error:
            raise DeviceError(f"{error}; asked for {nbytes} bytes for {name}") from error

    def executable(
        self,
        plan: Plan,
        kernels: Mapping[str, Kernel],
        addresses: Mapping[str, int],
        submission: Submission,
    ) -> Executable:
        functions = {}
        for launch in plan.launches:
            if launch.library:
                continue
            kernel = cast(GpuKernel, kernels[launch.kernel])
            kernel.opt_in(launch.shared_bytes)
            functions[launch.kernel] = kernel.function
        kind = Graph if submission == "graph" else DirectLaunches
        return kind(plan, functions, addresses, self.stream)

    def stopwatch(self) -> GpuStopwatch:
        return GpuStopwatch(self.stream)

    def read_state(self) -> DeviceState:
        return self._telemetry.read()

    def peek(self, buffer: Buffer) -> NDArray[np.uint32]:
        call(driver.cuCtxSetCurrent, self._context)  # the caller is another thread
        nbytes = min(buffer.nbytes, self._peeked.nbytes)
        call(driver.cuMemcpyDtoHAsync, address_of(self._peeked), buffer.address, nbytes, self._side_stream)
        call(driver.cuStreamSynchronize, self._side_stream)
        return self._peeked[: nbytes // 4].copy()

    def __enter__(self) -> "Gpu":
        return self

    def __exit__(self, *_: object) -> None:
        driver.cuMemHostUnregister(address_of(self._peeked))
        for stream in (self.stream, self._side_stream):
            driver.cuStreamDestroy(stream)
        driver.cuDevicePrimaryCtxRelease(self._device)
