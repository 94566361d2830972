"""Traces when each launch of a graph began and ended, by the device's own clock.

The traced kernels are the shipped ones with two things added to each source: a parameter for where to write, and an
object that stamps its own beginning and end (``cuda/trace.cuh``). What an instrumented build takes is no measurement
of the kernel; it shows the order of launches.
"""

import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from megakernel.device.face import Device
from megakernel.device.sources import kernel_folder
from megakernel.errors import UsageError
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import make
from megakernel.record.plan import Allocation, Launch, Plan, Pointer, Submission
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.variants.declaration import Configuration, Variant

_SPANS = "launch_spans"
_SPAN_BYTES = 16  # as LaunchSpan in cuda/trace.cuh
_KERNEL = re.compile(r"(__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?\w+\()([^)]*)(\)\s*\{)")


@dataclass(frozen=True)
class Span:
    """One launch, in nanoseconds since the first began.

    Attributes:
        programmatic: it may begin before the launch in front of it has ended.
    """

    kernel: str
    first_row: int
    rows: int
    begin_ns: int
    end_ns: int
    programmatic: bool


def instrumented(source: str) -> str:
    """The source with every kernel stamping its begin and end.

    Raises:
        UsageError: it has none, or one that is written in another form.
    """

    def add(found: re.Match[str]) -> str:
        opening, parameters, body = found.groups()
        comma = ", " if parameters.strip() else ""
        return f"{opening}{parameters}{comma}LaunchSpan* launch_span{body} const LaunchStamp launch_stamp(launch_span);"

    text, kernels = _KERNEL.subn(add, source)
    if kernels != len(re.findall(r"\b__global__\b", source)) or not kernels:
        raise UsageError(
            f"{kernels} kernels to trace were found: each is to be written as "
            "__global__ void [__launch_bounds__(…)] name(parameters) { … }, without parentheses inside either"
        )
    return f'#include "trace.cuh"\n{text}'


def trace(
    device: Device,
    variant: Variant,
    problem: Problem,
    configuration: Configuration | None = None,
    submission: Submission = "graph",
) -> tuple[Span, ...]:
    """Runs the variant, built of instrumented kernels, once warm and once more for its spans. Launches of a library are
    not traced.

    Raises:
        UsageError: the source has no kernel.
        CompileError, PlanError, DeviceError: see those stages.
    """
    source = variant.source_path(kernel_folder())
    with tempfile.TemporaryDirectory(prefix="megakernel-trace-") as name:
        folder = Path(name)
        for header in source.parent.glob("*.cuh"):  # found beside the source, as before
            shutil.copy(header, folder)
        traced = folder / source.name
        traced.write_text(instrumented(source.read_text()))
        with (
            KernelStore(device) as store,
            Operands(device, problem) as operands,
            prepare(
                device, store, replace(variant, source=str(traced)), operands, configuration, plan_filter=_with_spans
            ) as prepared,
            prepared.executable(submission) as executable,
        ):
            operands.x.write(make("timing", problem))
            executable.prepare()
            executable.run()
            prepared.reset_state()
            executable.run()
            launches = prepared.plan.launches
            words = prepared.buffers[_SPANS].read(np.uint64, (len(launches), 2))
    return _spans(launches, [(~int(begin) & (2**64 - 1), int(end)) for begin, end in words])


def _with_spans(plan: Plan) -> Plan:
    launches = tuple(
        replace(launch, arguments=(*launch.arguments, Pointer(_SPANS, _SPAN_BYTES * position)))
        if not launch.library
        else launch
        for position, launch in enumerate(plan.launches)
    )
    allocation = Allocation(_SPANS, _SPAN_BYTES * len(launches), holds_state=True)
    return replace(plan, launches=launches, allocations=(*plan.allocations, allocation))


def _spans(launches: tuple[Launch, ...], times_ns: list[tuple[int, int]]) -> tuple[Span, ...]:
    traced = [(launch, times) for launch, times in zip(launches, times_ns, strict=True) if not launch.library]
    first_ns = min(begin for _, (begin, _) in traced)
    return tuple(
        Span(launch.kernel, launch.first_row, launch.rows, begin - first_ns, end - first_ns, launch.programmatic)
        for launch, (begin, end) in traced
    )


def out_of_order(spans: tuple[Span, ...]) -> list[str]:
    """Every launch that began before the one in front of it had ended, unless it may; or ended before that one."""
    faults = []
    for position, (before, after) in enumerate(pairwise(spans)):
        if not after.programmatic and after.begin_ns < before.end_ns:
            faults.append(
                f"launch {position + 1} ({after.kernel}) began {before.end_ns - after.begin_ns} ns before "
                f"launch {position} ({before.kernel}) had ended"
            )
        elif after.end_ns < before.end_ns:
            faults.append(f"launch {position + 1} ({after.kernel}) ended before launch {position} ({before.kernel})")
    return faults
