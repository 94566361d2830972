"""Every check lets a correctly rounded array pass and fails on an array that is wrong in one place."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from megakernel.operator import checks
from megakernel.operator.checks import POISON, Check, check_quantity, passed
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import ALL_FIXTURES, make
from megakernel.operator.reference import Reference
from megakernel.operator.tolerances import LIBRARY_OUTPUT, TOLERANCES, ULP, allowed_error

TILE = 256
PROBLEM = Problem(4, 1000)  # the last tile is ragged
TIMING = Reference(make("timing", PROBLEM), PROBLEM)
BROKEN = Reference(make("nan", PROBLEM), PROBLEM)
Float32 = NDArray[np.float32]


def rounded(name: str, reference: Reference = TIMING) -> Float32:
    """What a perfect kernel writes."""
    with np.errstate(over="ignore"):
        return reference.quantity(name, TILE).astype(np.float32)


def verdicts(name: str, actual: Float32, reference: Reference = TIMING) -> dict[str, Check]:
    return {check.name: check for check in check_quantity(name, actual, reference, TILE)}


def failed(name: str, actual: Float32, reference: Reference = TIMING) -> set[str]:
    return {check for check, verdict in verdicts(name, actual, reference).items() if not verdict.passed}


def poison(array: Float32, where: Any) -> None:
    array.view(np.uint32)[where] = POISON


@pytest.mark.parametrize("fixture", ALL_FIXTURES)
@pytest.mark.parametrize("name", TOLERANCES)
def test_correctly_rounded_values_pass_with_finite_figures(name: str, fixture: str) -> None:
    # Zeros, infinities and rows of NaN included: an error relative to zero must not become NaN or infinite.
    reference = Reference(make(fixture, PROBLEM), PROBLEM)
    checks = check_quantity(name, rounded(name, reference), reference, TILE)
    assert passed(checks), [str(check) for check in checks if not check.passed]
    assert all(math.isfinite(check.measured) and math.isfinite(check.allowed) for check in checks)


@pytest.mark.parametrize("name", TOLERANCES)
def test_one_value_never_written_fails(name: str) -> None:
    actual = rounded(name)
    poison(actual.reshape(-1), -1)
    verdict = verdicts(name, actual)[f"{name}.written"]
    assert not verdict.passed
    assert verdict.measured == 1
    assert "not written" in verdict.detail
    assert "row 3" in verdict.detail


@pytest.mark.parametrize("name", TOLERANCES)
def test_one_nan_too_many_fails(name: str) -> None:
    actual = rounded(name)
    actual.reshape(-1)[7 % actual.size] = np.nan
    assert {f"{name}.nan_rows", f"{name}.accuracy"} <= failed(name, actual)


@pytest.mark.parametrize("name", ["exponentials", "tile_exponential_sums", "row_inverse_rms", "y"])
@pytest.mark.parametrize("value", [0.0, 1e-3, np.inf])
def test_a_finite_or_infinite_value_where_nan_belongs_fails(name: str, value: float) -> None:
    actual = rounded(name, BROKEN)
    assert np.isnan(actual[1]).all()
    actual[1:2].reshape(-1)[0] = value
    assert f"{name}.nan_rows" in failed(name, actual, BROKEN)


def test_a_plausible_uniform_row_where_nan_belongs_fails() -> None:
    actual = rounded("y", BROKEN)
    actual[1] = 1 / PROBLEM.width
    assert "y.nan_rows" in failed("y", actual, BROKEN)


def test_a_quiet_nan_made_from_poison_is_a_wrong_value_not_a_missing_one() -> None:
    actual = rounded("y")
    actual.view(np.uint32)[2, 5] = POISON | 0x0040_0000
    assert {"y.nan_rows"} == failed("y", actual) - {"y.accuracy", "y.row_maximum_error", "y.row_sums"}


@pytest.mark.parametrize("name", TOLERANCES)
@given(st.data())
def test_any_one_value_just_within_its_bound_passes_and_just_beyond_it_fails(name: str, data: st.DataObject) -> None:
    expected, allowed = TIMING.quantity(name, TILE), allowed_error(name, TIMING, TILE)
    at = data.draw(st.tuples(*(st.integers(0, n - 1) for n in expected.shape)))
    sign = data.draw(st.sampled_from([-1, 1]))
    rounding = float(np.spacing(np.float32(abs(expected[at]))))
    beyond, within = rounded(name), rounded(name)
    beyond[at] = expected[at] + sign * (allowed[at] + rounding)
    within[at] = expected[at] + sign * max(0.0, allowed[at] - rounding)
    assert f"{name}.accuracy" in failed(name, beyond)
    assert not failed(name, within)


def test_a_small_output_is_held_to_its_own_bound_not_to_the_row_maximum() -> None:
    actual = rounded("y")
    smallest = np.unravel_index(int(actual.argmin()), actual.shape)
    actual[smallest] *= np.float32(1.00003)
    assert failed("y", actual) == {"y.accuracy"}


def test_a_large_output_is_held_to_the_row_maximum() -> None:
    actual = rounded("y")
    largest = np.unravel_index(int(actual.argmax()), actual.shape)
    actual[largest] *= np.float32(1.000004)
    assert "y.row_maximum_error" in failed("y", actual)


def test_a_row_that_does_not_sum_to_one_fails() -> None:
    actual = rounded("y")
    actual[3] *= np.float32(1.00002)
    verdict = verdicts("y", actual)["y.row_sums"]
    assert not verdict.passed
    assert "row 3" in verdict.detail


def test_a_negative_output_fails_and_a_negative_zero_does_not() -> None:
    problem = Problem(4, 131_072)
    reference = Reference(make("one_hot_positive", problem), problem)  # nearly every output is below float32
    actual = reference.y.astype(np.float32)
    actual[actual == 0] = -0.0
    assert passed(check_quantity("y", actual, reference, TILE))
    actual[2, 4] = -1e-45
    assert [c.name for c in check_quantity("y", actual, reference, TILE) if not c.passed] == ["y.non_negative"]


WRONG_KERNELS: dict[str, tuple[Callable[[Float32], object], str]] = {
    "nothing written": (lambda y: poison(y, ...), "y.written"),
    "last row skipped": (lambda y: poison(y, -1), "y.written"),
    "ragged tail dropped": (lambda y: poison(y, np.s_[:, 768:]), "y.written"),
    "NaN everywhere": (lambda y: y.fill(np.nan), "y.nan_rows"),
    "zeros everywhere": (lambda y: y.fill(0), "y.row_sums"),
    "uniform everywhere": (lambda y: y.fill(1 / y.shape[1]), "y.accuracy"),
    "infinities": (lambda y: y[0].__setitem__(slice(2), [np.inf, -np.inf]), "y.row_sums"),
    "huge values": (lambda y: y.fill(3e38), "y.row_sums"),
    "rows exchanged": (lambda y: y.__setitem__(slice(2), y[1::-1].copy()), "y.accuracy"),
    "shifted by one": (lambda y: y.__setitem__(..., np.roll(y, 1, axis=1)), "y.accuracy"),
}


@pytest.mark.parametrize("wrong", WRONG_KERNELS)
def test_a_wrong_kernel_fails_by_a_named_check_and_without_warnings(wrong: str) -> None:
    edit, name = WRONG_KERNELS[wrong]
    actual = rounded("y")
    edit(actual)
    assert name in failed("y", actual)


@pytest.mark.parametrize("name", TOLERANCES)
@settings(max_examples=20)
@given(st.data())
def test_any_bits_get_a_verdict_and_never_a_warning(name: str, data: st.DataObject) -> None:
    shape = TIMING.quantity(name, TILE).shape
    word = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([POISON, 0x7F80_0000, 0xFF80_0000, 0x7F7F_FFFF]))
    bits = data.draw(arrays(np.uint32, shape, elements=word, fill=word))
    assert failed(name, bits.view(np.float32))


def test_no_check_at_all_is_not_a_pass() -> None:
    good, bad = Check("a", True, 0, 0, ""), Check("b", False, 2, 1, "row 1")
    assert not passed([])
    assert passed([good])
    assert not passed([good, bad])


def test_a_check_says_what_was_measured_and_where() -> None:
    assert str(Check("y.accuracy", False, 2.5, 1, "0 instead of 1 at row 1, column 2")) == (
        "y.accuracy: 0 instead of 1 at row 1, column 2 (measured 2.5, allowed 1)"
    )


def test_every_tolerance_has_a_reason_and_is_small() -> None:
    for name, tolerance in TOLERANCES.items():
        assert tolerance.reason, name
        assert 0 <= tolerance.relative <= 1e-5, name
        assert 0 <= tolerance.argument <= 3 * 2.0**-23, name
        assert 0 <= tolerance.absolute < 1e-37, name


def test_a_librarys_output_may_be_further_off_but_not_much() -> None:
    # 9 ulp is what cuDNN's sum was seen to cost; 17 is beyond its tolerance too.
    for ulp, ours, librarys in ((7, True, True), (9, False, True), (17, False, False)):
        actual = np.full((2, 8), 1 / 8 * (1 + ulp * ULP), np.float32)
        reference = Reference(np.ones((2, 8), np.float32), Problem(2, 8))
        for tolerance, passes in ((None, ours), (LIBRARY_OUTPUT, librarys)):
            verdict = {c.name: c.passed for c in check_quantity("y", actual, reference, 8, tolerance)}
            assert verdict["y.accuracy"] == passes


def test_the_same_bytes_are_compared_once_and_other_bytes_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    worst = checks._worst

    def counted(name: str, *rest: Any) -> Check:
        compared.append(name)
        return worst(name, *rest)

    monkeypatch.setattr(checks, "_worst", counted)
    reference = Reference(make("timing", PROBLEM), PROBLEM)
    right = rounded("y", reference)
    first = check_quantity("y", right, reference, TILE)
    done = len(compared)
    assert passed(first)
    assert check_quantity("y", right.copy(), reference, TILE) == first
    assert len(compared) == done
    wrong = right.copy()
    wrong[2, 7] *= np.float32(1.001)
    for _ in range(2):
        assert not passed(check_quantity("y", wrong, reference, TILE))
    assert passed(check_quantity("y", right, reference, TILE))
    # Another input has another verdict, whatever the bytes.
    other = Reference(make("constant", PROBLEM), PROBLEM)
    assert not passed(check_quantity("y", right, other, TILE))
