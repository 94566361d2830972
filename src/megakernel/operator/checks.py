"""Compares what a kernel wrote with the reference. A check measures one thing and has a name.

Before a kernel runs, what it will write is filled with ``POISON``, a signalling NaN: arithmetic turns it
into a quiet one, so that a poisoned word found afterwards was never written, and a NaN that
poisoned data led to is told apart from it.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from megakernel.operator.reference import Float64, Reference
from megakernel.operator.tolerances import OUTPUT_OF_ROW_MAXIMUM, OUTPUT_ROW_SUM, Tolerance, allowed_error

Float32 = NDArray[np.float32]

POISON = 0xFFA5A5A5


@dataclass(frozen=True)
class Check:
    """One check of one quantity.

    Attributes:
        name: what was checked, as ``quantity.check``.
        passed: the verdict.
        measured: the worst value found, in units of ``allowed``'s meaning.
        allowed: the most that passes.
        detail: where the worst value lies, in words.
    """

    name: str
    passed: bool
    measured: float
    allowed: float
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail or 'as expected'} (measured {self.measured:.4g}, allowed {self.allowed:.4g})"


def passed(checks: Iterable[Check]) -> bool:
    """Whether there are checks at all and each passed."""
    listed = list(checks)
    return bool(listed) and all(check.passed for check in listed)


def _count(name: str, wrong: NDArray[np.bool_], what: str) -> Check:
    count = int(np.count_nonzero(wrong))
    detail = ""
    if count:
        first = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        detail = f"{count} of {wrong.size} values {what}, the first at {_place(first)}"
    return Check(name, count == 0, float(count), 0.0, detail)


def _check_nan_rows(name: str, actual: Float32, expected: Float64) -> Check:
    """NaN that is expected passes, and is reported."""
    check = _count(f"{name}.nan_rows", np.isnan(actual) != np.isnan(expected), "are NaN, or are not, wrongly")
    count = int(np.count_nonzero(np.isnan(expected)))
    return replace(check, detail=f"{count} values are NaN, as they must be") if check.passed and count else check


def _place(index: tuple[int, ...]) -> str:
    return ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), index, strict=False))


def _worst(name: str, error: Float64, allowed: Float64, actual: Float32, expected: Float64) -> Check:
    """The error farthest beyond its bound, as a multiple of the bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / allowed)
    # An expected NaN has been compared by `nan_rows`; any other NaN here is a wrong value.
    ratio = np.where(np.isnan(expected), 0.0, np.where(np.isnan(ratio), np.inf, ratio))
    at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    worst = float(ratio[at])
    place = _place(tuple(int(i) for i in at))
    detail = f"{float(actual[at]):.9g} instead of {float(expected[at]):.9g} at {place}" if worst else "exact"
    return Check(name, worst <= 1.0, worst, 1.0, detail)


def _as_float32_range(expected: Float64) -> Float64:
    """Values beyond float32 as the infinity that float32 arithmetic gives."""
    beyond = np.abs(expected) > np.finfo(np.float32).max
    return np.where(beyond, np.copysign(np.inf, expected), expected)


def check_quantity(
    name: str, actual: Float32, reference: Reference, tile: int, tolerance: Tolerance | None = None
) -> list[Check]:
    """Checks one quantity: written everywhere, NaN where and only where expected, accurate.

    The output ``y`` is also checked against its row's maximum, for its row sums and for negative values.

    What was found is kept with the reference: replays, both submissions and many variants give the same bytes, and a
    digest of them is far cheaper than a comparison.

    Args:
        name: the quantity's name.
        actual: what the kernel wrote, float32 of the quantity's shape.
        reference: the reference of the same input.
        tile: elements in a tile.
        tolerance: instead of the table's.
    """
    digest = hashlib.sha256(np.ascontiguousarray(actual).data).digest()
    key = (name, tile, tolerance, actual.shape, digest)
    if key not in reference.verdicts:
        reference.verdicts[key] = tuple(_checked(name, actual, reference, tile, tolerance))
    return list(reference.verdicts[key])


def _checked(name: str, actual: Float32, reference: Reference, tile: int, tolerance: Tolerance | None) -> list[Check]:
    expected = _as_float32_range(reference.quantity(name, tile))
    unwritten = actual.view(np.uint32) == np.uint32(POISON)
    checks = [
        _count(f"{name}.written", unwritten, "not written"),
        _check_nan_rows(name, actual, expected),
    ]
    with np.errstate(invalid="ignore"):  # signalling NaN, and infinities that cancel
        wide = actual.astype(np.float64)
        error = np.abs(wide - expected)
    error[wide == expected] = 0.0  # equal infinities
    checks.append(_worst(f"{name}.accuracy", error, allowed_error(name, reference, tile, tolerance), actual, expected))
    if name == "y":
        checks += _check_output(actual, expected, error)
    return checks


def _check_output(actual: Float32, expected: Float64, error: Float64) -> list[Check]:
    row_maximum = expected.max(axis=1, keepdims=True)
    allowed = np.broadcast_to(OUTPUT_OF_ROW_MAXIMUM * row_maximum, expected.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        row_sums = actual.sum(axis=1, dtype=np.float64)
        shown_sums = row_sums.astype(np.float32)
    expected_sums = np.where(np.isnan(expected[:, 0]), np.nan, 1.0)
    return [
        _worst("y.row_maximum_error", error, allowed, actual, expected),
        _worst(
            "y.row_sums",
            np.abs(row_sums - expected_sums),
            np.full(row_sums.shape, OUTPUT_ROW_SUM),
            shown_sums,
            expected_sums,
        ),
        _count("y.non_negative", actual < 0, "are negative"),
    ]
