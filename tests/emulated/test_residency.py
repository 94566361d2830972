"""Blocks that wait for each other are all resident, or the launch is refused: split, caps, deadlock."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from megakernel.device.emulator import Emulator
from megakernel.errors import DeviceError, PlanError
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS, Launch, Plan, Submission
from megakernel.record.verification import Verification
from megakernel.run.prepare import KernelStore, Operands, Prepared, prepare
from megakernel.run.verify import Inputs, verify
from megakernel.variants.catalogue import CATALOGUE
from tests.emulated.checking import MEGAKERNELS, SMALL, UNALIGNED, StoreBySource, assert_verified, device_with_room_for

TILES = 4  # of a row of UNALIGNED elements
CAP = 3 * TILES + 1  # three rows, and a block too many to use


def every_launch(change: Callable[[Launch], Launch]) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, launches=tuple(change(launch) for launch in plan.launches))


def not_cooperative(launch: Launch) -> Launch:
    """Launched so, blocks start as room comes free, as on a GPU."""
    return replace(launch, cooperative=False)


def planned(device: Emulator, store: KernelStore, variant: str, problem: Problem) -> Plan:
    with (
        Operands(device, problem) as operands,
        prepare(device, store, CATALOGUE[variant], operands, SMALL) as prepared,
    ):
        return prepared.plan


@pytest.mark.parametrize("variant", MEGAKERNELS)
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 7, 11])
def test_rows_are_split_to_fit(variant: str, rows: int) -> None:
    """One below, at and one above what fits; twice and one more; primes."""
    problem = Problem(rows, UNALIGNED)
    with device_with_room_for(CAP) as device, StoreBySource(device) as store:
        launches = planned(device, store, variant, problem).launches
        assert len(launches) == -(-rows // 3)
        assert sum(launch.rows for launch in launches) == rows
        assert max(launch.rows for launch in launches) - min(launch.rows for launch in launches) <= 1
        assert all(launch.grid == launch.rows * TILES <= CAP for launch in launches)
        assert_verified(device, store, variant, problem)


@pytest.mark.parametrize("variant", MEGAKERNELS)
@pytest.mark.parametrize("sms", [1, 2, 3])
def test_few_sms(variant: str, sms: int) -> None:
    """As MIG and MPS leave them: the cap is the kernel's own blocks per SM times these."""
    problem = Problem(13, 4097)
    with Emulator(sms=sms) as device, StoreBySource(device) as store:
        assert_verified(device, store, variant, problem)
        (room,) = planned(device, store, variant, problem).residencies
    assert room.cap == sms * room.blocks_per_sm
    assert room.rows_per_launch == room.cap // 9


@pytest.mark.parametrize("variant", MEGAKERNELS)
def test_row_larger_than_the_device_is_refused(variant: str) -> None:
    refused = pytest.raises(PlanError, match=r"needs 4 blocks at once, but .* holds 3 \(1 per SM x 3 SMs\)")
    with device_with_room_for(TILES - 1) as device, StoreBySource(device) as store, refused:
        planned(device, store, variant, Problem(1, UNALIGNED))


@pytest.mark.parametrize("submission", SUBMISSIONS)
@pytest.mark.parametrize("variant", MEGAKERNELS)
def test_grid_one_block_over_the_cap_is_an_error(variant: str, submission: Submission) -> None:
    with (
        device_with_room_for(CAP) as device,
        StoreBySource(device) as store,
        Operands(device, Problem(3, UNALIGNED)) as operands,
    ):

        def prepared_with(grid: int) -> Prepared:
            change = every_launch(lambda launch: replace(launch, grid=grid))
            return prepare(device, store, CATALOGUE[variant], operands, SMALL, plan_filter=change)

        with prepared_with(CAP) as prepared, prepared.executable(submission):
            pass
        refused = pytest.raises(DeviceError, match=r"with 14 blocks is too large: .* holds 13 at once")
        with prepared_with(CAP + 1) as prepared, refused:
            prepared.executable(submission)


def verified_with_room_for(blocks: int, seed: int) -> Verification:
    """One row of row_retained, planned as if four blocks fitted."""
    problem = Problem(1, UNALIGNED)
    inputs = Inputs.of("timing", problem)
    with (
        device_with_room_for(TILES, seed=seed) as device,
        StoreBySource(device) as store,
        Operands(device, problem) as operands,
    ):
        inputs.load(operands)
        forced = every_launch(not_cooperative)
        with prepare(device, store, CATALOGUE["row_retained"], operands, SMALL, plan_filter=forced) as prepared:
            device.facts = replace(device.facts, sm_count=blocks)
            with prepared.executable("direct") as executable:
                return verify(prepared, executable, inputs)


@pytest.mark.parametrize("seed", range(4))
def test_deadlock_exactly_where_one_block_does_not_fit(seed: int) -> None:
    assert verified_with_room_for(TILES, seed).passed
    (check,) = verified_with_room_for(TILES - 1, seed).failures

    assert check.name == "launch.deadlock"
    assert "0 of 4 blocks finished, 3 are resident and wait (room for 3), 1 never started" in check.detail
    assert "3 threads of 3 blocks" in check.detail


def test_grid_barrier_needs_a_cooperative_launch(emulator: Emulator, store: KernelStore) -> None:
    problem = Problem(2, UNALIGNED)
    inputs = Inputs.of("timing", problem)
    forced = every_launch(not_cooperative)
    with (
        Operands(emulator, problem) as operands,
        prepare(emulator, store, CATALOGUE["retained"], operands, SMALL, plan_filter=forced) as prepared,
        prepared.executable("direct") as executable,
    ):
        inputs.load(operands)
        (check,) = verify(prepared, executable, inputs).failures
    assert check.name == "launch.grid_sync_without_cooperative"
