"""Verifies an executable: nothing is timed that has not passed here.

Outputs and scratch are poisoned, the executable runs, and every quantity that a stage writes is held against
the float64 reference. Then the input is changed in place and the executable runs twice more, so that whatever
it kept of the first input shows. A graph is audited before it first runs.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from megakernel.device.face import Device, Executable
from megakernel.errors import KernelFault
from megakernel.operator.checks import POISON, Check, check_quantity
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import ALL_FIXTURES, TIMING_SEED, hashed, make
from megakernel.operator.reference import Reference
from megakernel.operator.tolerances import LIBRARY_OUTPUT
from megakernel.record.plan import Plan, Submission
from megakernel.record.verification import Result, Verification
from megakernel.run.graph import audit, expected_topology
from megakernel.run.prepare import KernelStore, Operands, Prepared, prepare, read_values
from megakernel.run.watchdog import Guard, Watchdog, unguarded
from megakernel.variants.declaration import Configuration, Variant, Y
from megakernel.variants.frozen import FrozenTable

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Inputs:
    """The input to verify with, another one to change it to, and the reference of each."""

    fixture: str
    reference: Reference
    changed: Reference

    @classmethod
    def of(cls, fixture: str, problem: Problem) -> "Inputs":
        changed = hashed(problem.rows, problem.width, seed=TIMING_SEED + 1)
        return cls(fixture, Reference(make(fixture, problem), problem), Reference(changed, problem))

    def load(self, operands: Operands) -> None:
        operands.x.write(self.reference.x)


def verify(
    prepared: Prepared,
    executable: Executable,
    inputs: Inputs,
    guard: Guard = unguarded,
    *,
    changing_input: bool = True,
) -> Verification:
    """Verifies before timing. The input buffer holds ``inputs.reference.x`` before and after.

    A kernel fault is a failed check, and the end of the verification.

    Args:
        changing_input: also run after the input has changed in place. The pilot leaves that to the session.
    """
    try:
        return _verify(prepared, executable, inputs, guard, changing_input)
    except KernelFault as fault:
        prepared.reset_state()
        return Verification(inputs.fixture, (Check(f"launch.{fault.detector}", False, 1.0, 0.0, str(fault)),))


def _verify(
    prepared: Prepared, executable: Executable, inputs: Inputs, guard: Guard, changing_input: bool
) -> Verification:
    checks: list[Check] = []
    topology = executable.topology()
    if topology is not None:
        checks.append(_audit_check(prepared, executable))
        if not checks[0].passed:
            return Verification(inputs.fixture, tuple(checks))
    with guard("first run"):
        executable.prepare()
    result = run_and_check(prepared, executable, inputs, guard)
    checks += result.checks
    if not changing_input:
        return replace(result, checks=tuple(checks))
    x = prepared.buffers["x"]
    x.write(inputs.changed.x)
    try:
        for replay in (1, 2):
            checks += [
                replace(check, name=f"changed_input_{replay}.{check.name}")
                for check in _run_poisoned(prepared, executable, inputs.changed, guard)[1]
            ]
    finally:
        x.write(inputs.reference.x)
    return replace(result, checks=tuple(checks))


def run_and_check(prepared: Prepared, executable: Executable, inputs: Inputs, guard: Guard = unguarded) -> Verification:
    """Poisons outputs and scratch, runs once and checks: also what is done once more after timing."""
    values, checks = _run_poisoned(prepared, executable, inputs.reference, guard)
    checks += _bytes_checks(prepared.plan, executable.counted_bytes())
    y = values.get("y")
    return Verification(
        fixture=inputs.fixture,
        checks=tuple(checks),
        output_sha256=hashlib.sha256(y.tobytes()).hexdigest() if y is not None else "",
        output_row=y[-1].copy() if y is not None else None,
        output_row_index=prepared.plan.problem.rows - 1,
        intermediates={n: v for n, v in values.items() if n.startswith(("tile_", "row_"))},
    )


def _audit_check(prepared: Prepared, executable: Executable) -> Check:
    topology = executable.topology()
    assert topology is not None
    expected = expected_topology(prepared.plan, prepared.kernels, prepared.addresses)
    faults = audit(topology, expected)
    detail = "; ".join(faults) or f"{len(topology.nodes)} nodes, {len(topology.edges)} edges"
    return Check("graph.audit", not faults, float(len(faults)), 0.0, detail)


def _bytes_checks(plan: Plan, counted: Sequence[tuple[int, int]] | None) -> Iterator[Check]:
    """Whether the launches moved the bytes that the variant declares, where the device counts them."""
    if counted is None:
        return
    read, written = zip(*counted, strict=True)
    for what, moved, declared in (
        ("read", read, [launch.reads for launch in plan.launches]),
        ("written", written, [launch.writes for launch in plan.launches]),
    ):
        nbytes = [sum(transfer.nbytes for transfer in transfers) for transfers in declared]
        wrong = [
            f"launch {number} ({launch.kernel}) declares {expected} bytes {what}, and moved {found}"
            for number, (launch, expected, found) in enumerate(zip(plan.launches, nbytes, moved, strict=True), 1)
            if expected != found
        ]
        yield Check(f"bytes.{what}", not wrong, float(len(wrong)), 0.0, "; ".join(wrong[:3]))


def _run_poisoned(
    prepared: Prepared, executable: Executable, reference: Reference, guard: Guard
) -> tuple[dict[str, Float32], list[Check]]:
    """Runs once over poisoned memory; returns what was written, by reference name, and its checks."""
    variant = prepared.variant
    written = variant.written
    for quantity in written:
        prepared.buffers[quantity.name].fill(POISON)
    with guard("verification"):
        executable.run()
    if variant.computes == "nothing":
        return {}, [Check("launch.completes", True, 0.0, 0.0, "")]
    values: dict[str, Float32] = {}
    checks: list[Check] = []
    tile = prepared.plan.configuration.tile
    for quantity in written:
        for name, array in read_values(prepared, quantity.name).items():
            values[name] = array
            if variant.computes == "softmax":
                by_library = variant.libraries and quantity == Y
                checks += check_quantity(name, array, reference, tile, LIBRARY_OUTPUT if by_library else None)
    if variant.computes == "copy":
        wrong = int(np.count_nonzero(values["y"].view(np.uint32) != reference.x.view(np.uint32)))
        checks.append(Check("y.copied", wrong == 0, float(wrong), 0.0, f"{wrong} values differ from x"))
    return values, checks


def fixture_names(names: Sequence[str]) -> list[str]:
    """The names given, each once, with ``all`` standing for every fixture."""
    return list(dict.fromkeys(n for name in names for n in (ALL_FIXTURES if name == "all" else [name])))


def verify_all(
    device: Device,
    store: KernelStore,
    variants: Sequence[Variant],
    problems: Sequence[Problem],
    fixtures: Sequence[str],
    submissions: Sequence[Submission],
    configuration: Configuration | None = None,
    *,
    frozen: FrozenTable | None = None,
    watchdog_s: float = 30.0,
) -> Iterator[Result]:
    """Yields each verification as it is done, in the ``frozen`` (or shipped) table's configuration unless one is given.

    Raises:
        UsageError: no fixture has that name.
        CompileError, PlanError, DeviceError: a variant cannot be run at all.
    """
    watchdog = Watchdog(save=lambda message: "")
    for problem in problems:
        with Operands(device, problem) as operands:
            for fixture in fixture_names(fixtures):
                inputs = Inputs.of(fixture, problem)
                inputs.load(operands)
                for variant in variants:
                    with prepare(device, store, variant, operands, configuration, frozen=frozen) as prepared:
                        guard = watchdog.guard(prepared, watchdog_s)
                        for submission in submissions:
                            with prepared.executable(submission) as executable:
                                verification = verify(prepared, executable, inputs, guard)
                                yield Result(device.facts, prepared.plan, submission, verification)
