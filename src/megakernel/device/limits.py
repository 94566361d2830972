"""What an SM holds, by architecture, and how many blocks of a kernel that makes: occupancy without a GPU.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (threads, blocks, registers and shared memory of an SM,
shared memory of a block); CUDA Occupancy Calculator (registers are given to a warp in units of 256, each of an SM's
four partitions has a quarter of them; shared memory is given in units of 128 bytes, and the driver keeps 1 KiB of
each block's since compute capability 8.0).
"""

from dataclasses import dataclass

from megakernel.errors import UsageError
from megakernel.record.facts import DeviceFacts, KernelResources

REGISTER_UNIT = 256
_PARTITIONS = 4
_SHARED_UNIT = 128
RESERVED_SHARED_BYTES = 1024
_KIB = 1024


@dataclass(frozen=True)
class SmLimits:
    """Limits of one SM, and of one block's shared memory after opting in."""

    threads: int
    blocks: int
    registers: int
    shared_bytes: int
    shared_bytes_per_block: int


ARCHITECTURES: dict[str, SmLimits] = {
    "8.0": SmLimits(2048, 32, 65536, 164 * _KIB, 163 * _KIB),
    "8.6": SmLimits(1536, 16, 65536, 100 * _KIB, 99 * _KIB),
    "8.9": SmLimits(1536, 24, 65536, 100 * _KIB, 99 * _KIB),
    "9.0": SmLimits(2048, 32, 65536, 228 * _KIB, 227 * _KIB),
    "10.0": SmLimits(2048, 32, 65536, 228 * _KIB, 227 * _KIB),
    "12.0": SmLimits(1536, 24, 65536, 100 * _KIB, 99 * _KIB),
}


@dataclass(frozen=True)
class NamedGpu:
    """A product: its architecture, the SMs that it has enabled, its L2 and memory (vendor's architecture papers)."""

    name: str
    compute_capability: str
    sm_count: int
    l2_mib: int
    memory_gib: int


NAMED_GPUS: dict[str, NamedGpu] = {
    "a100": NamedGpu("NVIDIA A100", "8.0", 108, 40, 80),
    "h100": NamedGpu("NVIDIA H100 SXM", "9.0", 132, 50, 80),
    "h100-pcie": NamedGpu("NVIDIA H100 PCIe", "9.0", 114, 50, 80),
    "h200": NamedGpu("NVIDIA H200", "9.0", 132, 60, 141),
    "l40s": NamedGpu("NVIDIA L40S", "8.9", 142, 96, 48),
    "rtx4090": NamedGpu("NVIDIA GeForce RTX 4090", "8.9", 128, 72, 24),
    "b200": NamedGpu("NVIDIA B200", "10.0", 148, 126, 180),
}


# What `emulator` alone stands for.
DEFAULT_GPU = "h200"


def named_facts(name: str, *, sms: int | None = None) -> DeviceFacts:
    """The facts of a named GPU as its emulation shows them.

    Args:
        sms: SMs instead of the product's own, as MIG or MPS would leave.

    Raises:
        UsageError: no such name, or ``sms`` is not positive.
    """
    if name not in NAMED_GPUS:
        raise UsageError(f"unknown GPU {name!r}: choose from {', '.join(NAMED_GPUS)}")
    if sms is not None and sms < 1:
        raise UsageError(f"{sms} SMs: give at least 1")
    gpu = NAMED_GPUS[name]
    limits = ARCHITECTURES[gpu.compute_capability]
    return DeviceFacts(
        kind="emulator",
        name=gpu.name if sms is None else f"{gpu.name} with {sms} SMs",
        uuid="",
        compute_capability=gpu.compute_capability,
        sm_count=sms or gpu.sm_count,
        l2_bytes=gpu.l2_mib * 2**20,
        memory_bytes=gpu.memory_gib * 2**30,
        threads_per_sm=limits.threads,
        blocks_per_sm=limits.blocks,
        registers_per_sm=limits.registers,
        shared_bytes_per_sm=limits.shared_bytes,
        shared_bytes_per_block=limits.shared_bytes_per_block,
        driver_version="",
    )


def blocks_by_resource(
    facts: DeviceFacts, resources: KernelResources, threads: int, shared_bytes: int
) -> dict[str, int]:
    """How many blocks of a kernel each resource of one SM has room for. The least of them is the occupancy."""
    warps = -(-threads // 32)
    registers_per_warp = _round_up(resources.registers * 32, REGISTER_UNIT)
    warps_by_registers = facts.registers_per_sm // _PARTITIONS // registers_per_warp * _PARTITIONS
    shared_per_block = _round_up(shared_bytes + resources.static_shared_bytes + RESERVED_SHARED_BYTES, _SHARED_UNIT)
    return {
        "blocks": facts.blocks_per_sm,
        "threads": facts.threads_per_sm // (warps * 32),
        "registers": warps_by_registers // warps,
        "shared memory": facts.shared_bytes_per_sm // shared_per_block,
    }


def limiting_resources(by_resource: dict[str, int]) -> str:
    """The resources that set the occupancy, in words."""
    least = min(by_resource.values())
    return " and ".join(name for name, blocks in by_resource.items() if blocks == least)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
