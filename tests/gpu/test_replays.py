"""Residency at its edges, and what many replays, other shapes and another stream leave behind: nothing."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import numpy as np
import pytest

from megakernel.device.face import Device, Executable
from megakernel.device.gpu import Gpu
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS, Submission
from megakernel.run.prepare import KernelStore, Operands, Prepared, prepare
from megakernel.run.verify import Inputs, run_and_check
from megakernel.run.watchdog import Watchdog
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import ROW_BARRIERS, Configuration

pytestmark = pytest.mark.gpu

COOPERATIVE = ["retained", "row_retained", "control_both"]
SMALL_TILES = Configuration(256, 2048)
REPLAYS = 1000
HANG_S = 30.0

Ready = tuple[Prepared, Executable, Inputs]


@cache
def inputs_of(problem: Problem) -> Inputs:
    return Inputs.of("timing", problem)


@contextmanager
def ready(device: Device, store: KernelStore, name: str, problem: Problem, submission: Submission) -> Iterator[Ready]:
    inputs = inputs_of(problem)
    with (
        Operands(device, problem) as operands,
        prepare(device, store, CATALOGUE[name], operands, SMALL_TILES) as prepared,
        prepared.executable(submission) as executable,
    ):
        inputs.load(operands)
        executable.prepare()
        yield prepared, executable, inputs


def replay(subjects: list[Ready], times: int) -> None:
    """All subjects in turn, without waiting in between."""
    with Watchdog(save=lambda message: "").armed(subjects[0][0], f"{times} replays", HANG_S):
        for _ in range(times):
            for _, executable, _ in subjects:
                executable.check(executable.submit())
        for _, executable, _ in subjects:
            executable.check(None, executable.wait())


def assert_right(subject: Ready) -> None:
    assert [str(check) for check in run_and_check(*subject).failures] == []


@pytest.mark.parametrize("submission", SUBMISSIONS)
@pytest.mark.parametrize("name", COOPERATIVE)
@pytest.mark.parametrize("edge", ["cap - 1", "cap", "cap + 1", "2 cap + 1", "a prime"])
def test_rows_around_the_cap_replayed(
    gpu: Device, store: KernelStore, edge: str, name: str, submission: Submission
) -> None:
    with ready(gpu, store, name, Problem(1), "direct") as (prepared, _, _):
        cap = prepared.plan.residencies[0].rows_per_launch
    rows, launches = {
        "cap - 1": (cap - 1, 1),
        "cap": (cap, 1),
        "cap + 1": (cap + 1, 2),
        "2 cap + 1": (2 * cap + 1, 3),
        "a prime": (67, -(-67 // cap)),
    }[edge]
    with ready(gpu, store, name, Problem(rows), submission) as subject:
        plan = subject[0].plan
        assert len(plan.launches) == launches
        assert all(launch.grid <= plan.residencies[0].cap for launch in plan.launches)
        replay([subject], REPLAYS)
        assert_right(subject)


def test_alternating_shapes_without_a_reset(gpu: Device, store: KernelStore) -> None:
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(ready(gpu, store, "row_retained", problem, "graph"))
            for problem in (Problem(16), Problem(5, 50_257), Problem(33, 4096), Problem(1))
        ]
        replay(subjects, REPLAYS)
        for subject in subjects:
            assert_right(subject)
            words = subject[0].buffers[ROW_BARRIERS.name].read(np.uint32, (subject[0].plan.problem.rows, 32))
            assert not np.any(np.asarray(words, np.uint32) & np.uint32(0x7FFF_FFFF)), (
                "a barrier is at rest: only its sense may be set"
            )


@pytest.mark.parametrize("name", COOPERATIVE)
def test_two_executables_on_two_streams_do_not_disturb_each_other(gpu: Device, store: KernelStore, name: str) -> None:
    """Both have scratch and barrier words of their own; their replays are queued alternately and may overlap."""
    with Gpu(0) as other, KernelStore(other) as other_store:
        first = ready(gpu, store, name, Problem(4), "graph")
        second = ready(other, other_store, name, Problem(4), "direct")
        with first as one, second as two:
            assert set(one[0].addresses.values()).isdisjoint(two[0].addresses.values())
            replay([one, two], REPLAYS)
            assert_right(one)
            assert_right(two)
