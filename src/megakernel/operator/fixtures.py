"""Inputs, each made for something that goes wrong: float32 arrays of shape ``(rows, width)``.

``timing`` is the input of every measurement: a counter-based hash, so that each value depends only on
(seed, row, column) and any part can be made anywhere. Frozen by test vectors.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from megakernel.errors import UsageError
from megakernel.operator.contract import MAX_MAGNITUDE, Problem

Array = NDArray[np.float32]

TIMING_SEED = 41
_STEPS_PER_UNIT = 1024
_LARGEST_STEP = 8 * _STEPS_PER_UNIT


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), in place."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def hashed(rows: int, width: int, *, seed: int = TIMING_SEED, first_row: int = 0) -> Array:
    """Values in [-8, 8] in steps of 1/1024: the timing fixture, from row ``first_row`` on."""
    out = np.empty((rows, width), np.float32)
    columns = np.arange(width, dtype=np.uint64)
    seed_word = _mixed(np.array([seed], np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    for row in range(rows):
        words = _mixed((columns | np.uint64((first_row + row) << 32)) ^ seed_word)
        step = (words >> np.uint64(32)) * np.uint64(2 * _LARGEST_STEP + 1) >> np.uint64(32)
        out[row] = (step.astype(np.int64) - _LARGEST_STEP) / np.float32(_STEPS_PER_UNIT)
    return out


def _constant(value: float) -> Callable[[Problem], Array]:
    return lambda problem: np.full((problem.rows, problem.width), value, np.float32)


def _one_hot(value: float) -> Callable[[Problem], Array]:
    def make(problem: Problem) -> Array:
        x = np.zeros((problem.rows, problem.width), np.float32)
        rows = np.arange(problem.rows)
        x[rows, (rows * 7919 + problem.width // 3) % problem.width] = value
        return x

    return make


def _alternating(problem: Problem) -> Array:
    signs = np.where(np.arange(problem.width) % 2 == 0, 1, -1)
    return np.tile((MAX_MAGNITUDE * signs).astype(np.float32), (problem.rows, 1))


def _ramp(problem: Problem) -> Array:
    ramp = np.linspace(-MAX_MAGNITUDE, MAX_MAGNITUDE, problem.width)
    directions = np.where(np.arange(problem.rows) % 2 == 0, 1, -1)
    return (directions[:, None] * ramp[None, :]).astype(np.float32)


def _tiny(problem: Problem) -> Array:
    """Mean squares about a tenth of eps, so that eps decides the scale."""
    return hashed(problem.rows, problem.width) * np.float32(2.0**-12)


def _denormal(problem: Problem) -> Array:
    return hashed(problem.rows, problem.width) * np.float32(2.0**-130)


def _negative(problem: Problem) -> Array:
    return -np.abs(hashed(problem.rows, problem.width)) - np.float32(1)


def _repeated_maxima(problem: Problem) -> Array:
    x = hashed(problem.rows, problem.width)
    x[:, :: max(1, problem.width // 37)] = 8
    return x


def _outlier(problem: Problem) -> Array:
    """One value far above the rest: exponentials of large arguments, which magnify an error of the scale."""
    x = hashed(problem.rows, problem.width) / np.float32(8)
    x[:, problem.width // 2] = 40
    return x


def _maxima_at_tile_edges(problem: Problem) -> Array:
    """One maximum per row, at the first or last element of a tile of any power of two up to 16,384."""
    x = hashed(problem.rows, problem.width)
    edges = sorted(
        {0, problem.width - 1}
        | {e for p in range(7, 15) for e in (2**p - 1, 2**p) if e < problem.width}
        | {e for p in range(7, 15) if (e := (problem.width - 1) // 2**p * 2**p) >= 0}
    )
    for row in range(problem.rows):
        x[row, edges[row % len(edges)]] = 64
    return x


def _scaled_rows(problem: Problem) -> Array:
    """A different scale for each row: statistics taken from a neighbour's row show."""
    exponents = (np.arange(problem.rows) * 5) % 14 - 7
    return hashed(problem.rows, problem.width) * (2.0**exponents).astype(np.float32)[:, None]


FIXTURES: dict[str, Callable[[Problem], Array]] = {
    "timing": lambda problem: hashed(problem.rows, problem.width),
    "zeros": _constant(0.0),
    "negative_zeros": _constant(-0.0),
    "constant": _constant(3.25),
    "one_hot_positive": _one_hot(MAX_MAGNITUDE),
    "one_hot_negative": _one_hot(-MAX_MAGNITUDE),
    "alternating": _alternating,
    "ramp": _ramp,
    "tiny": _tiny,
    "denormal": _denormal,
    "negative": _negative,
    "repeated_maxima": _repeated_maxima,
    "outlier": _outlier,
    "maxima_at_tile_edges": _maxima_at_tile_edges,
    "scaled_rows": _scaled_rows,
}


def _with_one(value: float) -> Callable[[Problem], Array]:
    """``value`` once, in the second row (the only row where there is one)."""

    def make(problem: Problem) -> Array:
        x = hashed(problem.rows, problem.width)
        x[min(1, problem.rows - 1), problem.width // 2] = value
        return x

    return make


def _overflowing(problem: Problem) -> Array:
    x = hashed(problem.rows, problem.width)
    x[min(1, problem.rows - 1)] = 1e30
    return x


# Outside the contract: the second row must become NaN, the others stay exact.
BROKEN_FIXTURES: dict[str, Callable[[Problem], Array]] = {
    "nan": _with_one(float("nan")),
    "positive_infinity": _with_one(float("inf")),
    "negative_infinity": _with_one(float("-inf")),
    "overflow": _overflowing,
}

ALL_FIXTURES = FIXTURES | BROKEN_FIXTURES


def make(name: str, problem: Problem) -> Array:
    """The fixture of that name.

    Raises:
        UsageError: no fixture has that name.
    """
    try:
        maker = ALL_FIXTURES[name]
    except KeyError:
        raise UsageError(f"unknown fixture {name!r}: choose from {', '.join(ALL_FIXTURES)}") from None
    return maker(problem)
