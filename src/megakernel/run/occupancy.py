"""How many blocks of each kernel a device holds at once, what limits them, and what that makes of the launches."""

from collections.abc import Sequence
from dataclasses import dataclass

from megakernel.device.face import Planner
from megakernel.device.limits import (
    REGISTER_UNIT,
    RESERVED_SHARED_BYTES,
    blocks_by_resource,
    limiting_resources,
)
from megakernel.operator.contract import Problem
from megakernel.record.facts import DeviceFacts
from megakernel.record.plan import Residency
from megakernel.run.plan import residency, split_rows
from megakernel.run.prepare import KernelStore
from megakernel.variants.declaration import Configuration, Variant
from megakernel.variants.frozen import FrozenTable, shipped


@dataclass(frozen=True)
class Occupancy:
    """One stage of a variant in one configuration on one device.

    Attributes:
        blocks_by_resource: how many blocks each resource of an SM has room for.
        launches: for each row count, the launches of this stage; None where not even one row fits.
    """

    facts: DeviceFacts
    variant: str
    configuration: Configuration
    room: Residency
    barrier: str
    blocks_per_row: int
    blocks_by_resource: dict[str, int]
    launches: dict[int, int | None]

    @property
    def limited_by(self) -> str:
        return limiting_resources(self.blocks_by_resource)

    def record(self) -> dict[str, object]:
        """As a plain record, for JSON. ``rows_per_launch`` is None where blocks never wait for each other."""
        room, resources = self.room, self.room.resources
        return {
            "device": self.facts.name,
            "variant": self.variant,
            "kernel": resources.name,
            "threads": room.threads,
            "tile": self.configuration.tile,
            "registers": resources.registers,
            "spill_store_bytes": resources.spill_store_bytes,
            "static_shared_bytes": resources.static_shared_bytes,
            "dynamic_shared_bytes": room.shared_bytes,
            "blocks_per_sm": room.blocks_per_sm,
            "limited_by": self.limited_by,
            "sm_count": room.sm_count,
            "cap": room.cap,
            "rows_per_launch": None if room.rows_per_launch < 0 else room.rows_per_launch,
            "launches": {str(count): launches for count, launches in self.launches.items()},
        }


def occupancy_of(
    planner: Planner,
    store: KernelStore,
    variants: Sequence[Variant],
    rows: Sequence[int],
    width: int,
    configuration: Configuration | None = None,
    *,
    frozen: FrozenTable | None = None,
) -> list[Occupancy]:
    """For each variant, each configuration that it takes for one of the row counts, and each stage.

    Args:
        configuration: the table's for each row count unless given.
        frozen: the shipped table unless given.

    Raises:
        PlanError: a block is beyond a limit of the device.
    """
    found = []
    for variant in variants:
        by_configuration: dict[Configuration, list[int]] = {}
        for count in rows:
            own = (frozen or shipped()).suggestion(variant, planner.facts.label, planner.facts.sm_count, count)
            by_configuration.setdefault(configuration or own, []).append(count)
        for chosen, counts in by_configuration.items():
            problem = Problem(counts[0], width)
            kernels = store.module(variant, problem, chosen).kernels
            for stage in variant.kernel_stages:
                room = residency(planner, kernels[stage.kernel_name(problem, chosen)], stage, problem, chosen)
                found.append(
                    Occupancy(
                        planner.facts,
                        variant.name,
                        chosen,
                        room,
                        stage.barrier,
                        stage.blocks_per_row(problem, chosen),
                        blocks_by_resource(planner.facts, room.resources, room.threads, room.shared_bytes),
                        {count: _launches(count, room) for count in counts},
                    )
                )
    return found


def _launches(rows: int, room: Residency) -> int | None:
    if room.blocks_per_sm == 0 or room.rows_per_launch == 0:
        return None
    return 1 if room.rows_per_launch < 0 else len(split_rows(rows, room.rows_per_launch))


_BAR_BLOCKS = 32


def explanation(occupancy: Occupancy) -> list[str]:
    """The numbers of one kernel in words, with a bar for each resource: how many blocks it has room for."""
    facts, room = occupancy.facts, occupancy.room
    resources = room.resources
    warps = room.threads // 32
    per_warp = -(-resources.registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    shared = room.shared_bytes + resources.static_shared_bytes
    lines = [
        f"{occupancy.variant}: {resources.name} on {facts.name}",
        f"  A block has {room.threads} threads, that is {warps} warps of 32. A thread takes {resources.registers} "
        f"registers, so a warp is given {per_warp} and a block {warps * per_warp}.",
        f"  A block takes {shared} bytes of shared memory, and the driver keeps {RESERVED_SHARED_BYTES} more.",
        f"  One SM holds {facts.threads_per_sm} threads, {facts.blocks_per_sm} blocks, {facts.registers_per_sm} "
        f"registers and {facts.shared_bytes_per_sm} bytes of shared memory. So it has room for this many blocks:",
    ]
    least = min(occupancy.blocks_by_resource.values())
    for name, blocks in occupancy.blocks_by_resource.items():
        bar = "#" * min(blocks, _BAR_BLOCKS) + ("+" if blocks > _BAR_BLOCKS else "")
        lines.append(f"    {name:<13} {blocks:>4}  {bar}{'  <- the limit' if blocks == least else ''}")
    lines.append(
        f"  The scarcest decides: {room.blocks_per_sm} blocks per SM x {room.sm_count} SMs = {room.cap} blocks at once."
    )
    if occupancy.barrier == "none":
        lines.append("  Its blocks never wait for each other, so a launch may have more: the rest start later.")
    elif room.rows_per_launch:
        launches = ", ".join(f"{count} row{'s' if count > 1 else ''}: {n}" for count, n in occupancy.launches.items())
        lines.append(
            f"  Its blocks wait for each other, so all of a launch must be there at once. A row needs "
            f"{occupancy.blocks_per_row} blocks: {room.rows_per_launch} rows fit one launch. Launches for {launches}."
        )
    else:
        lines.append(
            f"  Its blocks wait for each other, and one row needs {occupancy.blocks_per_row}: more than fit. Refused."
        )
    return lines
