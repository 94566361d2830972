"""Wrong controls, and kernels whose values are right while they move other bytes than they declare."""

from tests.wrong.fault import Edit, Fault, Setting

_MEET = "  barrier.arrive_and_wait();\n"
_TAKE_EXPONENTIALS = "  float exponentials = 0.0f;\n"
_SPILL = "  storage.after_exponentials(tile, shared.packs);\n"
STORE_SPILL = (
    "    if (spill_exponentials)\n"
    "      tile.for_each_pack([&](int k) { tile.store_pack(exponentials, k, packs[tile.position(k)]); });\n"
)
RELOAD = "    if (reload_input) stage(tile, packs, x);\n"
READ_SPILL = "    if (spill_exponentials) stage(tile, packs, exponentials);\n"

WRONG_CONTROLS = (
    Fault(
        "barrier_of_a_control_missing",
        Setting("control_retain"),
        (Edit("megakernel.cuh", _MEET, "", 0),),
        ("y.nan_rows",),
    ),
    Fault(
        "reloads_a_tensor_that_nobody_wrote",  # the emulator fills it with NaN; on a GPU it holds anything
        Setting("control_reload"),
        (Edit("controls.cu", RELOAD, RELOAD.replace("x)", "exponentials)")),),
        ("tile_exponential_sums.nan_rows", "y.nan_rows"),
    ),
    Fault(
        "reloads_exponentials_before_they_are_written",
        Setting("control_both"),
        (Edit("controls.cu", RELOAD, RELOAD.replace("x)", "exponentials)")),),
        ("tile_exponential_sums.nan_rows", "y.nan_rows"),
        on_gpu=True,
    ),
    Fault(
        "reloads_a_neighbours_packs",
        Setting("control_reload", width=1540),
        (
            Edit(
                "controls.cu",
                "packs[tile.position(k)] = tile.load_pack(tensor, k);",
                "packs[tile.position(k)] = tile.load_pack(tensor - tile.index * 4, k);",
            ),
        ),
        ("tile_exponential_sums.accuracy", "y.accuracy"),
        on_gpu=True,
    ),
    Fault(
        "x_spilled_for_its_exponentials",
        Setting("control_spill"),
        (
            Edit("megakernel.cuh", _SPILL, ""),
            Edit("megakernel.cuh", _TAKE_EXPONENTIALS, _SPILL + _TAKE_EXPONENTIALS),
        ),
        ("exponentials.accuracy", "y.accuracy", "y.non_negative"),
        on_gpu=True,
    ),
    Fault(
        "reads_the_exponentials_of_the_replay_before",
        Setting("control_spill"),
        (
            Edit("controls.cu", STORE_SPILL, ""),
            Edit(
                "controls.cu",
                READ_SPILL,
                "    if (spill_exponentials) {\n"
                "      tile.for_each_pack([&](int k) {\n"
                "        const auto fresh = packs[tile.position(k)];\n"
                "        packs[tile.position(k)] = tile.load_pack(exponentials, k);\n"
                "        tile.store_pack(exponentials, k, fresh);\n"
                "      });\n"
                "    }\n",
            ),
        ),
        ("y.nan_rows", "changed_input_1.y.nan_rows"),
        on_gpu=True,
    ),
    Fault(
        "spill_read_one_element_off",
        Setting("control_spill"),
        (
            Edit(
                "controls.cu",
                READ_SPILL,
                READ_SPILL.replace("packs, exponentials", "packs, exponentials + 1"),
            ),
        ),
        ("launch.out_of_bounds_global",),
        "global buffer exponentials",
    ),
    Fault(
        "spills_where_it_must_not_and_not_where_it_must",
        Setting("control_both"),
        (Edit("controls.cu", "spill_exponentials != 0}", "spill_exponentials == 0}"),),
        ("exponentials.written",),
        "4623 of 4623 values not written",
        on_gpu=True,
    ),
)

# Every value is right: what is wrong is what they measure.
WRONG_BYTES = (
    Fault("reload_forgotten", Setting("control_reload"), (Edit("controls.cu", RELOAD, ""),), ("bytes.read",)),
    Fault("spill_not_read_again", Setting("control_spill"), (Edit("controls.cu", READ_SPILL, ""),), ("bytes.read",)),
    Fault(
        "switches_exchanged",
        Setting("control_reload"),
        (
            Edit(
                "controls.cu",
                "reload_input != 0, spill_exponentials != 0}",
                "spill_exponentials != 0, reload_input != 0}",
            ),
        ),
        ("bytes.written",),
    ),
    Fault(
        "reloads_though_switched_off",
        Setting("control_retain"),
        (Edit("controls.cu", "reload_input != 0,", "true,"),),
        ("bytes.read",),
    ),
    Fault(
        "every_block_writes_row_statistics",
        Setting("local2_recompute"),
        (Edit("local.cu", "tile.index == 0 && threadIdx.x", "threadIdx.x"),),
        ("bytes.written",),
    ),
    Fault(
        "every_tile_read_twice",
        Setting("local1_row"),
        (
            Edit(
                "rows.cuh",
                "    tile.load_packs(tensor, packs);\n",
                "    tile.load_packs(tensor, packs);\n    tile.load_packs(tensor, packs);\n",
            ),
        ),
        ("bytes.read",),
    ),
    Fault(
        "output_stored_twice",
        Setting("row_retained"),
        (
            Edit(
                "megakernel.cuh",
                "  tile.for_each_pack([&](int k) { tile.store_pack(y",
                "  tile.for_each_pack([&](int k) { tile.store_pack(y, k, shared.packs[tile.position(k)]); });\n"
                "  tile.for_each_pack([&](int k) { tile.store_pack(y",
            ),
        ),
        ("bytes.written",),
    ),
)
