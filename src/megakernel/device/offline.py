"""What is known of a named GPU without having one: enough to compile for it and to plan, not to run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from megakernel.device.face import Kernel
from megakernel.device.limits import blocks_by_resource
from megakernel.device.resource_table import recorded_resources
from megakernel.errors import MissingError, PlanError
from megakernel.record.facts import DeviceFacts, KernelResources


def compiled_resources(source: Path, kernel_names: tuple[str, ...], arch: str) -> Mapping[str, KernelResources]:
    """What kernels take, from machine code for ``arch``; as recorded where NVRTC is not installed.

    Raises:
        CompileError: with NVRTC's log.
        MissingError: NVRTC is not installed, and the kernels are not among those recorded.
    """
    if not source.is_file():
        raise MissingError(f"{source}: no such kernel source")
    try:
        from megakernel.device.cubins import cubin_for

        return cubin_for(source, kernel_names, arch).resources
    except (ImportError, MissingError) as missing:
        try:
            return recorded_resources(source, kernel_names, arch)
        except MissingError as error:
            raise error from missing


def offline_blocks_per_sm(facts: DeviceFacts, resources: KernelResources, threads: int, shared_bytes: int) -> int:
    """Blocks of a kernel that one SM holds, computed.

    Raises:
        PlanError: a block needs more shared memory than a block may have.
    """
    total = shared_bytes + resources.static_shared_bytes
    if total > facts.shared_bytes_per_block:
        raise PlanError(
            f"{resources.name} needs {total} bytes of shared memory in a block; "
            f"{facts.name} gives a block at most {facts.shared_bytes_per_block} (after opting in)"
        )
    return min(blocks_by_resource(facts, resources, threads, shared_bytes).values())


@dataclass(frozen=True)
class OfflineKernel:
    """A kernel of which only the resources are known."""

    resources: KernelResources


@dataclass(frozen=True)
class OfflineModule:
    """See ``face.Module``."""

    kernels: Mapping[str, Kernel]
    provenance: Mapping[str, str] = field(default_factory=dict)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class OfflineGpu:
    """A GPU to plan for. See ``face.Planner``."""

    facts: DeviceFacts

    def build(self, source: Path, kernel_names: tuple[str, ...]) -> OfflineModule:
        resources = compiled_resources(source, kernel_names, self.facts.arch)
        return OfflineModule({name: OfflineKernel(values) for name, values in resources.items()})

    def require_library(self, library: str) -> str:
        raise PlanError(f"{library} runs on a GPU alone, and {self.facts.name} is not here")

    def blocks_per_sm(self, kernel: Kernel, threads: int, shared_bytes: int) -> int:
        return offline_blocks_per_sm(self.facts, kernel.resources, threads, shared_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
