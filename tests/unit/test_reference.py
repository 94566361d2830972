"""The float64 reference, against the formula written out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from megakernel.operator.contract import BENCHMARK_WIDTH, Problem
from megakernel.operator.fixtures import BROKEN_FIXTURES, FIXTURES, make
from megakernel.operator.reference import Reference

UNIFORM = 2.0**-17
INPUTS = arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 40)),
    elements=st.floats(-1024, 1024, width=32),
)


def of(x: NDArray[np.float32], eps: float = 1e-5) -> Reference:
    return Reference(x, Problem(x.shape[0], x.shape[1], eps))


def naive_row(x: list[float], eps: float) -> list[float]:
    mean = math.fsum(v * v for v in x) / len(x)
    scaled = [v / math.sqrt(mean + eps) for v in x]
    exponentials = [math.exp(v - max(scaled)) for v in scaled]
    return [e / math.fsum(exponentials) for e in exponentials]


@given(INPUTS, st.sampled_from([1e-5, 1e-12, 0.5]))
def test_y_equals_the_formula_in_full_precision(x: NDArray[np.float32], eps: float) -> None:
    expected = [naive_row(row, float(np.float32(eps))) for row in x.tolist()]
    np.testing.assert_allclose(of(x, eps).y, expected, rtol=1e-12, atol=1e-300)


@given(INPUTS, st.integers(1, 50))
def test_intermediates_equal_their_formulas(x: NDArray[np.float32], tile: int) -> None:
    reference = of(x)
    rows = x.tolist()
    tiles = [[row[i : i + tile] for i in range(0, len(row), tile)] for row in rows]
    square_sums = [[math.fsum(v * v for v in part) for part in row] for row in tiles]
    np.testing.assert_allclose(reference.quantity("tile_square_sums", tile), square_sums, rtol=1e-14)
    np.testing.assert_array_equal(reference.quantity("tile_maxima", tile), [[max(p) for p in row] for row in tiles])
    np.testing.assert_array_equal(reference.quantity("row_maxima", tile), [max(row) for row in rows])
    np.testing.assert_array_equal(reference.quantity("squares", tile), [[v * v for v in row] for row in rows])
    inverse = [1 / math.sqrt(math.fsum(v * v for v in row) / len(row) + float(np.float32(1e-5))) for row in rows]
    np.testing.assert_allclose(reference.quantity("row_inverse_rms", tile), inverse, rtol=1e-14)
    exponentials = [[math.exp((v - max(row)) * scale) for v in row] for row, scale in zip(rows, inverse, strict=True)]
    np.testing.assert_allclose(reference.quantity("exponentials", tile), exponentials, rtol=1e-11, atol=1e-300)
    sums = [math.fsum(row) for row in exponentials]
    np.testing.assert_allclose(reference.quantity("row_exponential_sums", tile), sums, rtol=1e-11)
    of_tiles = [[math.fsum(row[i : i + tile]) for i in range(0, len(row), tile)] for row in exponentials]
    np.testing.assert_allclose(reference.quantity("tile_exponential_sums", tile), of_tiles, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-40, -1e-40, 3.25, -1024.0, 1024.0, 1e16])
def test_a_row_of_equal_values_is_exactly_uniform(value: float) -> None:
    y = of(np.full((1, BENCHMARK_WIDTH), value, np.float32)).y
    assert (y == UNIFORM).all()


def test_a_single_large_value_takes_everything() -> None:
    # After RMS it is 362, beyond exp(88): without subtracting the maximum this row is NaN.
    x = np.zeros((1, BENCHMARK_WIDTH), np.float32)
    x[0, 77] = 1024
    y = of(x).y
    assert y[0, 77] == 1.0
    others = np.delete(y[0], 77)
    assert others.max() < 1e-150
    assert (others.astype(np.float32) == 0).all()


def test_a_single_negative_value_leaves_the_others_uniform() -> None:
    x = np.zeros((1, BENCHMARK_WIDTH), np.float32)
    x[0, 77] = -1024
    y = of(x).y
    np.testing.assert_allclose(np.delete(y[0], 77), 1 / (BENCHMARK_WIDTH - 1), rtol=1e-13)
    assert y[0, 77] < 1e-150


@pytest.mark.parametrize("name", BROKEN_FIXTURES)
def test_a_row_outside_the_contract_is_all_nan_and_leaves_the_others_exact(name: str) -> None:
    # NaN must not be lost in a maximum, nor infinity become a plausible uniform row.
    problem = Problem(3, 1000)
    broken, intact = Reference(make(name, problem), problem), Reference(make("timing", problem), problem)
    for quantity in ("y", "exponentials", "row_exponential_sums", "row_inverse_rms"):
        found, good = broken.quantity(quantity, 256), intact.quantity(quantity, 256)
        assert np.isnan(found[1]).all(), quantity
        np.testing.assert_array_equal(found[[0, 2]], good[[0, 2]])


@pytest.mark.parametrize(("value", "finite"), [(1.8446e19, True), (1.8448e19, False), (-1.8448e19, False)])
def test_a_row_is_outside_from_where_its_sum_of_squares_overflows_float32(value: float, finite: bool) -> None:
    assert np.isfinite(of(np.array([[value]], np.float32)).y[0, 0]) == finite


def test_a_nan_loses_against_a_number_in_a_maximum_as_on_the_hardware() -> None:
    # The row becomes NaN through its sum of squares; its maxima stay those of the numbers.
    reference = of(np.array([[1, np.nan, -3, np.nan, np.nan, 2]], np.float32))
    assert reference.quantity("tile_maxima", 2).tolist() == [[1, -3, 2]]
    assert reference.quantity("tile_maxima", 1)[0, 1] == -np.inf
    assert reference.row_maxima.tolist() == [2]
    assert np.isnan(reference.quantity("tile_square_sums", 2)).tolist() == [[True, True, True]]


def test_a_row_of_nothing_but_nan_is_nan() -> None:
    reference = of(np.full((2, 9), np.nan, np.float32))
    assert np.isnan(reference.y).all()
    assert (reference.quantity("tile_maxima", 4) == -np.inf).all()


@pytest.mark.parametrize("name", FIXTURES)
def test_rows_do_not_depend_on_each_other(name: str) -> None:
    x = make(name, Problem(4, 333))
    together = of(x).y
    for row in range(4):
        np.testing.assert_array_equal(of(x[row : row + 1]).y[0], together[row])


def test_eps_is_what_a_kernel_gets_not_what_was_typed() -> None:
    x = np.zeros((1, 4), np.float32)
    assert of(x, 0.1).row_inverse_rms[0] == 1 / math.sqrt(float(np.float32(0.1)))


@pytest.mark.parametrize("x", [np.zeros((2, 3), np.float64), np.zeros((3, 2), np.float32), np.zeros(6, np.float32)])
def test_an_input_of_another_shape_or_type_is_refused(x: NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match=r"not float32 \(2, 3\)"):
        Reference(x, Problem(2, 3))
