"""Verifies many variants, shapes and fixtures, one after the other."""

from collections.abc import Iterator, Sequence

from megakernel.device.face import Device
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import ALL_FIXTURES
from megakernel.record.plan import Submission
from megakernel.record.verification import Result
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.run.verify import Inputs, verify
from megakernel.run.watchdog import Watchdog
from megakernel.variants.declaration import Configuration, Variant

__all__ = ["Result", "fixture_names", "verify_all"]


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
    watchdog_s: float = 30.0,
) -> Iterator[Result]:
    """Yields each verification as it is done.

    Raises:
        UsageError: no fixture has that name.
        CompileError, PlanError, DeviceError: a variant cannot be run at all.
    """
    watchdog = Watchdog(save=lambda message: None)
    for problem in problems:
        with Operands(device, problem) as operands:
            for fixture in fixture_names(fixtures):
                inputs = Inputs.of(fixture, problem)
                inputs.load(operands)
                for variant in variants:
                    with prepare(device, store, variant, operands, configuration) as prepared:
                        guard = watchdog.guard(prepared, watchdog_s)
                        for submission in submissions:
                            with prepared.executable(submission) as executable:
                                verification = verify(prepared, executable, inputs, guard)
                                yield Result(device.facts, prepared.plan, submission, verification)
