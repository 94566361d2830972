"""Plans a variant's launches: how many blocks fit, and which rows go into which launch."""

from collections.abc import Mapping, Sequence

from megakernel.device.face import Kernel, Planner
from megakernel.errors import PlanError
from megakernel.operator.contract import Problem
from megakernel.record.plan import Allocation, Argument, Launch, Plan, Pointer, Residency, Transfer, Value
from megakernel.variants.declaration import Access, Configuration, Stage, Variant

_LARGEST_GRID = 2**31 - 1
_PROGRAMMATIC_SINCE = (9, 0)


def residency(
    device: Planner, kernel: Kernel, stage: Stage, problem: Problem, configuration: Configuration
) -> Residency:
    """How many blocks of a stage's kernel the device holds at once, asked of the kernel that is launched."""
    threads = stage.block_threads(configuration)
    shared_bytes = stage.shared_bytes(configuration)
    blocks_per_sm = device.blocks_per_sm(kernel, threads, shared_bytes)
    cap = blocks_per_sm * device.facts.sm_count
    per_row = stage.blocks_per_row(problem, configuration)
    return Residency(
        resources=kernel.resources,
        threads=threads,
        shared_bytes=shared_bytes,
        blocks_per_sm=blocks_per_sm,
        sm_count=device.facts.sm_count,
        rows_per_launch=cap // per_row if stage.cooperative else -1,
    )


def split_rows(rows: int, rows_per_launch: int) -> tuple[tuple[int, int], ...]:
    """Row groups of at most ``rows_per_launch`` rows, as equal as possible: pairs (first row, rows)."""
    groups = -(-rows // rows_per_launch)
    short, longer = divmod(rows, groups)
    sizes = [short + 1] * longer + [short] * (groups - longer)
    return tuple((sum(sizes[:i]), size) for i, size in enumerate(sizes))


def make_plan(
    device: Planner,
    kernels: Mapping[str, Kernel],
    variant: Variant,
    problem: Problem,
    configuration: Configuration,
) -> Plan:
    """Plans every launch.

    Raises:
        PlanError: a block does not fit the device, a single row needs more blocks than can be resident at once
            (nothing is shrunk to fit), or a library is missing.
    """
    for library in variant.libraries:
        device.require_library(library)
    if any(stage.programmatic for stage in variant.stages) and device.facts.capability < _PROGRAMMATIC_SINCE:
        raise PlanError(
            f"{variant.name}: programmatic dependent launch needs compute capability 9.0, and "
            f"{device.facts.name} has {device.facts.compute_capability}"
        )
    residencies = tuple(
        residency(device, kernels[stage.kernel_name(problem, configuration)], stage, problem, configuration)
        for stage in variant.kernel_stages
    )
    rows_per_launch = problem.rows
    for stage, room in zip(variant.kernel_stages, residencies, strict=True):
        if room.blocks_per_sm == 0:
            raise PlanError(
                f"{variant.name} {configuration}: not one block of {room.resources.name} fits an SM of "
                f"{device.facts.name} ({room.threads} threads, {room.resources.registers} registers each, "
                f"{room.shared_bytes} bytes of shared memory)"
            )
        per_row = stage.blocks_per_row(problem, configuration)
        if room.rows_per_launch == 0:
            raise PlanError(
                f"{variant.name} {configuration}: one row of {problem.width} needs {per_row} blocks at once, but "
                f"{device.facts.name} holds {room.cap} ({room.blocks_per_sm} per SM x {room.sm_count} SMs): "
                f"take a larger tile or another variant"
            )
        if room.rows_per_launch > 0:
            rows_per_launch = min(rows_per_launch, room.rows_per_launch)
        rows_per_launch = min(rows_per_launch, max(1, _LARGEST_GRID // per_row))
    launches = tuple(
        _launch(stage, problem, configuration, first_row, rows)
        for first_row, rows in split_rows(problem.rows, rows_per_launch)
        for stage in variant.stages
    )
    allocations = tuple(
        Allocation(
            quantity.name,
            problem.rows * quantity.row_bytes(problem, configuration.tile),
            holds_state=not quantity.components,
        )
        for quantity in variant.quantities
    )
    return Plan(variant.name, problem, configuration, launches, allocations, residencies)


def scalar_values(problem: Problem, tile: int) -> dict[str, float]:
    """The value of every scalar that a stage may declare, by name."""
    return {
        "width": problem.width,
        "tiles": problem.tiles(tile),
        "inverse_width": 1 / problem.width,
        "eps": problem.eps,
    }


def _launch(stage: Stage, problem: Problem, configuration: Configuration, first_row: int, rows: int) -> Launch:
    scalars = scalar_values(problem, configuration.tile)
    arguments: list[Argument] = [
        Pointer(quantity.name, first_row * quantity.row_bytes(problem, configuration.tile))
        for quantity in stage.quantities
    ]
    for scalar in stage.scalars:
        if scalar.value is None and scalar.name not in scalars:
            known = ", ".join(scalars)
            raise PlanError(f"{stage.kernel}: no scalar is called {scalar.name!r}; there are {known}")
        value = scalars[scalar.name] if scalar.value is None else scalar.value
        arguments.append(Value(scalar.name, scalar.dtype, value))
    per_row = stage.blocks_per_row(problem, configuration)
    return Launch(
        kernel=stage.kernel_name(problem, configuration),
        grid=stage.blocks(rows, problem, configuration),
        block=stage.block_threads(configuration),
        shared_bytes=stage.shared_bytes(configuration),
        cooperative=stage.cooperative,
        arguments=tuple(arguments),
        first_row=first_row,
        rows=rows,
        barrier_members=per_row if stage.barrier == "row" else 0,
        programmatic=stage.programmatic,
        library=stage.library,
        reads=_transfers(stage, stage.reads, rows, problem, configuration),
        writes=_transfers(stage, stage.writes, rows, problem, configuration),
    )


def _transfers(
    stage: Stage, accesses: Sequence[Access], rows: int, problem: Problem, configuration: Configuration
) -> tuple[Transfer, ...]:
    moved = (Transfer(a.quantity.name, rows * stage.row_bytes(a, problem, configuration)) for a in accesses)
    return tuple(transfer for transfer in moved if transfer.nbytes)
