"""Kernels that touch memory where they must not. The emulator alone can tell."""

from tests.wrong.fault import Edit, Fault, Line, Setting

_LOAD = Line("tile.cuh", "return load(reinterpret_cast<const Pack*>")
_STORE = Line("tile.cuh", "store(reinterpret_cast<Pack*>")

WRONG_MEMORY = (
    Fault(
        "read_past_end_of_x",
        Setting("local_recompute"),
        (
            Edit(
                "tile.cuh",
                "for_each_pack([&](int k) { packs[k] = load_pack(tensor, k); });",
                "for (int k = 0; k < PACKS; k++) packs[k] = load_pack(tensor, k);",
            ),
        ),
        ("launch.out_of_bounds_global",),
        _LOAD,
    ),
    Fault(
        "write_past_end_of_y",
        Setting("copy"),
        (
            Edit(
                "floors.cu",
                "tile.store_packs(y, packs);",
                "for (int k = 0; k < Mine::PACKS; k++) tile.store_pack(y, k, packs[k]);",
            ),
        ),
        ("launch.out_of_bounds_global",),
        _STORE,
    ),
    Fault(
        "write_before_y",
        Setting("row_retained"),
        (Edit("tile.cuh", "(tensor + begin) + position(k), value)", "(tensor + begin) + position(k) - 1, value)"),),
        ("launch.out_of_bounds_global",),
        _STORE,
    ),
    Fault(
        "rows_assumed_aligned",
        Setting("copy"),
        (
            Edit(
                "tile.cuh",
                "using Type = float;\n  static constexpr int FLOATS = 1;",
                "using Type = float4;\n  static constexpr int FLOATS = 4;",
            ),
        ),
        ("launch.misaligned",),
        _LOAD,
    ),
    Fault(
        "shared_memory_past_its_end",
        Setting("row_retained"),
        (
            Edit(
                "megakernel.cuh",
                "shared.packs[tile.position(k)] = packs[k]",
                "shared.packs[tile.position(k) + THREADS] = packs[k]",
            ),
        ),
        ("launch.out_of_bounds_shared",),
        Line("megakernel.cuh", "+ THREADS] = packs[k]"),
    ),
    Fault(
        "reduction_reads_past_its_words",
        Setting("local_recompute"),
        (
            Edit(
                "reductions.cuh",
                "lane < scratch.WARPS ? scratch.statistics[lane] : no_statistics()",
                "scratch.statistics[lane]",
            ),
        ),
        ("launch.out_of_bounds_shared",),
        Line("reductions.cuh", ""),  # which of its lines, the optimiser decides
    ),
    Fault(
        "shared_struct_larger_than_declared",
        Setting("unfused"),
        (Edit("reductions.cuh", "float values[WARPS];", "float values[WARPS + 1];"),),
        ("launch.shared_size",),
        Line("unfused.cu", "block_shared<BlockScratch<THREADS>>()"),
    ),
)
