"""Kernels whose threads or blocks do not wait for each other as they must. A GPU could hang, or hide it."""

from tests.wrong.fault import Edit, Fault, Line, Setting

_ROW = Setting("row_retained")
_GRID = Setting("retained")
_SPIN = Line("barriers.cuh", "spin_until(")
_LEADER = "0x80000000u - (members - 1)"
_PUBLISH_STATISTICS = "  if (threadIdx.x == 0) publish(tile_statistics + blockIdx.x, of_tile);\n"
_MEET = "  barrier.arrive_and_wait();\n"

BETWEEN_BLOCKS = (
    Fault("first_row_barrier_missing", _ROW, (Edit("megakernel.cuh", _MEET, "", 0),), ("y.nan_rows",)),
    Fault("second_row_barrier_missing", _ROW, (Edit("megakernel.cuh", _MEET, "", 1),), ("y.nan_rows",)),
    Fault("first_grid_barrier_missing", _GRID, (Edit("megakernel.cuh", _MEET, "", 0),), ("y.nan_rows",)),
    Fault("second_grid_barrier_missing", _GRID, (Edit("megakernel.cuh", _MEET, "", 1),), ("y.nan_rows",)),
    Fault(
        "block_stays_away_from_grid_barrier",
        _GRID,
        (Edit("grid_barrier.cuh", "{ cooperative_groups", "{ if (blockIdx.x != 5) cooperative_groups"),),
        ("launch.deadlock",),
        Line("grid_barrier.cuh", "this_grid().sync()"),
    ),
    Fault(
        "published_after_barrier",
        _ROW,
        (Edit("megakernel.cuh", f"{_PUBLISH_STATISTICS}\n{_MEET}", f"{_MEET}{_PUBLISH_STATISTICS}"),),
        ("y.nan_rows",),
    ),
    Fault(
        "published_by_another_thread_without_barrier",
        Setting("row_retained", seeds=tuple(range(1, 9))),
        (
            Edit("megakernel.cuh", _PUBLISH_STATISTICS, _PUBLISH_STATISTICS.replace("== 0", "== THREADS - 1")),
            Edit("barriers.cuh", "    __syncthreads();\n", "", 0),
        ),
        ("y.nan_rows",),
    ),
    Fault(
        "release_weakened",
        Setting("row_retained", weak_stores=True, seeds=tuple(range(8))),
        (Edit("barriers.cuh", "add_release(word, ", "atomicAdd(word, "),),
        ("y.nan_rows",),
    ),
    Fault(
        "barrier_counts_one_too_few",
        _ROW,
        (Edit("barriers.cuh", _LEADER, "0x80000000u - members"),),
        ("launch.deadlock",),
        _SPIN,
    ),
    Fault(
        "barrier_counts_one_too_many",
        _ROW,
        (Edit("barriers.cuh", _LEADER, "0x80000000u - (members - 2)"),),
        ("launch.deadlock",),
        _SPIN,
    ),
    Fault(
        "nobody_leads",
        _ROW,
        (Edit("barriers.cuh", "leader(member == 0)", "leader(member == members)"),),
        ("launch.deadlock",),
        _SPIN,
    ),
    Fault(
        "two_lead",
        _ROW,
        (Edit("barriers.cuh", "leader(member == 0)", "leader(member <= 1)"),),
        ("launch.deadlock",),
        _SPIN,
    ),
    Fault(
        "counter_shared_with_neighbour_row",
        _ROW,
        (Edit("barriers.cuh", "static_cast<size_t>(row)", "static_cast<size_t>(row / 2)"),),
        ("y.nan_rows",),
    ),
    Fault(
        "spin_without_spin_until",
        Setting("row_retained", time_limit_s=1.0),
        (
            Edit(
                "barriers.cuh",
                "spin_until([=] { return ((load_acquire(word) ^ before) & 0x80000000u) != 0; });",
                "while (((load_acquire(word) ^ before) & 0x80000000u) == 0) {\n      }",
            ),
        ),
        ("launch.endless_loop",),
        Line("barriers.cuh", "while (((load_acquire(word)"),
    ),
    Fault(
        "predicate_counts_itself",
        _ROW,
        (Edit("barriers.cuh", "load_acquire(word)", "add_release(word, 0)"),),
        ("launch.impure_predicate",),
        _SPIN,
    ),
)

WITHIN_BLOCK = (
    Fault(
        "block_barrier_missing",
        Setting("local_recompute"),
        (Edit("reductions.cuh", "  __syncthreads();\n", "", 1),),
        ("tile_exponential_sums.nan_rows",),
        "12 of 12 values",
    ),
    Fault(
        "divergent_block_barrier",
        Setting("local_recompute"),
        (
            Edit(
                "reductions.cuh",
                "  __syncthreads();\n",
                "  if (warp == 0) {\n    __syncthreads();\n  } else {\n    __syncthreads();  // the others\n  }\n",
                0,
            ),
        ),
        ("launch.divergent_barrier",),
        Line("reductions.cuh", "__syncthreads();  // the others"),
    ),
    Fault(
        "thread_returns_early",
        Setting("local_recompute"),
        (
            Edit(
                "local.cu",
                "  const Mine tile(width, tiles);\n",
                "  const Mine tile(width, tiles);\n  if (threadIdx.x >= tile.valid_packs) return;\n",
                0,
            ),
        ),
        ("launch.early_exit",),
        Line("reductions.cuh", "__shfl_xor_sync"),
    ),
    Fault(
        "lanes_skip_shuffle",
        Setting("local_recompute"),
        (Edit("reductions.cuh", "  s = warp_combine(s);", "  if (lane < 16) s = warp_combine(s);"),),
        ("launch.divergent_warp",),
        Line("reductions.cuh", "  __syncthreads();"),
    ),
    Fault(
        "lanes_without_tile_leave",
        Setting("unfused"),
        (
            Edit(
                "unfused.cu",
                "  largest = warp_maximum(largest);",
                "  if (threadIdx.x < tiles.value) largest = warp_maximum(largest);",
            ),
        ),
        ("launch.early_exit",),
        Line("reductions.cuh", "value = fmaxf(value, __shfl_xor_sync"),
    ),
)

WRONG_SYNCHRONISATION = BETWEEN_BLOCKS + WITHIN_BLOCK
