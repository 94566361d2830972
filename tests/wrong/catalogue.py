"""Every fault that verification must find, and edits that must raise no alarm."""

from tests.wrong.fault import Edit, Fault, Harmless, Setting
from tests.wrong.memory import WRONG_MEMORY
from tests.wrong.synchronisation import WRONG_SYNCHRONISATION
from tests.wrong.values import WRONG_VALUES

FAULTS: tuple[Fault, ...] = WRONG_VALUES + WRONG_MEMORY + WRONG_SYNCHRONISATION

# The settings under which the unedited sources must pass.
TWINS: tuple[Setting, ...] = tuple(dict.fromkeys(fault.setting for fault in FAULTS))

HARMLESS: tuple[Harmless, ...] = (
    Harmless(
        "output_stored_twice",
        (
            Edit(
                "megakernel.cuh",
                "  tile.for_each_pack([&](int k) { tile.store_pack(y",
                "  tile.for_each_pack([&](int k) { tile.store_pack(y, k, shared.packs[tile.position(k)]); });\n"
                "  tile.for_each_pack([&](int k) { tile.store_pack(y",
            ),
        ),
    ),
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
)


def setting_name(setting: Setting) -> str:
    """For a test's name."""
    return f"{setting.variant}-{setting.rows}x{setting.width}-{setting.configuration}-{setting.fixture}"
