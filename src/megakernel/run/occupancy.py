"""How many blocks of each kernel a device holds at once, what limits them, and what that makes of the launches."""

from collections.abc import Sequence

from megakernel.device.face import Device
from megakernel.device.limits import blocks_by_resource, limiting_resources
from megakernel.operator.contract import Problem
from megakernel.run.plan import residency, split_rows
from megakernel.run.prepare import KernelStore
from megakernel.variants.declaration import Configuration, Variant


def occupancy_records(
    device: Device,
    store: KernelStore,
    variants: Sequence[Variant],
    rows: Sequence[int],
    width: int,
    configuration: Configuration | None = None,
) -> list[dict[str, object]]:
    """One record for each stage of each variant, ready for JSON.

    ``rows_per_launch`` is None where blocks never wait for each other; ``launches`` maps a row count to the
    launches of this stage, or to None where not even one row fits.
    """
    records: list[dict[str, object]] = []
    for variant in variants:
        chosen = configuration or variant.default_configuration(rows[0])
        problem = Problem(rows[0], width)
        kernels = store.module(variant, problem, chosen).kernels
        for stage in variant.stages:
            room = residency(device, kernels[stage.kernel_name(problem, chosen)], stage, problem, chosen)
            records.append(
                {
                    "device": device.facts.name,
                    "variant": variant.name,
                    "kernel": room.resources.name,
                    "threads": room.threads,
                    "tile": chosen.tile,
                    "registers": room.resources.registers,
                    "spill_store_bytes": room.resources.spill_store_bytes,
                    "static_shared_bytes": room.resources.static_shared_bytes,
                    "dynamic_shared_bytes": room.shared_bytes,
                    "blocks_per_sm": room.blocks_per_sm,
                    "limited_by": limiting_resources(
                        blocks_by_resource(device.facts, room.resources, room.threads, room.shared_bytes)
                    ),
                    "sm_count": room.sm_count,
                    "cap": room.cap,
                    "rows_per_launch": None if room.rows_per_launch < 0 else room.rows_per_launch,
                    "launches": {str(count): _launches(count, room.rows_per_launch) for count in rows},
                }
            )
    return records


def _launches(rows: int, rows_per_launch: int) -> int | None:
    if rows_per_launch < 0:
        return 1
    return len(split_rows(rows, rows_per_launch)) if rows_per_launch else None
