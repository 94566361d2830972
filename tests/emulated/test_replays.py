"""What one executable leaves behind does not disturb the next, nor its own next run."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from megakernel.device.emulator import Emulator
from megakernel.device.face import Executable
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS, Submission
from megakernel.run.prepare import KernelStore, Operands, Prepared, prepare
from megakernel.run.verify import Inputs, run_and_check
from tests.emulated.checking import (
    ALIGNED,
    EMULATED,
    MEGAKERNELS,
    SMALL,
    UNALIGNED,
    StoreBySource,
    device_with_room_for,
)

Ready = tuple[Prepared, Executable, Inputs]


@contextmanager
def ready(
    device: Emulator,
    store: KernelStore,
    variant: str,
    problem: Problem,
    submission: Submission,
    fixture: str = "timing",
) -> Iterator[Ready]:
    """A variant with operands of its own, its input loaded."""
    inputs = Inputs.of(fixture, problem)
    with ExitStack() as stack:
        operands = stack.enter_context(Operands(device, problem))
        inputs.load(operands)
        prepared = stack.enter_context(prepare(device, store, EMULATED[variant], operands, SMALL))
        yield prepared, stack.enter_context(prepared.executable(submission)), inputs


def assert_right(subject: Ready) -> None:
    failures = run_and_check(*subject).failures
    assert not failures, [str(check) for check in failures]


def barrier_words(prepared: Prepared) -> int:
    words = prepared.buffers["row_barriers"].read(np.uint32, (prepared.plan.problem.rows * 32,))
    return int(np.count_nonzero(words))


def test_many_replays_of_alternating_shapes_without_reset() -> None:
    """The barrier words return to zero by themselves, also where launches are ragged."""
    with device_with_room_for(9) as device, StoreBySource(device) as store, ExitStack() as stack:
        subjects = [
            stack.enter_context(ready(device, store, "row_retained", Problem(rows, width), "direct"))
            for rows, width in ((3, UNALIGNED), (5, 700), (1, 9 * 512))
        ]
        for _ in range(100):
            for prepared, executable, _ in subjects:
                executable.submit()
                assert barrier_words(prepared) == 0
        for subject in subjects:
            assert_right(subject)


@pytest.mark.parametrize("variant", MEGAKERNELS)
def test_replays_explore_interleavings(emulator: Emulator, store: KernelStore, variant: str) -> None:
    """Other interleavings meet the barrier words that earlier ones left."""
    with ready(emulator, store, variant, Problem(3, UNALIGNED), "graph") as subject:
        try:
            for emulator.seed in range(1, 60):
                subject[1].submit()
            assert_right(subject)
        finally:
            emulator.seed = 0


@pytest.mark.parametrize("variant", EMULATED)
def test_two_executables_of_a_variant_take_turns(emulator: Emulator, store: KernelStore, variant: str) -> None:
    first = ready(emulator, store, variant, Problem(2, ALIGNED), "direct")
    second = ready(emulator, store, variant, Problem(2, ALIGNED), "graph", "scaled_rows")
    with first as one, second as other:
        for _ in range(5):
            assert_right(one)
            assert_right(other)


@pytest.mark.parametrize("variant", EMULATED)
def test_one_plan_bound_twice(emulator: Emulator, store: KernelStore, variant: str) -> None:
    """Direct launches and a graph over the same memory, in turns."""
    subject = ready(emulator, store, variant, Problem(2, UNALIGNED), "direct")
    with subject as (prepared, direct, inputs), prepared.executable("graph") as graph:
        for _ in range(3):
            assert_right((prepared, direct, inputs))
            assert_right((prepared, graph, inputs))


@pytest.mark.parametrize("submission", SUBMISSIONS)
@pytest.mark.parametrize("variant", EMULATED)
def test_survives_collection_between_build_and_replay(
    emulator: Emulator, store: KernelStore, variant: str, submission: Submission
) -> None:
    """An executable keeps what its launches point at, whatever happens to the objects that built it."""
    with ready(emulator, store, variant, Problem(2, UNALIGNED), submission) as subject:
        gc.collect()
        overwritten = [np.full(size, 0xDEAD, np.uint64) for size in (1, 4, 9, 16, 64, 4096) for _ in range(64)]
        assert_right(subject)
        del overwritten
