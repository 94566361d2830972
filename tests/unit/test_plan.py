"""Plans: row groups that fit, as equal as possible; offsets and scalars; refusals with the numbers."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fakes import FakeDevice, FakeModule

from megakernel.errors import PlanError
from megakernel.operator.contract import Problem
from megakernel.record.plan import Plan, Pointer, Transfer, Value
from megakernel.run.occupancy import occupancy_of
from megakernel.run.plan import make_plan, split_rows
from megakernel.run.prepare import KernelStore
from megakernel.variants.catalogue import CATALOGUE, COPY, LOCAL_RECOMPUTE, RETAINED, ROW_RETAINED, UNFUSED
from megakernel.variants.declaration import Configuration, Scalar, Variant

CONFIGURATION = Configuration(256, 4096)  # 32 blocks a row at the benchmark's width


def plan(
    variant: Variant,
    rows: int,
    *,
    width: int = 131_072,
    sms: int = 132,
    blocks_per_sm: int | Callable[[str, int, int], int] = 8,
    configuration: Configuration = CONFIGURATION,
) -> Plan:
    problem = Problem(rows, width)
    kernels = FakeModule(variant.kernel_names(problem, configuration)).kernels
    return make_plan(FakeDevice(sms, blocks_per_sm), kernels, variant, problem, configuration)


def test_programmatic_launches_are_refused_where_there_are_none() -> None:
    device = FakeDevice()
    variant = CATALOGUE["local_recompute_pdl"]
    kernels = FakeModule(variant.kernel_names(Problem(1), CONFIGURATION)).kernels
    make_plan(device, kernels, variant, Problem(1), CONFIGURATION)
    device.facts = replace(device.facts, compute_capability="8.9", name="an older GPU")
    with pytest.raises(PlanError, match=r"needs compute capability 9\.0, and an older GPU has 8\.9$"):
        make_plan(device, kernels, variant, Problem(1), CONFIGURATION)


def groups(planned: Plan) -> list[tuple[int, int]]:
    return [(launch.first_row, launch.rows) for launch in planned.launches]


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_row_groups_cover_all_rows_within_the_limit_as_equal_as_possible(rows: int, limit: int) -> None:
    split = split_rows(rows, limit)
    covered = [row for first, count in split for row in range(first, first + count)]
    assert covered == list(range(rows))
    sizes = [count for _, count in split]
    assert max(sizes) <= limit
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-rows // limit)  # no more launches than needed


@given(st.integers(1, 2**31 - 1), st.integers(2**22, 2**31 - 1))
def test_rows_beyond_32_bits_of_elements_split_too(rows: int, limit: int) -> None:
    split = split_rows(rows, limit)
    assert sum(count for _, count in split) == rows
    assert all(1 <= count <= limit for _, count in split)


def test_64_rows_become_two_launches_of_32() -> None:
    assert groups(plan(ROW_RETAINED, 64, blocks_per_sm=8)) == [(0, 32), (32, 32)]  # cap 1056, 33 rows


@pytest.mark.parametrize("variant", [RETAINED, ROW_RETAINED], ids=lambda variant: variant.name)
@pytest.mark.parametrize("sms", [16, 78, 114, 132])
def test_the_cap_follows_the_device_and_no_launch_exceeds_it(variant: Variant, sms: int) -> None:
    # One block too many in a cooperative launch is an error; one too many without it would hang.
    cap = sms * 4
    fit = cap // 32
    for rows in (1, fit - 1, fit, fit + 1, 2 * fit, 2 * fit + 1, 3 * fit + 1, 67):
        if rows < 1:
            continue
        planned = plan(variant, rows, sms=sms, blocks_per_sm=4)
        (room,) = planned.residencies
        assert (room.cap, room.sm_count, room.rows_per_launch) == (cap, sms, fit)
        assert groups(planned) == list(split_rows(rows, fit))
        assert len(planned.launches) == -(-rows // fit)
        for launch in planned.launches:
            assert launch.cooperative
            assert launch.grid == launch.rows * 32 <= cap


def test_a_row_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(PlanError) as caught:
        plan(ROW_RETAINED, 1, sms=16, blocks_per_sm=1)
    assert str(caught.value) == (
        "row_retained 256x4096: one row of 131072 needs 32 blocks at once, but Fake GPU holds 16 "
        "(1 per SM x 16 SMs): take a larger tile or another variant"
    )


def test_the_last_block_that_fits_is_accepted() -> None:
    assert len(plan(ROW_RETAINED, 3, sms=32, blocks_per_sm=1).launches) == 3
    with pytest.raises(PlanError, match="needs 32 blocks at once, but Fake GPU holds 31"):
        plan(ROW_RETAINED, 3, sms=31, blocks_per_sm=1)


@pytest.mark.parametrize("variant", CATALOGUE.values(), ids=lambda variant: variant.name)
def test_a_block_that_no_sm_holds_is_refused_also_without_a_barrier(variant: Variant) -> None:
    with pytest.raises(PlanError, match=rf"^{variant.name} 256x4096: not one block of .* fits an SM of Fake GPU"):
        plan(variant, 1, blocks_per_sm=0)


@pytest.mark.parametrize("variant", [COPY, UNFUSED, LOCAL_RECOMPUTE], ids=lambda variant: variant.name)
def test_blocks_that_never_wait_need_no_cap(variant: Variant) -> None:
    planned = plan(variant, 1000, sms=1, blocks_per_sm=1)
    assert [room.rows_per_launch for room in planned.residencies] == [-1] * len(variant.stages)
    assert groups(planned) == [(0, 1000)] * len(variant.stages)
    assert not any(launch.cooperative for launch in planned.launches)


def test_rows_beyond_the_largest_grid_are_split() -> None:
    # 2**31 - 1 blocks on x; rows never lie on y, where 65,535 is the limit.
    per_launch = (2**31 - 1) // 32
    planned = plan(COPY, 2 * per_launch + 1)
    assert groups(planned) == list(split_rows(2 * per_launch + 1, per_launch))
    assert len(planned.launches) == 3
    assert all(launch.grid <= 2**31 - 1 for launch in planned.launches)
    for rows in (65_535, 65_536):
        assert len(plan(COPY, rows).launches) == 1


def test_a_group_runs_all_stages_before_the_next_group() -> None:
    per_launch = (2**31 - 1) // 32
    planned = plan(LOCAL_RECOMPUTE, per_launch + 1)
    names = [launch.kernel.split("<")[0] for launch in planned.launches]
    assert names == ["tile_statistics", "exponential_sums", "normalise"] * 2
    assert planned.launches[2].first_row == 0 < planned.launches[3].first_row


def test_two_kernels_with_different_resources_get_their_own_caps() -> None:
    # One cap for all would overfill the larger kernel.
    first, second = ROW_RETAINED.stages[0], replace(ROW_RETAINED.stages[0], kernel="second<{threads}>")
    both = replace(ROW_RETAINED, name="both", stages=(first, second))
    planned = plan(both, 10, sms=32, blocks_per_sm=lambda name, threads, shared: 6 if "row_retained" in name else 3)
    assert [room.cap for room in planned.residencies] == [192, 96]
    assert [room.rows_per_launch for room in planned.residencies] == [6, 3]
    assert [rows for _, rows in groups(planned)] == [3, 3, 3, 3, 2, 2, 2, 2]  # all stages share their row groups


def test_occupancy_is_asked_of_the_kernel_block_and_shared_memory_that_are_launched() -> None:
    device, problem = FakeDevice(blocks_per_sm=2), Problem(4)
    kernels = FakeModule(UNFUSED.kernel_names(problem, CONFIGURATION)).kernels
    planned = make_plan(device, kernels, UNFUSED, problem, CONFIGURATION)
    assert device.asked == [(launch.kernel, launch.block, launch.shared_bytes) for launch in planned.launches]


def test_arguments_are_pointers_to_the_groups_rows_then_barriers_then_scalars() -> None:
    planned = plan(ROW_RETAINED, 64, blocks_per_sm=8)
    second = planned.launches[1]
    assert second.arguments == (
        Pointer("x", 32 * 131_072 * 4),
        Pointer("tile_statistics", 32 * 32 * 8),
        Pointer("tile_sums", 32 * 32 * 4),
        Pointer("y", 32 * 131_072 * 4),
        Pointer("row_barriers", 32 * 128),
        Value("width", "uint32", 131_072),
        Value("tiles", "divisor", 32),
        Value("inverse_width", "float32", 1 / 131_072),
        Value("eps", "float32", 1e-5),
    )
    assert second.barrier_members == 32
    assert all(
        argument.offset_bytes == 0 for argument in planned.launches[0].arguments if isinstance(argument, Pointer)
    )


@pytest.mark.parametrize("variant", CATALOGUE.values(), ids=lambda variant: variant.name)
def test_every_group_points_at_its_own_rows_within_the_allocations(variant: Variant) -> None:
    planned = plan(variant, 67, width=50_257, sms=60, blocks_per_sm=4)
    sizes = {allocation.quantity: allocation.nbytes for allocation in planned.allocations}
    for launch in planned.launches:
        for argument in launch.arguments:
            if isinstance(argument, Pointer):
                row_bytes, left = divmod(sizes[argument.quantity], 67)
                assert left == 0
                assert argument.offset_bytes == launch.first_row * row_bytes
                assert argument.offset_bytes + launch.rows * row_bytes <= sizes[argument.quantity]


def test_offsets_pass_32_bits() -> None:
    planned = plan(COPY, (2**31 - 1) // 32 + 2)
    first, second = planned.launches
    assert second.arguments[0] == Pointer("x", first.rows * 131_072 * 4)
    assert first.rows * 131_072 * 4 > 2**32


def test_allocations_hold_every_quantity_once_and_only_barriers_hold_state() -> None:
    planned = plan(ROW_RETAINED, 64)
    assert {a.quantity: (a.nbytes, a.holds_state) for a in planned.allocations} == {
        "x": (64 * 131_072 * 4, False),
        "tile_statistics": (64 * 32 * 8, False),
        "tile_sums": (64 * 32 * 4, False),
        "y": (64 * 131_072 * 4, False),
        "row_barriers": (64 * 128, True),
    }


def test_occupancy_records_show_caps_and_launches_and_what_does_not_fit() -> None:
    device = FakeDevice(sm_count=16, blocks_per_sm=4)
    with KernelStore(device) as store:
        both = occupancy_of(device, store, (ROW_RETAINED, COPY), [1, 2, 5], 131_072, CONFIGURATION)
        (none,) = occupancy_of(device, store, (ROW_RETAINED,), [1], 131_072, Configuration(256, 1024))
    retained, copy = (occupancy.record() for occupancy in both)
    assert (retained["cap"], retained["rows_per_launch"], retained["blocks_per_sm"]) == (64, 2, 4)
    assert retained["launches"] == {"1": 1, "2": 1, "5": 3}
    assert (copy["rows_per_launch"], copy["launches"]) == (None, {"1": 1, "2": 1, "5": 1})
    assert (none.record()["rows_per_launch"], none.record()["launches"]) == (0, {"1": None})


def test_a_scalar_with_a_value_of_its_own_keeps_it_and_the_others_follow_from_the_problem() -> None:
    values = {
        name: [argument for argument in plan(CATALOGUE[name], 2).launches[0].arguments if isinstance(argument, Value)]
        for name in ("control_retain", "control_reload", "control_spill", "control_both")
    }
    switches = {name: [(value.name, int(value.value)) for value in listed[-2:]] for name, listed in values.items()}
    assert switches == {
        "control_retain": [("reload_input", 0), ("spill_exponentials", 0)],
        "control_reload": [("reload_input", 1), ("spill_exponentials", 0)],
        "control_spill": [("reload_input", 0), ("spill_exponentials", 1)],
        "control_both": [("reload_input", 1), ("spill_exponentials", 1)],
    }
    assert all(listed[:-2] == values["control_retain"][:-2] for listed in values.values())
    (stage,) = RETAINED.stages
    fixed = replace(RETAINED, stages=(replace(stage, scalars=(Scalar("eps", "float32", 0.0),)),))
    assert plan(fixed, 1).launches[0].arguments[-1] == Value("eps", "float32", 0.0)
    unknown = replace(RETAINED, stages=(replace(stage, scalars=(Scalar("depth", "uint32"),)),))
    with pytest.raises(PlanError, match=r"no scalar is called 'depth'; there are width, tiles, inverse_width, eps$"):
        plan(unknown, 1)


def test_a_launch_says_what_it_moves_of_its_own_rows() -> None:
    tensor, statistics, sums = 32 * 131_072 * 4, 32 * 32 * 8, 32 * 32 * 4  # of 32 rows, 32 tiles each
    first, second = plan(ROW_RETAINED, 64).launches
    assert first.reads == (
        Transfer("x", tensor),
        Transfer("tile_statistics", 32 * 8 * statistics),  # every warp of every block of the row
        Transfer("tile_sums", 32 * 8 * sums),
    )
    assert first.writes == (Transfer("tile_statistics", statistics), Transfer("tile_sums", sums), Transfer("y", tensor))
    assert (second.reads, second.writes) == (first.reads, first.writes)


def test_what_a_launch_leaves_alone_it_does_not_move() -> None:
    moved = {
        name: [transfer.quantity for launch in plan(CATALOGUE[name], 1).launches for transfer in launch.reads]
        for name in ("control_retain", "control_both")
    }
    assert moved["control_retain"] == ["x", "tile_statistics", "tile_sums"]
    assert moved["control_both"] == ["x", "tile_statistics", "tile_sums", "x", "exponentials"]


@pytest.mark.parametrize("variant", CATALOGUE.values(), ids=lambda variant: variant.name)
def test_moved_bytes_are_those_of_all_stages_however_rows_are_split(variant: Variant) -> None:
    for sms in (132, 60):
        planned = plan(variant, 67, width=50_257, sms=sms, blocks_per_sm=4)
        problem, configuration = planned.problem, planned.configuration
        assert planned.moved_bytes == sum(
            stage.bytes_read(problem, configuration) + stage.bytes_written(problem, configuration)
            for stage in variant.stages
        )


def test_only_launches_after_the_first_are_programmatic() -> None:
    per_launch = (2**31 - 1) // 32
    planned = plan(CATALOGUE["local_recompute_pdl"], per_launch + 1)
    assert [launch.programmatic for launch in planned.launches] == [False, True, True] * 2
    assert not any(
        launch.programmatic
        for variant in CATALOGUE.values()
        if variant.name != "local_recompute_pdl"
        for launch in plan(variant, 1).launches
    )
    ours, cudnn = plan(CATALOGUE["rms_cudnn"], 1).launches
    assert (ours.library, cudnn.library, cudnn.kernel) == ("", "cudnn", "cudnnSoftmaxForward")
