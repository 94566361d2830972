"""The operator's contract: ``y = softmax(x / sqrt(mean(x * x) + eps))`` for each row.

``x`` and ``y`` are contiguous row-major float32 of shape ``(rows, width)``. Inputs are finite with
``|x| <= MAX_MAGNITUDE``. A row outside that contract (NaN, infinity, or a sum of squares beyond float32)
becomes a row of NaN and leaves the others exact.
"""

from dataclasses import dataclass

from megakernel.errors import UsageError

BENCHMARK_WIDTH = 131_072
BENCHMARK_ROWS = (1, 16, 32, 64)
DEFAULT_EPS = 1e-5
MAX_MAGNITUDE = 1024.0

# A kernel gets eps as float32: the smallest normal number and the largest.
SMALLEST_EPS = 2.0**-126
LARGEST_EPS = (2 - 2.0**-23) * 2.0**127

# A kernel holds row and tile counts in 32 bits and indexes blocks with gridDim.x, at most 2**31 - 1.
MAX_WIDTH = 2**31 - 1
MAX_ROWS = 2**31 - 1


@dataclass(frozen=True)
class Problem:
    """One problem size.

    Raises:
        UsageError: a count is not positive or too large, or ``eps`` is not positive and finite in float32.
    """

    rows: int
    width: int = BENCHMARK_WIDTH
    eps: float = DEFAULT_EPS

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MAX_ROWS:
            raise UsageError(f"rows is {self.rows}: give 1 to {MAX_ROWS}")
        if not 1 <= self.width <= MAX_WIDTH:
            raise UsageError(f"width is {self.width}: give 1 to {MAX_WIDTH}")
        if not SMALLEST_EPS <= self.eps <= LARGEST_EPS:
            raise UsageError(f"eps is {self.eps}: give a positive finite number that float32 can hold")

    @property
    def elements(self) -> int:
        return self.rows * self.width

    def tiles(self, tile: int) -> int:
        """Tiles of ``tile`` elements in a row, the last perhaps ragged."""
        return -(-self.width // tile)
