"""From a variant to something that runs: compiled, planned and given memory."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from megakernel.device.face import Buffer, Device, Executable, Kernel, Module, Planner
from megakernel.device.sources import kernel_folder
from megakernel.errors import PlanError
from megakernel.operator.contract import Problem
from megakernel.record.plan import Plan, Submission
from megakernel.run.plan import make_plan
from megakernel.variants.declaration import Configuration, Variant, X, Y
from megakernel.variants.frozen import FrozenTable, shipped

Float32 = NDArray[np.float32]


class KernelStore:
    """Compiles each (source, kernels) once per session and owns the loaded modules.

    Args:
        folder: where relative sources lie; the shipped kernel folder unless told otherwise.
    """

    def __init__(self, device: Planner, folder: Path | None = None) -> None:
        self._device = device
        self._folder = folder or kernel_folder()
        self._modules: dict[tuple[Path, tuple[str, ...]], Module] = {}

    def module(self, variant: Variant, problem: Problem, configuration: Configuration) -> Module:
        key = (variant.source_path(self._folder), variant.kernel_names(problem, configuration))
        if key not in self._modules:
            self._modules[key] = self._device.build(*key)
        return self._modules[key]

    def __enter__(self) -> "KernelStore":
        return self

    def __exit__(self, *_: object) -> None:
        for module in self._modules.values():
            module.close()
        self._modules.clear()


class Operands:
    """Input and output of one problem, shared by all that compute it."""

    def __init__(self, device: Device, problem: Problem) -> None:
        self.problem = problem
        nbytes = 4 * problem.elements
        self.x = device.allocate(nbytes, "x")
        try:
            self.y = device.allocate(nbytes, "y")
        except BaseException:
            self.x.close()
            raise

    def __enter__(self) -> "Operands":
        return self

    def __exit__(self, *_: object) -> None:
        self.y.close()
        self.x.close()


def configuration_for(
    device: Planner, store: KernelStore, variant: Variant, problem: Problem, frozen: FrozenTable | None = None
) -> Configuration:
    """The frozen configuration. On a device that the table does not know: that of the nearest device, or where it does
    not fit, the first of the variant's that does.

    Args:
        frozen: the shipped table unless given.

    Raises:
        PlanError: none fits; said of the first.
        CompileError: see that stage.
    """
    facts, table = device.facts, frozen or shipped()
    first = table.suggestion(variant, facts.label, facts.sm_count, problem.rows)
    if table.knows(facts.label, facts.sm_count):
        return first
    for library in variant.libraries:
        device.require_library(library)
    refusal: PlanError | None = None
    for configuration in dict.fromkeys((first, *variant.configurations)):
        try:
            make_plan(device, store.module(variant, problem, configuration).kernels, variant, problem, configuration)
        except PlanError as error:
            refusal = refusal or error
        else:
            return configuration
    assert refusal is not None
    raise refusal


@dataclass(frozen=True)
class Prepared:
    """A variant with its plan and memory. Scratch is its own; ``buffers`` holds the operands too, by name."""

    device: Device
    variant: Variant
    plan: Plan
    kernels: Mapping[str, Kernel]
    buffers: Mapping[str, Buffer]
    provenance: Mapping[str, str]
    _owned: ExitStack

    @property
    def addresses(self) -> dict[str, int]:
        return {name: buffer.address for name, buffer in self.buffers.items()}

    def reset_state(self) -> None:
        """Zeroes barrier words, as they were before the first launch: a launch that failed leaves them half used."""
        for allocation in self.plan.allocations:
            if allocation.holds_state:
                self.buffers[allocation.quantity].fill(0)

    def executable(self, submission: Submission) -> Executable:
        """Ready to run; a graph is neither audited nor uploaded yet."""
        return self.device.executable(self.plan, self.kernels, self.addresses, submission)

    def __enter__(self) -> "Prepared":
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.close()


def prepare(
    device: Device,
    store: KernelStore,
    variant: Variant,
    operands: Operands,
    configuration: Configuration | None = None,
    *,
    frozen: FrozenTable | None = None,
    plan_filter: Callable[[Plan], Plan] | None = None,
) -> Prepared:
    """Compiles, plans and allocates.

    Args:
        configuration: the table's for this row count unless given.
        frozen: the shipped table unless given.
        plan_filter: changes the plan before anything is bound to it; tests use it to plan what must fail.

    Raises:
        CompileError, PlanError, DeviceError: see those stages.
    """
    problem = operands.problem
    configuration = configuration or configuration_for(device, store, variant, problem, frozen)
    module = store.module(variant, problem, configuration)
    plan = make_plan(device, module.kernels, variant, problem, configuration)
    if plan_filter:
        plan = plan_filter(plan)
    buffers: dict[str, Buffer] = {X.name: operands.x, Y.name: operands.y}
    with ExitStack() as stack:
        for allocation in plan.allocations:
            if allocation.quantity in buffers:
                continue
            buffer = device.allocate(allocation.nbytes, allocation.quantity)
            stack.callback(buffer.close)
            buffers[allocation.quantity] = buffer
        libraries = {library: device.require_library(library) for library in variant.libraries}
        provenance = {**module.provenance, **libraries}
        prepared = Prepared(device, variant, plan, module.kernels, buffers, provenance, stack)
        prepared.reset_state()
        return replace(prepared, _owned=stack.pop_all())


def read_values(prepared: Prepared, quantity_name: str) -> dict[str, Float32]:
    """What a quantity's buffer holds, as float32: one array for each of its components, shaped like the reference."""
    problem, tile = prepared.plan.problem, prepared.plan.configuration.tile
    quantity = next(q for q in (*prepared.variant.quantities, Y) if q.name == quantity_name)
    per_row = quantity.values_per_row(problem, tile)
    shape = (problem.rows, per_row, quantity.words)
    values = prepared.buffers[quantity_name].read(np.float32, shape)
    out: dict[str, Float32] = {}
    for position, component in enumerate(quantity.components):
        array = np.ascontiguousarray(values[:, :, position], np.float32)
        out[component] = array[:, 0] if quantity.per == "row" else array
    return out
