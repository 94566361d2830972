"""A plain float32 implementation passes every check, whatever the input."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from megakernel.operator.checks import check_quantity
from megakernel.operator.contract import Problem
from megakernel.operator.reference import Reference
from megakernel.operator.tolerances import TOLERANCES

Float32 = NDArray[np.float32]


def plain_float32(x: Float32, eps: float, tile: int) -> dict[str, Float32]:
    """The operator step by step, every value rounded to float32; the inverse RMS only once."""
    rows, width = x.shape
    ragged = -width % tile

    def by_tile(elements: Float32, padding: float) -> Float32:
        padded = np.pad(elements, ((0, 0), (0, ragged)), constant_values=np.float32(padding))
        return padded.reshape(rows, -1, tile)

    squares = x * x
    square_sums = by_tile(squares, 0).sum(axis=2)
    tile_maxima = by_tile(x, -np.inf).max(axis=2)
    mean = np.square(x.astype(np.float64)).mean(axis=1)
    inverse_rms = (1 / np.sqrt(mean + np.float32(eps))).astype(np.float32)
    maxima = tile_maxima.max(axis=1)
    arguments = (x - maxima[:, None]) * inverse_rms[:, None]
    exponentials = np.exp(arguments)
    sums = by_tile(exponentials, 0).sum(axis=2)
    row_sums = sums.sum(axis=1)
    return {
        "squares": squares,
        "tile_square_sums": square_sums,
        "tile_maxima": tile_maxima,
        "row_square_sums": square_sums.sum(axis=1),
        "row_inverse_rms": inverse_rms,
        "row_maxima": maxima,
        "arguments": arguments,
        "exponentials": exponentials,
        "tile_exponential_sums": sums,
        "row_exponential_sums": row_sums,
        "y": exponentials / row_sums[:, None],
    }


def assert_right(x: Float32, eps: float, tile: int) -> None:
    reference = Reference(x, Problem(x.shape[0], x.shape[1], eps))
    values = plain_float32(x, eps, tile)
    assert values.keys() == TOLERANCES.keys()
    for name, value in values.items():
        assert value.dtype == np.float32
        for check in check_quantity(name, value, reference, tile):
            assert check.passed, str(check)


@given(
    arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 90)), elements=st.floats(-1024, 1024, width=32)),
    st.sampled_from([1e-5, 1e-3, 1.0]),
    st.integers(1, 128),
)
def test_any_input_within_the_contract(x: Float32, eps: float, tile: int) -> None:
    assert_right(x, eps, tile)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.integers(1, 5000),
    st.sampled_from([1e-42, 1e-20, 1e-3, 1.0, 100.0]),
    st.sampled_from([0, 1, 37]),
    st.sampled_from([8.0, 60.0, 1024.0]),
    st.sampled_from([128, 512, 4096]),
)
def test_wide_rows_of_any_scale_with_a_few_outliers(
    seed: int, rows: int, width: int, scale: float, outliers: int, size: float, tile: int
) -> None:
    # Large arguments of the exponential: their roundings show in small outputs.
    random = np.random.default_rng(seed)
    x = np.clip(random.standard_normal((rows, width)) * scale, -1024, 1024).astype(np.float32)
    for row in x:
        row[random.integers(0, width, outliers)] = random.choice([-size, size], outliers)
    assert_right(x, 1e-5, tile)


@given(st.integers(2, 300), st.floats(2.0**-149, 1024, width=32), st.booleans())
def test_rows_of_one_value_are_uniform(width: int, value: float, negative: bool) -> None:
    x = np.full((2, width), -value if negative else value, np.float32)
    y = plain_float32(x, 1e-5, 128)["y"]
    assert (y == y[0, 0]).all()
    assert_right(x, 1e-5, 128)
