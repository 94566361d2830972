"""Problem sizes: what makes no sense is refused, in one line that names it."""

import math

import pytest

from megakernel.errors import UsageError
from megakernel.operator.contract import MAX_ROWS, MAX_WIDTH, Problem


@pytest.mark.parametrize("rows", [0, -3, MAX_ROWS + 1])
def test_row_counts_outside_the_grid_are_refused(rows: int) -> None:
    with pytest.raises(UsageError, match=f"^rows is {rows}: give 1 to {MAX_ROWS}$"):
        Problem(rows)


@pytest.mark.parametrize("width", [0, -1, MAX_WIDTH + 1])
def test_widths_beyond_32_bits_are_refused(width: int) -> None:
    with pytest.raises(UsageError, match=f"^width is {width}: give 1 to {MAX_WIDTH}$"):
        Problem(1, width)


@pytest.mark.parametrize("eps", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_eps_is_positive_and_finite(eps: float) -> None:
    with pytest.raises(UsageError, match=r"^eps is .*: give a positive finite number that float32 can hold$"):
        Problem(1, 8, eps)


def test_the_largest_problem_is_accepted_and_counted_in_64_bits() -> None:
    assert Problem(MAX_ROWS, MAX_WIDTH).elements == (2**31 - 1) ** 2


@pytest.mark.parametrize(("width", "tiles"), [(1, 1), (4095, 1), (4096, 1), (4097, 2), (50257, 13), (131072, 32)])
def test_a_ragged_last_tile_counts(width: int, tiles: int) -> None:
    assert Problem(1, width).tiles(4096) == tiles


@pytest.mark.parametrize("eps", [1e-60, 1e60])
def test_eps_that_float32_cannot_hold_is_refused(eps: float) -> None:
    # A kernel gets eps as float32: 1e-60 would arrive as zero, 1e60 as infinity.
    with pytest.raises(UsageError, match=r"^eps is "):
        Problem(1, 8, eps)
