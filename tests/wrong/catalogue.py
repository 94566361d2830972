"""Every fault that verification must find, and edits that must raise no alarm."""

from tests.wrong.controls import READ_SPILL, STORE_SPILL, WRONG_BYTES, WRONG_CONTROLS
from tests.wrong.fault import Edit, Fault, Harmless, Setting
from tests.wrong.local import WRONG_LOCAL_FUSION
from tests.wrong.memory import WRONG_MEMORY
from tests.wrong.synchronisation import WRONG_SYNCHRONISATION
from tests.wrong.values import WRONG_VALUES

FAULTS: tuple[Fault, ...] = WRONG_VALUES + WRONG_MEMORY + WRONG_SYNCHRONISATION + WRONG_LOCAL_FUSION + WRONG_CONTROLS

# The settings under which the unedited sources must pass.
TWINS: tuple[Setting, ...] = tuple(dict.fromkeys(fault.setting for fault in FAULTS + WRONG_BYTES))

HARMLESS: tuple[Harmless, ...] = (
    Harmless(
        "published_by_last_thread",
        (Edit("megakernel.cuh", "if (threadIdx.x == 0) publish(", "if (threadIdx.x == THREADS - 1) publish(", 0),),
    ),
    Harmless(
        "third_barrier",
        (Edit("megakernel.cuh", "  barrier.arrive_and_wait();\n", "  barrier.arrive_and_wait();\n" * 2, 0),),
    ),
    Harmless("last_member_leads", (Edit("barriers.cuh", "leader(member == 0)", "leader(member == members - 1)"),)),
    Harmless(
        "fence_and_relaxed_addition",
        (
            Edit(
                "barriers.cuh",
                "const unsigned before = add_release(",
                "__threadfence();\n      const unsigned before = atomicAdd(",
            ),
        ),
    ),
    Harmless(
        "block_barrier_repeated",
        (Edit("reductions.cuh", "  __syncthreads();\n", "  __syncthreads();\n  __syncthreads();\n", 1),),
    ),
    # A thread reads back only what it staged itself: the barrier is there for the cost that was published with it.
    Harmless("staging_without_barrier", (Edit("controls.cu", "    __syncthreads();\n", ""),), Setting("control_both")),
    Harmless(
        "spilled_after_the_second_barrier",
        (Edit("controls.cu", STORE_SPILL, ""), Edit("controls.cu", READ_SPILL, STORE_SPILL + READ_SPILL)),
        Setting("control_spill"),
    ),
    Harmless(
        "another_tile_writes_row_statistics",
        (Edit("local.cu", "tile.index == 0 && threadIdx.x", "tile.index == tiles.value - 1 && threadIdx.x"),),
        Setting("local2_recompute"),
    ),
    Harmless(
        "rows_streamed_in_reverse",
        (Edit("local.cu", "const unsigned row = blockIdx.x;", "const unsigned row = gridDim.x - 1 - blockIdx.x;"),),
        Setting("local1_row"),
    ),
    Harmless(
        "one_thread_waits_for_its_block",
        (
            Edit(
                "local.cu",
                "    wait_for_launch_before();\n",
                "    if (threadIdx.x == 0) wait_for_launch_before();\n    __syncthreads();\n",
                1,
            ),
        ),
        Setting("local_recompute_pdl"),
    ),
    Harmless(
        "next_launch_let_start_late",
        (Edit("local.cu", "  if constexpr (Follow::OVERLAPS) let_next_launch_start();\n", "", 1),),
        Setting("local_recompute_pdl"),
    ),
)


def setting_name(setting: Setting) -> str:
    """For a test's name."""
    return f"{setting.variant}-{setting.rows}x{setting.width}-{setting.configuration}-{setting.fixture}"
