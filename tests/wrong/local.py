"""Wrong kernels of local fusion: two launches and one, and launches that start before the one before has ended."""

from tests.wrong.fault import Edit, Fault, Line, Setting

_PDL = Setting("local_recompute_pdl")
_WAIT = "    wait_for_launch_before();\n"
_READ_STATISTICS = (
    "  const RowStatistics<FromEarlierLaunch> row_statistics(tile_statistics + first_tile, tiles.value);\n"
)
_READ_SUMS = "  const RowSum<FromEarlierLaunch> row_sum(tile_sums + first_tile, tiles.value);\n"
_WAIT_LATE = f"  if constexpr (Follow::OVERLAPS) {{\n{_WAIT}  }}\n"
_READS_EARLIER_LAUNCH = Line("reductions.cuh", "return load(address);")

# A GPU may run these and show nothing: whether the launch before has ended by then is luck.
EARLY_ACCESS = (
    Fault(
        "sums_do_not_wait_for_statistics",
        _PDL,
        (Edit("local.cu", _WAIT, "", 0),),
        ("launch.early_access",),
        _READS_EARLIER_LAUNCH,
    ),
    Fault("output_does_not_wait", _PDL, (Edit("local.cu", _WAIT, "", 1),), ("launch.early_access",), "tile_statistics"),
    Fault(
        "waits_after_it_has_read",
        _PDL,
        (Edit("local.cu", _WAIT, "", 0), Edit("local.cu", _READ_STATISTICS, _READ_STATISTICS + _WAIT_LATE, 0)),
        ("launch.early_access",),
        _READS_EARLIER_LAUNCH,
    ),
    Fault(
        "third_launch_reads_the_first_ones_early",
        _PDL,
        (Edit("local.cu", _WAIT, "", 1), Edit("local.cu", _READ_SUMS, _WAIT_LATE + _READ_SUMS)),
        ("launch.early_access",),
        "load in global buffer tile_statistics, which a launch that may still run writes",
    ),
    Fault(
        "third_launch_waits_for_the_first_alone",
        _PDL,
        (
            Edit("local.cu", _WAIT, "", 1),
            Edit("local.cu", _READ_SUMS, _READ_SUMS + _WAIT_LATE),
            Edit("local.cu", _READ_STATISTICS, "", 1),
            Edit("local.cu", _READ_SUMS, _READ_SUMS + _READ_STATISTICS),
        ),
        ("launch.early_access",),
        "load in global buffer tile_sums, which a launch that may still run writes",
    ),
    Fault(
        "one_thread_waits_for_all",
        _PDL,
        (Edit("local.cu", _WAIT, "    if (threadIdx.x == 0) wait_for_launch_before();\n", 1),),
        ("launch.early_access",),
        _READS_EARLIER_LAUNCH,
    ),
)

_OF_ROW = "block_combine(thread_statistics_of_row<Mine>(x, tile.row, width, tiles), scratch)"
_STORES_ROW = "if (tile.index == 0 && threadIdx.x == 0) store(row_statistics + tile.row, of_row);"

# Row statistics that one block writes for all.
ROW_ONCE = (
    Fault(
        "nobody_writes_row_statistics",
        Setting("local2_recompute"),
        (Edit("local.cu", "tile.index == 0 && threadIdx.x", "tile.index == tiles.value && threadIdx.x"),),
        ("row_square_sums.written", "row_maxima.written", "y.nan_rows"),
        "3 of 3 values not written",
        on_gpu=True,
    ),
    Fault(
        "a_tile_that_short_rows_lack_writes_row_statistics",
        Setting("local2_recompute", width=31),
        (Edit("local.cu", "tile.index == 0 && threadIdx.x", "tile.index == 1 && threadIdx.x"),),
        ("row_square_sums.written", "row_maxima.written"),
        "3 of 3 values not written",
        on_gpu=True,
    ),
    Fault(
        "row_statistics_land_in_the_first_row",
        Setting("local2_recompute"),
        (Edit("local.cu", "store(row_statistics + tile.row, of_row)", "store(row_statistics + tile.index, of_row)"),),
        ("row_square_sums.written", "y.nan_rows"),
        "2 of 3 values not written, the first at row 1",
        on_gpu=True,
    ),
    Fault(
        "row_statistics_of_one_tile",
        Setting("local2_recompute"),
        (
            Edit(
                "local.cu",
                _STORES_ROW,
                "typename Mine::Pack own[Mine::PACKS];\n  tile.load_packs(x, own);\n"
                "  const Statistics mine = warp_combine(tile.thread_statistics(own));\n"
                "  if (tile.index == 0 && threadIdx.x == 0) store(row_statistics + tile.row, mine);",
            ),
        ),
        ("row_square_sums.accuracy", "y.accuracy"),
        on_gpu=True,
    ),
)

REPEATED_WORK = (
    Fault(
        "repeated_statistics_skip_the_last_tile",
        Setting("local2_recompute"),
        (Edit("rows.cuh", "index < tiles.value", "index + 1 < tiles.value"),),
        ("row_square_sums.accuracy", "tile_exponential_sums.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "repeated_statistics_of_the_first_row",
        Setting("local2_materialized", fixture="scaled_rows"),
        (Edit("local.cu", _OF_ROW, _OF_ROW.replace("tile.row", "0"), 1),),
        ("exponentials.accuracy", "tile_exponential_sums.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "x_written_for_its_exponentials",
        Setting("local_materialized"),
        (
            Edit(
                "local.cu",
                "  const float of_thread = tile.thread_exponentials(packs, of_row.y, inverse_rms(of_row.x, "
                "inverse_width, eps));\n  tile.store_packs(exponentials, packs);\n",
                "  tile.store_packs(exponentials, packs);\n"
                "  const float of_thread = tile.thread_exponentials(packs, of_row.y, inverse_rms(of_row.x, "
                "inverse_width, eps));\n",
                0,
            ),
        ),
        ("exponentials.accuracy", "y.accuracy", "y.non_negative"),
        on_gpu=True,
    ),
    Fault(
        "written_exponentials_not_normalised",
        Setting("local_materialized"),
        (Edit("local.cu", "multiply(packs[k], inverse_sum)", "packs[k]"),),
        ("y.row_sums", "y.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "sum_of_its_own_tile_alone",
        Setting("local1"),
        (
            Edit(
                "local.cu",
                "thread_exponentials_of_row<Mine>(x, tile.row, width, tiles, of_row.y, scale);",
                "[&] {\n    typename Mine::Pack own[Mine::PACKS];\n    tile.load_packs(x, own);\n"
                "    return tile.thread_exponentials(own, of_row.y, scale);\n  }();",
            ),
        ),
        ("y.row_sums", "y.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "ragged_tail_of_a_streamed_row_dropped",
        Setting("local1_row"),
        (
            Edit(
                "local.cu",
                "    tile.store_outputs(",
                "    if (tile.valid_packs == TILE / PackOf<SHAPE>::FLOATS) tile.store_outputs(",
            ),
        ),
        ("y.written",),
        "15 of 4623 values not written, the first at row 0, column 1536",
        on_gpu=True,
    ),
    Fault(
        "streamed_sum_without_the_maximum",
        Setting("local1_row"),
        (Edit("local.cu", "(x, row, width, tiles, of_row.y, scale)", "(x, row, width, tiles, 0.0f, scale)"),),
        ("y.row_sums", "y.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "arguments_without_the_maximum",
        Setting("rms_cudnn"),
        (Edit("rms_cudnn.cu", "argument(packs[k], of_row.y, scale)", "multiply(packs[k], scale)"),),
        ("arguments.accuracy",),
        on_gpu=True,
    ),
    Fault(
        "arguments_not_scaled",
        Setting("rms_cudnn"),
        (Edit("rms_cudnn.cu", "argument(packs[k], of_row.y, scale)", "argument(packs[k], of_row.y, 1.0f)"),),
        ("arguments.accuracy",),
        on_gpu=True,
    ),
)

WRONG_LOCAL_FUSION = EARLY_ACCESS + ROW_ONCE + REPEATED_WORK
