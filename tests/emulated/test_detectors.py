"""Every detector fires on a small kernel with one planted fault, and names the line."""

import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from megakernel.device.emulator_findings import DETECTORS, EmulatedFault, Finding
from megakernel.device.emulator_library import EARLIER_READS, EARLIER_WRITES, LaunchStats, Library
from megakernel.device.guarded_memory import GuardedBuffer, GuardedMemory
from megakernel.device.host_compiler import BuildOptions
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS, Submission
from megakernel.run.prepare import KernelStore
from megakernel.run.verify import verify_all
from megakernel.variants.declaration import Quantity, Stage, Variant, X, Y
from tests.emulated.checking import SMALL, UNALIGNED
from tests.host_only import HostOnly

KERNELS = Path(__file__).parent / "kernels"
FAULTS = KERNELS / "faults.cu"
CLUSTERS = KERNELS / "clusters.cu"
FAULT_NAMES = (
    *re.findall(r"^__global__ void (\w+)\(float\*", FAULTS.read_text(), re.MULTILINE),
    "last_block_sums<true>",
    "last_block_sums<false>",
)
CLUSTER_NAMES = (
    "pass_to_next_rank<Guards::both>",
    "pass_to_next_rank<Guards::none_at_start>",
    "pass_to_next_rank<Guards::none_at_end>",
    "no_such_rank",
    "wait_without_arrive",
)


class Bench:
    """A library with the two buffers that all kernels of these tests take."""

    def __init__(self, library: Library, memory: GuardedMemory, pack: Callable[..., int]) -> None:
        self._library, self._pack = library, pack
        self._values_buffer: GuardedBuffer = memory.allocate(1024 * 4, "values")
        self._words_buffer: GuardedBuffer = memory.allocate(64 * 4, "words")
        self.values: NDArray[np.float32] = self._values_buffer.bytes.view(np.float32)
        self.words: NDArray[np.uint32] = self._words_buffer.bytes.view(np.uint32)

    def launch(self, kernel: str, **options: Any) -> LaunchStats:
        self.values[:] = np.nan
        self.words[:] = 0
        parameters = self._pack(np.uint64(self._values_buffer.address), np.uint64(self._words_buffer.address))
        launch: dict[str, Any] = {"grid": 4, "block": 64, "shared_bytes": 256, "time_limit_s": 2.0, **options}
        return self._library.launch(kernel, parameters_address=parameters, **launch)

    def earlier(self, *, values: int = 0, words: int = 0) -> dict[str, Any]:
        """Options of a programmatic launch: what launches that may still run do with the buffers."""
        uses = {self._values_buffer.address: values, self._words_buffer.address: words}
        return {"earlier_launches": uses}

    def finding(self, kernel: str, **options: Any) -> Finding:
        with pytest.raises(EmulatedFault) as caught:
            self.launch(kernel, **options)
        finding = caught.value.finding
        assert finding.detector in DETECTORS
        return finding

    def first_finding(self, kernel: str, seeds: range, **options: Any) -> Finding:
        for seed in seeds:
            try:
                self.launch(kernel, seed=seed, **options)
            except EmulatedFault as fault:
                return fault.finding
        pytest.fail(f"{kernel} passed with every seed")


@pytest.fixture
def faults(load: Callable[..., Library], memory: GuardedMemory, pack: Callable[..., int]) -> Bench:
    return Bench(load(FAULTS, FAULT_NAMES), memory, pack)


@pytest.fixture
def clusters(load: Callable[..., Library], memory: GuardedMemory, pack: Callable[..., int]) -> Bench:
    return Bench(load(CLUSTERS, CLUSTER_NAMES), memory, pack)


def fault_line(source: Path, kernel: str, comment: str = "// fault") -> int:
    """The line with the comment, in the kernel of that name."""
    lines = source.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if f"void {kernel}(" in line)
    return next(i for i in range(start, len(lines)) if comment in lines[i]) + 1


PLANTED = [
    ("deadlock", "deadlock", {}),
    ("divergent_barrier", "divergent_barrier", {}),
    ("lane_skips_shuffle", "divergent_warp", {}),
    ("different_shuffles", "divergent_warp", {}),
    ("shuffle_from_outside_mask", "divergent_warp", {}),
    ("exit_before_barrier", "early_exit", {}),
    ("exit_before_shuffle", "early_exit", {}),
    ("load_past_end", "out_of_bounds_global", {}),
    ("store_before_begin", "out_of_bounds_global", {}),
    ("raw_read_past_end", "out_of_bounds_global", {}),
    ("raw_write_past_end", "out_of_bounds_global", {}),
    ("shared_past_end", "out_of_bounds_shared", {}),
    ("misaligned", "misaligned", {}),
    ("shared_size", "shared_size", {}),
    ("grid_sync", "grid_sync_without_cooperative", {}),
    ("impure_predicate", "impure_predicate", {}),
    ("trap", "trap", {}),
    ("endless_loop", "endless_loop", {"time_limit_s": 0.2}),
]


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize(("kernel", "detector", "options"), PLANTED, ids=[row[0] for row in PLANTED])
def test_planted_fault_is_found_at_its_line(
    faults: Bench, kernel: str, detector: str, options: dict[str, Any], seed: int
) -> None:
    finding = faults.finding(kernel, seed=seed, **options)

    assert (finding.detector, finding.file) == (detector, "faults.cu")
    if kernel in ("divergent_barrier", "different_shuffles", "exit_before_barrier", "lane_skips_shuffle"):
        # Which of the threads comes last, and so is blamed, depends on the order.
        start = fault_line(FAULTS, kernel, f"void {kernel}(")
        assert start < (finding.line or 0) <= fault_line(FAULTS, kernel)
    else:
        assert finding.line == fault_line(FAULTS, kernel)
    if detector != "deadlock":
        assert finding.block is not None
        assert finding.thread is not None
    assert faults.launch("correct").blocks == 4, "the process and the buffers stay usable"


def test_bounds_finding_names_the_buffer_and_the_thread(faults: Bench) -> None:
    finding = faults.finding("load_past_end")

    assert finding.message == "load of 4 bytes at byte 4096 of global buffer values (4096 bytes)"
    assert (finding.block, finding.thread) == (2, 9)


@pytest.mark.parametrize("kernel", ["raw_write_before_begin", "null_pointer"])
def test_stray_pointers_into_global_memory(faults: Bench, kernel: str) -> None:
    assert faults.finding(kernel).detector == "out_of_bounds_global"
    assert faults.launch("correct").blocks == 4


def test_write_before_shared_memory(faults: Bench) -> None:
    finding = faults.finding("shared_before_begin")

    assert finding.detector == "out_of_bounds_shared"
    assert finding.message == "block 0 wrote byte -4 of its shared memory (256 bytes)"


def test_stack_overflow(faults: Bench) -> None:
    assert faults.finding("stack_overflow").detector == "stack_overflow"
    assert faults.launch("stack_overflow", stack_bytes=65536).blocks == 4


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors divide by zero without a fault")
def test_division_by_zero(faults: Bench) -> None:
    finding = faults.finding("divide_by_zero")

    assert (finding.detector, finding.line) == ("arithmetic_fault", fault_line(FAULTS, "divide_by_zero"))


def test_undefined_behaviour_where_built_to_check_it(
    load: Callable[..., Library], memory: GuardedMemory, pack: Callable[..., int]
) -> None:
    options = BuildOptions(undefined_behaviour_sanitizer=True)
    checked = Bench(load(FAULTS, ("correct", "local_array_overrun"), options), memory, pack)

    finding = checked.finding("local_array_overrun")

    line = fault_line(FAULTS, "local_array_overrun")
    assert (finding.detector, finding.line) == ("undefined_behaviour", line)
    assert checked.launch("correct").blocks == 4


def test_uninitialised_shared_memory_is_poison_in_every_launch(faults: Bench) -> None:
    faults.launch("correct")
    faults.launch("uninitialised_shared")

    assert np.isnan(faults.values[:256]).all()


def test_deadlock_says_who_waits_where(faults: Bench) -> None:
    finding = faults.finding("deadlock", resident_blocks=1)

    assert (finding.blocks_finished, finding.blocks_resident, finding.blocks_never_started) == (2, 1, 1)
    (wait,) = finding.waits
    assert (wait.what, wait.threads, wait.blocks, wait.first_block) == ("spin_until", 3, 1, 2)
    assert wait.line == fault_line(FAULTS, "deadlock")


def test_cooperative_grid_barrier(faults: Bench) -> None:
    statistics = faults.launch("grid_sync", cooperative=True)

    assert (faults.values[:256] == 256).all()
    assert statistics.grid_barriers == 1
    finding = faults.finding("grid_sync", cooperative=True, resident_blocks=3)
    assert (finding.detector, finding.waits[0].what) == ("deadlock", "grid barrier")


def test_missing_release_shows_with_weak_stores(faults: Bench) -> None:
    def sums(kernel: str, weak_stores: bool) -> set[float]:
        found = set()
        for seed in range(8):
            faults.launch(kernel, seed=seed, weak_stores=weak_stores)
            found.add(float(np.nan_to_num(faults.values[512], nan=-1)))
        return found

    assert sums("last_block_sums<true>", weak_stores=True) == {10.0}
    assert sums("last_block_sums<false>", weak_stores=False) == {10.0}
    assert sums("last_block_sums<false>", weak_stores=True) != {10.0}


@pytest.mark.parametrize("weak_stores", [False, True])
def test_release_after_a_barrier_covers_the_block(faults: Bench, weak_stores: bool) -> None:
    thread = np.arange(64)
    for seed in range(8):
        faults.launch("publish_barrier_release", seed=seed, weak_stores=weak_stores)
        np.testing.assert_array_equal(faults.values[512:768].reshape(4, 64), [(thread + 1) % 64 + thread] * 4)


def test_warp_operations(faults: Bench) -> None:
    faults.launch("warp_operations", seed=1)

    lane = np.arange(32)
    assert (faults.words[:32] == 0xAAAAAAAA).all()
    np.testing.assert_array_equal(faults.values[:32], np.maximum(lane - 1, 0))
    np.testing.assert_array_equal(faults.values[32:64], np.where(lane % 8 < 4, lane + 4, lane))
    np.testing.assert_array_equal(faults.values[64:96], lane // 16 * 16)
    np.testing.assert_array_equal(faults.values[96:128], 31 - lane)


@pytest.mark.parametrize("seed", range(4))
def test_clusters_exchange_through_shared_memory(clusters: Bench, seed: int) -> None:
    kernel = "pass_to_next_rank<Guards::both>"
    clusters.launch(kernel, grid=12, cluster=4, resident_blocks=9, shared_bytes=4, seed=seed)

    np.testing.assert_array_equal(clusters.values[:12], [3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10])


CLUSTER_FAULTS = [
    ("pass_to_next_rank<Guards::none_at_start>", "cluster_lifetime", "// fault: not started", "not started"),
    ("pass_to_next_rank<Guards::none_at_end>", "cluster_lifetime", "// fault: has left", "left"),
    ("no_such_rank", "cluster_lifetime", "// fault: rank", "rank 4 of a cluster of 4"),
    ("wait_without_arrive", "divergent_barrier", "// fault: wait", "without cluster_arrive"),
]


@pytest.mark.parametrize(("kernel", "detector", "comment", "words"), CLUSTER_FAULTS)
def test_cluster_faults(clusters: Bench, kernel: str, detector: str, comment: str, words: str) -> None:
    # Only in some interleavings has a block left when its peer writes to it.
    finding = clusters.first_finding(kernel, seeds=range(20), cluster=4, shared_bytes=4)

    assert (finding.detector, finding.file) == (detector, "clusters.cu")
    assert finding.line == fault_line(CLUSTERS, kernel.partition("<")[0], comment)
    assert words in finding.message
    clusters.launch("pass_to_next_rank<Guards::both>", cluster=4, shared_bytes=4)
    np.testing.assert_array_equal(clusters.values[:4], [3, 0, 1, 2])


# ---- Programmatic launches


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("kernel", "uses", "words"),
    [
        ("reads_before_waiting", {"words": EARLIER_WRITES}, "load in global buffer words, which .* writes"),
        ("reads_before_waiting", {"words": EARLIER_READS | EARLIER_WRITES}, "global buffer words, which .* writes"),
        ("writes_before_waiting", {"values": EARLIER_READS}, "store in global buffer values, which .* reads"),
        ("writes_before_waiting", {"values": EARLIER_WRITES}, "store in global buffer values, which .* writes"),
        ("counts_before_waiting", {"words": EARLIER_READS}, "atomicAdd in global buffer words, which .* reads"),
        ("one_thread_waits", {"values": EARLIER_READS}, "store in global buffer values, which .* reads"),
    ],
)
def test_early_access_is_found_at_its_line(
    faults: Bench, kernel: str, uses: dict[str, int], words: str, seed: int
) -> None:
    finding = faults.finding(kernel, seed=seed, **faults.earlier(**uses))

    assert (finding.detector, finding.file) == ("early_access", "faults.cu")
    assert finding.line == fault_line(FAULTS, kernel)
    assert re.search(words + ": wait for it first$", finding.message)
    assert faults.launch(kernel).blocks == 4, "where no launch before may still run, nothing is early"


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("kernel", "uses"),
    [
        ("waits_first", {"values": EARLIER_READS | EARLIER_WRITES, "words": EARLIER_READS | EARLIER_WRITES}),
        ("reads_before_waiting", {"words": EARLIER_READS, "values": EARLIER_READS | EARLIER_WRITES}),
        ("writes_before_waiting", {"words": EARLIER_READS | EARLIER_WRITES}),
        # The GPU's wait is of the thread; a barrier of the block then orders the others behind it.
        ("one_thread_waits_for_its_block", {"values": EARLIER_READS | EARLIER_WRITES}),
    ],
)
def test_access_that_is_not_early_passes(faults: Bench, kernel: str, uses: dict[str, int], seed: int) -> None:
    assert faults.launch(kernel, seed=seed, **faults.earlier(**uses)).blocks == 4


def chain(early: str) -> Variant:
    first, second = Quantity("first", "element", ("x",)), Quantity("second", "element", ("x",))
    template = "<{threads}, {tile}, {shape}"
    return Variant(
        "chain",
        source=str(KERNELS / "chain.cu"),
        stages=(
            Stage("write_first" + template + ">", reads=(X.tile,), writes=(first.tile,)),
            Stage("write_second" + template + ">", reads=(first.tile,), writes=(second.tile,), programmatic=True),
            Stage(
                "write_y" + template + f", Early::{early}>",
                reads=(X.tile, first.tile, second.tile, {"x": X, "first": first, "second": second}[early].tile),
                writes=(Y.tile,),
                programmatic=True,
            ),
        ),
        configurations=(SMALL,),
        computes="copy",
    )


@pytest.mark.parametrize("submission", SUBMISSIONS)
@pytest.mark.parametrize("early", ["x", "first", "second"])
def test_third_launch_waits_for_the_first_too(early: str, submission: Submission) -> None:
    """While the second waits, the first may still run, and the third may have started."""
    with HostOnly() as device, KernelStore(device) as store:
        (result,) = verify_all(device, store, [chain(early)], [Problem(2, UNALIGNED)], ["timing"], [submission])
    failures = result.verification.failures
    if early == "x":
        assert not failures
    else:
        (check,) = failures
        assert check.name == "launch.early_access"
        assert f"global buffer {early}, which a launch that may still run writes" in check.detail
