"""Sweeps the caches: reads so large a buffer that little of anything else stays in L2.

That everything is cold afterwards is not guaranteed, and no figure here says so.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from megakernel.device.face import Device, Executable
from megakernel.operator.contract import BENCHMARK_WIDTH, Problem
from megakernel.record.facts import DeviceFacts
from megakernel.record.protocol import Protocol
from megakernel.run.plan import make_plan
from megakernel.run.prepare import KernelStore
from megakernel.variants.catalogue import SCRATCH, TILE_SUMS
from megakernel.variants.declaration import Configuration, Stage, Variant, X

# The buffer takes the place of x. Sums are written, so that the loads cannot be left out.
SWEEP = Variant(
    "sweep",
    source="unfused.cu",
    stages=(Stage("tile_sums<{threads}, {tile}, {shape}>", reads=(X.tile,), writes=(TILE_SUMS.tile,), shared=SCRATCH),),
    configurations=(Configuration(512, 8192),),
    computes="nothing",
    summary="reads a buffer through, for the evicted diagnostic",
)


def sweep_problem(protocol: Protocol, facts: DeviceFacts) -> Problem:
    """The buffer, as whole rows of a shape that every tile divides."""
    nbytes = max(protocol.evicted_bytes, protocol.evicted_l2s * facts.l2_bytes)
    return Problem(-(-nbytes // (4 * BENCHMARK_WIDTH)), BENCHMARK_WIDTH)


@contextmanager
def sweeper(device: Device, store: KernelStore, protocol: Protocol) -> Iterator[Executable]:
    """An executable that sweeps once each time it runs.

    Raises:
        CompileError, PlanError, DeviceError: the buffer does not fit, or see those stages.
    """
    problem, configuration = sweep_problem(protocol, device.facts), SWEEP.configurations[0]
    module = store.module(SWEEP, problem, configuration)
    plan = make_plan(device, module.kernels, SWEEP, problem, configuration)
    with ExitStack() as stack:
        addresses = {}
        for allocation in plan.allocations:
            buffer = device.allocate(allocation.nbytes, f"{allocation.quantity} of the sweep")
            stack.callback(buffer.close)
            buffer.fill(0)
            addresses[allocation.quantity] = buffer.address
        yield stack.enter_context(device.executable(plan, module.kernels, addresses, "direct"))
