"""The shipped kernels on the emulator, against float64, at small shapes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from megakernel.device.emulator_findings import KernelFault
from megakernel.device.emulator_library import LaunchStats, Library
from megakernel.device.guarded_memory import GuardedBuffer, GuardedMemory
from megakernel.device.sources import kernel_folder

THREADS, TILE = 64, 512
EPS = 1e-5
SCRATCH_BYTES = THREADS // 32 * 12
WIDTHS = {"exact": 2048, "aligned": 1540, "unaligned": 1537}

UNFUSED = (
    ("squares", "x squares"),
    ("tile_sums", "squares tile_square_sums"),
    ("tile_maxima", "x tile_maxima"),
    ("row_inverse_rms", "tile_square_sums row_inverse_rms"),
    ("row_maxima", "tile_maxima row_maxima"),
    ("exponentials", "x row_inverse_rms row_maxima exponentials"),
    ("tile_sums", "exponentials tile_sums"),
    ("row_sums", "tile_sums row_sums"),
    ("normalise", "exponentials row_sums y"),
)
LOCAL = (
    ("tile_statistics", "x tile_statistics"),
    ("exponential_sums", "x tile_statistics tile_sums"),
    ("normalise", "x tile_statistics tile_sums y"),
)
ROW_RETAINED = (("row_retained", "x tile_statistics tile_sums y row_barriers"),)
RETAINED = (("retained", "x tile_statistics tile_sums y"),)
IMPLEMENTATIONS = {
    "unfused.cu": UNFUSED,
    "local.cu": LOCAL,
    "row_retained.cu": ROW_RETAINED,
    "retained.cu": RETAINED,
}
REDUCES = {"tile_sums", "tile_maxima", "tile_statistics", "exponential_sums"}
ONE_WARP_A_ROW = {"row_inverse_rms", "row_maxima", "row_sums"}
TAKES_EPS = {"row_inverse_rms", "exponential_sums", "row_retained", "retained"}
NO_WIDTH = {"row_maxima", "row_sums"}


def reference(x: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    scaled = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + EPS)
    exponentials = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    normalised: NDArray[np.float64] = exponentials / exponentials.sum(axis=1, keepdims=True)
    return normalised


@dataclass
class Problem:
    """Buffers for some rows, and the launches of one implementation over them."""

    load: Callable[..., Library]
    memory: GuardedMemory
    pack: Callable[..., int]
    source: str
    shape: str
    rows: int

    def __post_init__(self) -> None:
        self.width = WIDTHS[self.shape]
        self.tiles = -(-self.width // TILE)
        self.buffers: dict[str, GuardedBuffer] = {}
        self.stages = IMPLEMENTATIONS[self.source]
        self.library = self.load(kernel_folder() / self.source, tuple(sorted({self.name(k) for k, _ in self.stages})))
        values = np.random.default_rng(self.rows).uniform(-8, 8, (self.rows, self.width))
        self.x = values.astype(np.float32)
        self.buffer("x").bytes.view(np.float32)[:] = self.x.ravel()

    def name(self, kernel: str) -> str:
        return kernel if kernel in ONE_WARP_A_ROW else f"{kernel}<{THREADS}, {TILE}, Shape::{self.shape}>"

    def buffer(self, quantity: str) -> GuardedBuffer:
        if quantity not in self.buffers:
            elements = {
                **dict.fromkeys(("x", "y", "squares", "exponentials"), self.rows * self.width),
                "tile_statistics": self.rows * self.tiles * 2,
                "row_barriers": self.rows * 32,
            }.get(quantity, self.rows * (1 if quantity.startswith("row_") else self.tiles))
            self.buffers[quantity] = self.memory.allocate(elements * 4, quantity)
            if quantity == "row_barriers":
                self.buffers[quantity].bytes[:] = 0
        return self.buffers[quantity]

    def shared_bytes(self, kernel: str) -> int:
        if kernel in REDUCES:
            return SCRATCH_BYTES
        if kernel not in ("row_retained", "retained"):
            return 0
        alignment = 8 if self.shape == "unaligned" else 16
        return -(-(TILE * 4 + SCRATCH_BYTES) // alignment) * alignment

    def run(self, seed: int = 0, weak_stores: bool = False, resident_blocks: int | None = None) -> list[LaunchStats]:
        """One invocation; outputs and scratch are poison before it."""
        for quantity, buffer in self.buffers.items():
            if quantity not in ("x", "row_barriers"):
                buffer.bytes[:] = 0xFF
        return [self.run_stage(*stage, seed, weak_stores, resident_blocks) for stage in self.stages]

    def run_stage(
        self, kernel: str, quantities: str, seed: int, weak_stores: bool, resident_blocks: int | None
    ) -> LaunchStats:
        pointers = [np.uint64(self.buffer(quantity).address) for quantity in quantities.split()]
        width = [] if kernel in NO_WIDTH or quantities.startswith("tile_sums") else [np.uint32(self.width)]
        takes_eps = kernel in TAKES_EPS or (kernel == "normalise" and self.source == "local.cu")
        eps = [np.float32(EPS)] if takes_eps else []
        one_warp = kernel in ONE_WARP_A_ROW
        return self.library.launch(
            self.name(kernel),
            grid=self.rows if one_warp else self.rows * self.tiles,
            block=32 if one_warp else THREADS,
            shared_bytes=self.shared_bytes(kernel),
            parameters_address=self.pack(*pointers, *width, np.uint32(self.tiles), *eps),
            cooperative=kernel == "retained",
            seed=seed,
            weak_stores=weak_stores,
            resident_blocks=resident_blocks,
        )

    def result(self) -> NDArray[np.float32]:
        return self.buffer("y").bytes.view(np.float32).reshape(self.rows, self.width).copy()


Make = Callable[..., Problem]


@pytest.fixture
def make(load: Callable[..., Library], memory: GuardedMemory, pack: Callable[..., int]) -> Make:
    def make(source: str, shape: str = "exact", rows: int = 3) -> Problem:
        return Problem(load, memory, pack, source, shape, rows)

    return make


@pytest.mark.parametrize("shape", sorted(WIDTHS))
@pytest.mark.parametrize("source", sorted(IMPLEMENTATIONS))
def test_right_and_the_same_bits_in_every_interleaving(make: Make, source: str, shape: str) -> None:
    problem = make(source, shape)
    results = []
    for seed in range(6):
        for weak_stores in (False, True):
            problem.run(seed, weak_stores)
            results.append(problem.result())

    expected = reference(problem.x)
    np.testing.assert_allclose(results[0], expected, rtol=0, atol=2e-6 * expected.max())
    assert all(np.array_equal(results[0], result) for result in results)


@pytest.mark.parametrize(("source", "rows", "need"), [("row_retained.cu", 1, 4), ("retained.cu", 2, 8)])
def test_deadlock_exactly_below_the_blocks_a_barrier_needs(make: Make, source: str, rows: int, need: int) -> None:
    problem = make(source, rows=rows)
    for seed in range(10):
        problem.run(seed, resident_blocks=need)
        with pytest.raises(KernelFault) as caught:
            problem.run(seed, resident_blocks=need - 1)
        finding = caught.value.finding
        assert finding.detector == "deadlock"
        assert (finding.blocks_finished, finding.blocks_resident) == (0, need - 1)
        assert finding.blocks_never_started == 1
        if source == "row_retained.cu":
            problem.buffer("row_barriers").bytes[:] = 0  # the launch ended between two uses


def test_dispatch_order_matters_only_to_launches_that_do_not_fit(make: Make) -> None:
    problem = make("row_retained.cu", rows=4)
    kernel = problem.name("row_retained")
    parameters = problem.pack(
        *(np.uint64(problem.buffer(q).address) for q in ROW_RETAINED[0][1].split()),
        np.uint32(problem.width),
        np.uint32(problem.tiles),
        np.float32(EPS),
    )

    def launch(resident_blocks: int, shuffled: bool) -> None:
        problem.library.launch(
            kernel,
            grid=16,
            block=THREADS,
            shared_bytes=problem.shared_bytes("row_retained"),
            parameters_address=parameters,
            resident_blocks=resident_blocks,
            shuffled_dispatch=shuffled,
            seed=1,
        )

    launch(16, shuffled=True)
    launch(4, shuffled=False)
    with pytest.raises(KernelFault, match="deadlock"):
        launch(4, shuffled=True)


def test_bytes_are_counted(make: Make) -> None:
    problem = make("local.cu")
    statistics, sums, normalise = problem.run()
    tensor_bytes, tiles = problem.x.nbytes, problem.rows * problem.tiles
    warps = tiles * THREADS // 32

    assert (statistics.bytes_read, statistics.bytes_written) == (tensor_bytes, tiles * 8)
    # Each warp reads the statistics of its whole row, and later the sums.
    assert (sums.bytes_read, sums.bytes_written) == (tensor_bytes + warps * problem.tiles * 8, tiles * 4)
    assert normalise.bytes_read == tensor_bytes + warps * problem.tiles * 12
    assert normalise.bytes_written == tensor_bytes
    assert statistics.atomic_operations == 0
    (barrier,) = make("row_retained.cu").run()
    assert barrier.atomic_operations == 2 * tiles
