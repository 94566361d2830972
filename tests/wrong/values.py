"""Kernels that end well and write something wrong. A GPU may run them, unless said otherwise."""

from tests.wrong.fault import Edit, Fault, Setting

_ROUNDED_TAIL = Edit("tile.cuh", "width - index * TILE)", "(width - index * TILE) / 4 * 4)")
_NO_EPS = Edit("reductions.cuh", "rsqrtf(mean + eps)", "rsqrtf(mean)")

NOTHING_WRITTEN = (
    Fault(
        "null_kernel",
        Setting("row_retained"),
        (Edit("row_retained.cu", "  const unsigned row =", "  if (tiles.value) return;\n  const unsigned row ="),),
        ("y.written", "tile_maxima.written", "tile_exponential_sums.written"),
        "first at row 0, column 0",
        on_gpu=True,
    ),
    Fault(
        "tail_dropped_by_copy",
        Setting("copy"),
        (_ROUNDED_TAIL,),
        ("y.copied",),
        "3 values differ from x",
        on_gpu=True,
    ),
    Fault(
        "tail_dropped",
        Setting("local_recompute"),
        (_ROUNDED_TAIL,),
        ("y.written", "tile_square_sums.accuracy"),
        "3 of 4623 values not written, the first at row 0, column 1540",
        on_gpu=True,
    ),
    Fault(
        "one_element_not_copied",
        Setting("copy"),
        (
            Edit(
                "floors.cu",
                "tile.store_packs(y, packs);",
                "tile.for_each_pack([&](int k) {\n"
                "    if (tile.index != 1 || tile.position(k) != 7) tile.store_pack(y, k, packs[k]);\n  });",
            ),
        ),
        ("y.copied",),
        "3 values differ from x",
        on_gpu=True,
    ),
    Fault(
        "last_row_skipped",
        Setting("unfused"),
        (
            Edit(
                "unfused.cu",
                "  const float total = load(row_sums + tile.row);",
                "  if (tile.row == gridDim.x / tiles.value - 1) return;\n"
                "  const float total = load(row_sums + tile.row);",
            ),
        ),
        ("y.written",),
        "1541 of 4623 values not written, the first at row 2, column 0",
        on_gpu=True,
    ),
    Fault(
        "last_tile_skipped",
        Setting("retained"),
        (
            Edit(
                "megakernel.cuh",
                "  tile.for_each_pack([&](int k) { tile.store_pack(y",
                "  if (tile.index != tiles.value - 1)\n    tile.for_each_pack([&](int k) { tile.store_pack(y",
            ),
        ),
        ("y.written",),
        "15 of 4623 values not written, the first at row 0, column 1536",
        on_gpu=True,
    ),
)

WRONG_STATISTICS = (
    Fault(
        "maximum_not_subtracted",
        Setting("local_recompute", rows=2, width=8195, fixture="one_hot_positive"),
        (Edit("tile.cuh", "{ return (v - row_maximum) * scale; }", "{ return v * scale; }"),),
        ("y.nan_rows", "tile_exponential_sums.accuracy"),
        "are NaN, or are not, wrongly",
        on_gpu=True,
    ),
    Fault(
        "eps_outside_root",
        Setting("unfused", fixture="tiny"),
        (Edit("reductions.cuh", "rsqrtf(mean + eps)", "1.0f / (sqrtf(mean) + eps)"),),
        ("row_inverse_rms.accuracy", "y.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "eps_forgotten",
        Setting("local_recompute", fixture="tiny"),
        (_NO_EPS,),
        ("tile_exponential_sums.accuracy", "y.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "eps_forgotten_in_row_of_zeros",
        Setting("row_retained", fixture="zeros"),
        (_NO_EPS,),
        ("y.nan_rows",),
        on_gpu=True,
    ),
    Fault(
        "mean_over_tile",
        Setting("row_retained"),
        (
            Edit(
                "megakernel.cuh", "inverse_rms(of_row.x, inverse_width, eps)", "inverse_rms(of_row.x, 1.0f / TILE, eps)"
            ),
        ),
        ("tile_exponential_sums.accuracy", "y.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "statistics_of_neighbour_row",
        Setting("local_recompute", fixture="scaled_rows"),
        (
            Edit(
                "local.cu",
                "const size_t first_tile = static_cast<size_t>(tile.row)",
                "const size_t first_tile = static_cast<size_t>(tile.row ? tile.row - 1 : 0)",
                occurrence=0,
            ),
        ),
        ("tile_exponential_sums.accuracy",),
        on_gpu=True,
    ),
    Fault(
        "sum_instead_of_maximum",
        Setting("unfused", width=1540),
        (Edit("tile.cuh", "fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w))", "(v.x + v.y) + (v.z + v.w)"),),
        ("tile_maxima.accuracy", "row_maxima.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "maximum_starts_at_zero",
        Setting("row_retained", fixture="negative"),
        (Edit("reductions.cuh", "statistics_of(0.0f, -infinity())", "statistics_of(0.0f, 0.0f)"),),
        ("tile_maxima.accuracy",),
        "0 instead of -1",
        on_gpu=True,
    ),
    Fault(
        "half_warp_summed",
        Setting("local_recompute"),
        (
            Edit(
                "reductions.cuh",
                "int offset = 16; offset > 0; offset /= 2) value +=",
                "int offset = 8; offset > 0; offset /= 2) value +=",
            ),
        ),
        ("tile_square_sums.accuracy", "tile_exponential_sums.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "sum_not_initialised",
        Setting("unfused"),
        (Edit("unfused.cu", "float total = 0.0f;", "float total;"),),
        ("tile_square_sums.accuracy",),
    ),
    Fault(
        "tiles_counted_twice_in_long_rows",
        Setting("local_recompute", rows=1, width=50257),
        (Edit("reductions.cuh", "32 * EARLY; tile < tiles", "32 * (EARLY - 1); tile < tiles"),),
        ("tile_exponential_sums.accuracy", "y.row_sums"),
        on_gpu=True,
    ),
    Fault(
        "last_tile_not_summed",
        Setting("local_recompute"),
        (
            Edit(
                "local.cu",
                "row_sum(tile_sums + first_tile, tiles.value)",
                "row_sum(tile_sums + first_tile, tiles.value - 1)",
            ),
        ),
        ("y.row_sums", "y.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "division_not_corrected",
        Setting("local_recompute", width=2048, fixture="scaled_rows"),
        (Edit("tile.cuh", " + (dividend - quotient * value >= value ? 1 : 0)", ""),),
        ("tile_exponential_sums.accuracy", "y.accuracy"),
        on_gpu=True,
    ),
)

WRONG_OUTPUT = (
    Fault(
        "nan_written",
        Setting("local_recompute"),
        (
            Edit(
                "tile.cuh",
                "multiply(exponential(packs[k], row_maximum, scale), inverse_sum)",
                "multiply(packs[k], not_a_number())",
                occurrence=0,
            ),
        ),
        ("y.nan_rows", "y.row_sums"),
        "4623 of 4623 values are NaN",
        on_gpu=True,
    ),
    Fault(
        "broken_row_made_plausible",
        Setting("local_recompute", fixture="overflow"),
        (Edit("reductions.cuh", "mean <= LARGEST_FLOAT ? rsqrtf(mean + eps) : not_a_number()", "rsqrtf(mean + eps)"),),
        ("y.nan_rows",),
        "1541 of 4623 values are NaN, or are not, wrongly, the first at row 1, column 0",
        on_gpu=True,
    ),
    Fault(
        "tile_normalised_alone",
        Setting("row_retained"),
        (
            Edit(
                "megakernel.cuh",
                "reciprocal(RowSum<FromThisLaunch>(tile_sums + first_tile, tiles.value).combined())",
                "reciprocal(of_tile_exponentials)",
            ),
        ),
        ("y.row_sums", "y.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "exponentials_not_kept",
        Setting("row_retained"),
        (Edit("megakernel.cuh", "    shared.packs[tile.position(k)] = e;\n", ""),),
        ("y.accuracy", "y.non_negative"),
        on_gpu=True,
    ),
    Fault(
        "sum_of_earlier_launch",
        Setting("row_retained"),
        (
            Edit(
                "megakernel.cuh",
                "  const float inverse_sum = reciprocal(",
                "  float* const kept = reinterpret_cast<float*>(barrier.word) + 1;\n"
                "  const float earlier = observe(kept);\n"
                "  const float fresh = reciprocal(",
            ),
            Edit(
                "megakernel.cuh",
                "  tile.for_each_pack([&](int k) { tile.store_pack(y",
                "  if (earlier == 0.0f && barrier.leader && threadIdx.x == 0) publish(kept, fresh);\n"
                "  const float inverse_sum = earlier != 0.0f ? earlier : fresh;\n"
                "  tile.for_each_pack([&](int k) { tile.store_pack(y",
            ),
        ),
        ("changed_input_1.y.accuracy", "changed_input_2.y.accuracy"),
        on_gpu=True,
    ),
)

WRONG_VALUES = NOTHING_WRITTEN + WRONG_STATISTICS + WRONG_OUTPUT
