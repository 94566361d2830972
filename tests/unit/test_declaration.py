"""The declaration's words: configurations, kernel names, grids, bytes."""

import re
from dataclasses import replace

import pytest

from megakernel.errors import UsageError
from megakernel.operator.contract import Problem
from megakernel.variants.catalogue import (
    CATALOGUE,
    COPY,
    LOCAL_RECOMPUTE,
    RETAINED,
    ROW_RETAINED,
    TILE_STATISTICS,
    UNFUSED,
)
from megakernel.variants.declaration import ROW_BARRIERS, Access, Configuration, Quantity, Stage, Variant, X, Y

BENCHMARK = Problem(16, 131_072)


@pytest.mark.parametrize("threads", [0, 16, 31, 33, 1056, -32])
def test_a_block_is_whole_warps_up_to_1024_threads(threads: int) -> None:
    with pytest.raises(UsageError, match=f"^threads is {threads}: give a multiple of 32 up to 1024$"):
        Configuration(threads, 4096)


@pytest.mark.parametrize("tile", [0, -1024, 1023, 1028, 512])
def test_a_tile_is_whole_packs_for_every_thread(tile: int) -> None:
    with pytest.raises(UsageError, match=rf"^tile is {tile}: give a multiple of 1024 \(4 x threads\)$"):
        Configuration(256, tile)


@pytest.mark.parametrize(
    ("width", "shape"),
    [(131_072, "exact"), (4096, "exact"), (131_076, "aligned"), (4, "aligned"), (50_257, "unaligned")],
)
def test_a_kernel_is_named_with_its_template_arguments(width: int, shape: str) -> None:
    (stage,) = ROW_RETAINED.stages
    name = stage.kernel_name(Problem(1, width), Configuration(256, 4096))
    assert name == f"row_retained<256, 4096, Shape::{shape}>"


def test_a_kernel_without_template_keeps_its_bare_name() -> None:
    assert UNFUSED.stages[3].kernel_name(BENCHMARK, Configuration(256, 4096)) == "row_inverse_rms"


def test_a_kernel_used_twice_is_compiled_once() -> None:
    names = UNFUSED.kernel_names(BENCHMARK, Configuration(256, 4096))
    assert len(names) == len(set(names)) == 8


def test_grids_have_a_block_for_each_tile_for_each_row_or_one() -> None:
    configuration, ragged = Configuration(256, 4096), Problem(5, 50_257)
    assert UNFUSED.stages[0].blocks(5, ragged, configuration) == 5 * 13
    assert UNFUSED.stages[3].blocks(5, ragged, configuration) == 5
    assert CATALOGUE["empty"].stages[0].blocks(5, ragged, configuration) == 1
    assert UNFUSED.stages[3].block_threads(configuration) == 32
    assert UNFUSED.stages[0].block_threads(configuration) == 256


def test_shared_memory_is_the_tile_and_three_words_for_each_warp() -> None:
    assert RETAINED.stages[0].shared_bytes(Configuration(512, 8192)) == 4 * 8192 + 12 * 16
    assert LOCAL_RECOMPUTE.stages[0].shared_bytes(Configuration(256, 4096)) == 12 * 8
    assert LOCAL_RECOMPUTE.stages[2].shared_bytes(Configuration(256, 4096)) == 0


def test_bytes_of_the_local_kernels_count_every_warps_reads() -> None:
    configuration = Configuration(512, 8192)  # 16 tiles a row, 16 warps a block
    tensor = 16 * 131_072 * 4
    statistics = 16 * 16 * 16 * (16 * 8)  # rows x blocks x warps x (tiles x 8 bytes)
    sums = 16 * 16 * 16 * (16 * 4)
    read = [stage.bytes_read(BENCHMARK, configuration) for stage in LOCAL_RECOMPUTE.stages]
    written = [stage.bytes_written(BENCHMARK, configuration) for stage in LOCAL_RECOMPUTE.stages]
    assert read == [tensor, tensor + statistics, tensor + statistics + sums]
    assert written == [16 * 16 * 8, 16 * 16 * 4, tensor]


def test_bytes_of_the_unfused_kernels_at_a_ragged_width() -> None:
    problem, configuration = Problem(3, 50_257), Configuration(256, 4096)  # 13 tiles a row
    tensor, tiles, rows = 3 * 50_257 * 4, 3 * 13 * 4, 3 * 4
    each_thread = 3 * 13 * 256 * 4  # one word a row, read by every thread of its blocks
    read = [stage.bytes_read(problem, configuration) for stage in UNFUSED.stages]
    written = [stage.bytes_written(problem, configuration) for stage in UNFUSED.stages]
    assert read == [
        *(tensor, tensor, tensor, tiles, tiles),
        *(tensor + 2 * each_thread, tensor, tiles, tensor + each_thread),
    ]
    assert written == [tensor, tiles, tiles, rows, rows, tensor, tiles, rows, tensor]


def test_the_copy_floor_moves_each_byte_once() -> None:
    (stage,) = COPY.stages
    for configuration in COPY.configurations:
        assert stage.bytes_read(BENCHMARK, configuration) == stage.bytes_written(BENCHMARK, configuration) == 2**23


def test_a_quantity_read_and_written_is_one_parameter() -> None:
    (stage,) = RETAINED.stages
    assert [q.name for q in stage.quantities] == ["x", "tile_statistics", "tile_sums", "y"]


def test_row_barriers_follow_from_a_row_scoped_barrier_alone() -> None:
    assert ROW_RETAINED.stages[0].quantities[-1] == ROW_BARRIERS
    assert ROW_BARRIERS not in RETAINED.quantities
    assert replace(ROW_RETAINED.stages[0], barrier="grid").quantities == RETAINED.stages[0].quantities
    assert ROW_RETAINED.stages[0].cooperative
    assert RETAINED.stages[0].cooperative
    assert not LOCAL_RECOMPUTE.stages[0].cooperative


def test_state_is_scratch_but_no_intermediate() -> None:
    assert {q.name for q in ROW_RETAINED.scratch} == {"tile_statistics", "tile_sums", "row_barriers"}
    assert {q.name for q in ROW_RETAINED.intermediates} == {"tile_statistics", "tile_sums"}


def test_two_quantities_of_one_name_are_refused() -> None:
    # They would share one allocation.
    other = replace(TILE_STATISTICS, words=4)
    stages = (Stage("a", writes=(TILE_STATISTICS.tile,)), Stage("b", reads=(other.tile,), writes=(Y.tile,)))
    with pytest.raises(UsageError, match=re.escape("variant mine: two different quantities are named tile_statistics")):
        Variant("mine", "a.cu", stages, (Configuration(256, 4096),))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(1, 1), (2, 1), (3, 1), (5, 16), (16, 16), (22, 16), (23, 32), (45, 32), (46, 64), (10**9, 64)],
)
def test_the_default_configuration_is_that_of_the_nearest_row_count(rows: int, expected: int) -> None:
    known = {count: Configuration(256, 1024 * count) for count in (1, 16, 32, 64)}
    tuned = replace(LOCAL_RECOMPUTE, for_rows=known)
    assert tuned.default_configuration(rows) == known[expected]


def test_without_row_counts_the_first_configuration_is_the_default() -> None:
    assert COPY.default_configuration(16) == COPY.configurations[0]


def test_row_bytes_of_elements_tiles_and_rows() -> None:
    problem = Problem(2, 1000)
    assert X.row_bytes(problem, 256) == 4000
    assert TILE_STATISTICS.row_bytes(problem, 256) == 4 * 8
    assert Quantity("r", "row", ("row_maxima",)).row_bytes(problem, 256) == 4
    assert ROW_BARRIERS.row_bytes(problem, 256) == 128


def test_bytes_of_a_row_by_what_a_block_accesses() -> None:
    problem, configuration = Problem(5, 10_000), Configuration(256, 1024)  # 10 tiles a row, 8 warps a block
    row = Quantity("r", "row", ("row_maxima",), words=2)
    stage = Stage("k", reads=(X.tile,))

    def row_bytes(access: Access, stage: Stage = stage) -> int:
        return stage.row_bytes(access, problem, configuration)

    assert row_bytes(X.tile) == 40_000
    assert row_bytes(X.row) == 10 * 40_000  # every block of the row
    assert row_bytes(X.row_once) == 40_000
    assert row_bytes(TILE_STATISTICS.row_each_warp) == 10 * 8 * (10 * 8)
    assert row_bytes(row.row_each_thread) == 10 * 256 * 8
    assert (row_bytes(row.row), row_bytes(row.row_once)) == (10 * 8, 8)
    assert row_bytes(X.untouched) == 0
    by_row = replace(stage, grid="rows")  # one block a row
    assert row_bytes(X.row, by_row) == row_bytes(X.row_once, by_row) == 40_000
    assert row_bytes(row.row_each_warp, replace(by_row, threads=32)) == 8
    both = replace(stage, reads=(X.row, X.tile), writes=(row.row_once, Y.untouched))
    assert both.bytes_read(problem, configuration) == 5 * 11 * 40_000
    assert both.bytes_written(problem, configuration) == 5 * 8


def test_a_quantity_left_alone_is_a_parameter_and_memory_but_nothing_to_verify() -> None:
    retain, spill = CATALOGUE["control_retain"], CATALOGUE["control_spill"]
    assert [q.name for q in retain.stages[0].quantities] == [q.name for q in spill.stages[0].quantities]
    assert "exponentials" in {q.name for q in retain.scratch}
    assert "exponentials" not in {q.name for q in retain.intermediates}
    assert "exponentials" in {q.name for q in spill.intermediates}


def test_a_library_is_no_kernel_of_ours() -> None:
    variant = CATALOGUE["rms_cudnn"]
    assert variant.libraries == ("cudnn",)
    assert [stage.kernel.split("<")[0] for stage in variant.kernel_stages] == ["softmax_arguments"]
    assert variant.kernel_names(BENCHMARK, Configuration(256, 4096)) == ("softmax_arguments<256, 4096, Shape::exact>",)
    assert all(not other.libraries for other in CATALOGUE.values() if other is not variant)
