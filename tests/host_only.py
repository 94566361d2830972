"""The emulator without the GPU's machine code, which takes longest to make."""

from pathlib import Path

from megakernel.device.emulator import EmulatedModule, Emulator
from megakernel.device.emulator_library import Library
from megakernel.device.host_compiler import build
from megakernel.record.facts import KernelResources


class HostOnly(Emulator):
    """For tests to which a kernel's registers do not matter: every kernel seems to take 32 and no stack."""

    def build(self, source: Path, kernel_names: tuple[str, ...]) -> EmulatedModule:
        resources = {name: KernelResources(name, name, 32, 0, 0, 0, 0) for name in kernel_names}
        return EmulatedModule(Library(build(source, kernel_names), self._memory), resources)
