"""Inputs: frozen, reproducible in any part, and each with the property it was made for."""

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from megakernel.errors import UsageError
from megakernel.operator.contract import MAX_MAGNITUDE, Problem
from megakernel.operator.fixtures import ALL_FIXTURES, BROKEN_FIXTURES, FIXTURES, hashed, make

SHAPES = [(1, 1), (2, 1), (1, 7), (3, 1000), (16, 4096), (5, 5003)]
Array = NDArray[np.float32]


def test_the_timing_fixture_is_frozen() -> None:
    # Results are only comparable while the input is the same to the last bit.
    block = hashed(3, 1000)
    assert block[0, :4].tolist() == [6.4130859375, -2.9951171875, 1.1630859375, -1.9638671875]
    assert block[1, :3].tolist() == [-2.45703125, 4.0615234375, 5.9501953125]
    assert block[2, -3:].tolist() == [-4.3017578125, 5.4443359375, -7.68359375]
    digest = hashlib.sha256(block.tobytes()).hexdigest()
    assert digest == "11716c082584353b862add12d55347eb694c1250af7002729d5b2595cae7032c"


def test_the_timing_fixture_of_another_seed_and_of_a_far_row_is_frozen() -> None:
    assert hashed(1, 4, seed=42)[0].tolist() == [3.1640625, 4.4140625, 2.181640625, 2.646484375]
    assert hashed(1, 2, first_row=2**31 - 2)[0].tolist() == [7.431640625, 6.9453125]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 9), st.integers(1, 8), st.integers(1, 200), st.data())
def test_a_row_made_alone_equals_that_row_of_the_block(
    seed: int, first_row: int, rows: int, width: int, data: st.DataObject
) -> None:
    row = data.draw(st.integers(0, rows - 1))
    narrow = data.draw(st.integers(1, width))
    block = hashed(rows, width, seed=seed, first_row=first_row)
    alone = hashed(1, narrow, seed=seed, first_row=first_row + row)
    np.testing.assert_array_equal(alone[0], block[row, :narrow])


def test_timing_values_are_steps_of_1_1024_spread_evenly_over_their_range() -> None:
    x = hashed(2, 65_536).astype(np.float64)
    assert x.min() == -8
    assert x.max() == 8
    np.testing.assert_array_equal(x * 1024, np.round(x * 1024))
    counts, _ = np.histogram(x, 16, (-8, 8))
    expected = x.size / 16
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    assert abs(x.mean()) < 5 * x.std() / np.sqrt(x.size)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (hashed(1, 20_000), hashed(1, 20_000, seed=42)),
        (hashed(1, 20_000), hashed(1, 20_000, first_row=1)),
        (hashed(1, 20_000)[:, :-1], hashed(1, 20_000)[:, 1:]),
    ],
    ids=["seeds", "rows", "columns"],
)
def test_neighbouring_seeds_rows_and_columns_are_unrelated(a: Array, b: Array) -> None:
    assert abs(np.corrcoef(a[0], b[0])[0, 1]) < 0.04


@pytest.mark.parametrize(("rows", "width"), SHAPES)
@pytest.mark.parametrize("name", ALL_FIXTURES)
def test_a_fixture_is_a_contiguous_float32_array_of_the_problem(name: str, rows: int, width: int) -> None:
    x = make(name, Problem(rows, width))
    assert x.shape == (rows, width)
    assert x.dtype == np.float32
    assert x.flags.c_contiguous
    np.testing.assert_array_equal(x, make(name, Problem(rows, width)))


@pytest.mark.parametrize(("rows", "width"), SHAPES)
@pytest.mark.parametrize("name", FIXTURES)
def test_a_fixture_keeps_the_contract(name: str, rows: int, width: int) -> None:
    x = make(name, Problem(rows, width))
    assert np.isfinite(x).all()
    assert np.abs(x).max() <= MAX_MAGNITUDE


@pytest.mark.parametrize("name", BROKEN_FIXTURES)
def test_a_broken_fixture_breaks_only_the_second_row(name: str) -> None:
    x = make(name, Problem(3, 1000))
    with np.errstate(over="ignore"):
        square_sums = np.square(x).sum(axis=1)
    assert np.isfinite(square_sums).tolist() == [True, False, True]
    np.testing.assert_array_equal(x[[0, 2]], hashed(3, 1000)[[0, 2]])


@pytest.mark.parametrize("name", BROKEN_FIXTURES)
def test_a_broken_fixture_breaks_its_only_row(name: str) -> None:
    with np.errstate(over="ignore"):
        assert not np.isfinite(np.square(make(name, Problem(1, 5))).sum())


PROPERTIES: dict[str, Callable[[Array], object]] = {
    "timing": lambda x: np.array_equal(x, hashed(*x.shape)),
    "zeros": lambda x: not x.any() and not np.signbit(x).any(),
    "negative_zeros": lambda x: not x.any() and np.signbit(x).all(),
    "constant": lambda x: x[0, 0] != 0 and (x == x[0, 0]).all(),
    "one_hot_positive": lambda x: (np.count_nonzero(x, axis=1) == 1).all() and (x.max(axis=1) == 1024).all(),
    "one_hot_negative": lambda x: (np.count_nonzero(x, axis=1) == 1).all() and (x.min(axis=1) == -1024).all(),
    "alternating": lambda x: (np.abs(x) == 1024).all() and (x[:, 1:] == -x[:, :-1]).all(),
    "ramp": lambda x: all(abs(np.sign(np.diff(row)).sum()) == len(row) - 1 for row in x),
    "tiny": lambda x: np.square(x).mean(axis=1).min() > 1e-7 and np.square(x).mean(axis=1).max() < 1e-5,
    "denormal": lambda x: x.any() and np.abs(x).max() < np.finfo(np.float32).smallest_normal,
    "negative": lambda x: (x < 0).all(),
    "repeated_maxima": lambda x: ((x == x.max(axis=1, keepdims=True)).sum(axis=1) > 20).all(),
    "outlier": lambda x: bool((x == 40).sum() == x.shape[0] and np.sort(np.abs(x), axis=1)[:, -2].max() <= 1),
    "maxima_at_tile_edges": lambda x: _at_tile_edges(x),
    "scaled_rows": lambda x: len({int(np.log2(np.abs(row).max())) for row in x}) >= 8,
}


def _at_tile_edges(x: Array) -> bool:
    places = x.argmax(axis=1)
    alone = (x == x.max(axis=1, keepdims=True)).sum(axis=1) == 1
    at_edges = (places % 128 == 0) | (places % 128 == 127) | (places == x.shape[1] - 1)
    return bool(alone.all() and at_edges.all() and len(set(places.tolist())) >= 10)


@pytest.mark.parametrize("name", FIXTURES)
def test_a_fixture_has_the_property_that_it_is_for(name: str) -> None:
    assert PROPERTIES[name](make(name, Problem(16, 5003)))


def test_an_unknown_fixture_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown fixture 'zero': choose from timing, .*zeros.*, overflow$"):
        make("zero", Problem(1, 1))
