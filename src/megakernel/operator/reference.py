"""The operator and all its intermediates in float64, from the actual float32 input."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from megakernel.operator.contract import Problem

Float64 = NDArray[np.float64]


class Reference:
    """Every named quantity of the operator, as float64: of elements ``(rows, width)``, of tiles ``(rows, tiles)``
    and of rows ``(rows,)``. Computed when first asked for; what belongs to elements and rows is kept.

    Args:
        x: the input, float32 of shape ``(rows, width)``.
        problem: the problem ``x`` belongs to.
    """

    def __init__(self, x: NDArray[np.float32], problem: Problem) -> None:
        if x.shape != (problem.rows, problem.width) or x.dtype != np.float32:
            raise ValueError(f"x is {x.dtype} {x.shape}, not float32 {(problem.rows, problem.width)}")
        self.x = x
        self.problem = problem
        self.allowed_errors: dict[tuple[str, int], Float64] = {}  # kept by `tolerances`
        self.verdicts: dict[object, tuple[Any, ...]] = {}  # kept by `checks`

    def quantity(self, name: str, tile: int) -> Float64:
        """A quantity by the name that declarations use; ``tile`` is the number of elements in a tile."""
        of_tiles = {
            "tile_square_sums": lambda: sum_over_tiles(self.squares, tile),
            "tile_maxima": lambda: self._tile_maxima(tile),
            "tile_exponential_sums": lambda: sum_over_tiles(self.exponentials, tile),
        }
        if name in of_tiles:
            of_tile: Float64 = of_tiles[name]()
            return of_tile
        value: Float64 = getattr(self, name)
        return value

    @cached_property
    def _x(self) -> Float64:
        return self.x.astype(np.float64)

    @cached_property
    def squares(self) -> Float64:
        return np.square(self._x)

    def _tile_maxima(self, tile: int) -> Float64:
        # As the hardware's maximum: a NaN loses against a number (the row becomes NaN through its sum).
        starts = np.arange(0, self.problem.width, tile)
        return np.asarray(np.fmax(np.fmax.reduceat(self._x, starts, axis=1), -np.inf))

    @cached_property
    def row_square_sums(self) -> Float64:
        return np.asarray(self.squares.sum(axis=1))

    @cached_property
    def row_inverse_rms(self) -> Float64:
        """NaN for a row outside the contract."""
        square_sums = self.row_square_sums
        inside = square_sums <= np.finfo(np.float32).max
        eps = np.float64(np.float32(self.problem.eps))
        means = np.where(inside, square_sums, 1.0) / self.problem.width
        return np.where(inside, 1.0 / np.sqrt(means + eps), np.nan)

    @cached_property
    def row_maxima(self) -> Float64:
        return np.asarray(np.fmax(np.fmax.reduce(self._x, axis=1), -np.inf))

    @cached_property
    def arguments(self) -> Float64:
        """What the exponential is taken of: ``(x - row maximum) / rms``, never positive."""
        with np.errstate(invalid="ignore"):
            return (self._x - self.row_maxima[:, None]) * self.row_inverse_rms[:, None]

    @cached_property
    def exponentials(self) -> Float64:
        return np.exp(self.arguments)

    @cached_property
    def row_exponential_sums(self) -> Float64:
        return np.asarray(self.exponentials.sum(axis=1))

    @cached_property
    def y(self) -> Float64:
        return self.exponentials / self.row_exponential_sums[:, None]

    @cached_property
    def weighted_exponentials(self) -> Float64:
        """Each exponential times the magnitude of its argument: how an argument's relative error shows."""
        return self.exponentials * np.abs(self.arguments)


def sum_over_tiles(elements: Float64, tile: int) -> Float64:
    """Sums of ``tile`` neighbouring elements of each row, the last perhaps of fewer."""
    return np.asarray(np.add.reduceat(elements, np.arange(0, elements.shape[1], tile), axis=1))
