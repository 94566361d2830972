"""What counts as right: one table of fixed tolerances, each with its reason.

A value passes when ``|actual - expected| <= relative * |expected| + argument * A + absolute``, where ``A`` is the
expected value weighted with the magnitude of the exponential's argument (summed like the value itself). An
exponential turns a relative error of its argument into an error that grows with the argument, so small outputs
are held to a bound of their own instead of being lost beside the row maximum.
"""

import re
from dataclasses import dataclass

import numpy as np

from megakernel.operator.reference import Float64, Reference, sum_over_tiles

ULP = 2.0**-23
_SMALLEST_DENORMAL = 2.0**-149


@dataclass(frozen=True)
class Tolerance:
    """Factors of the bound above."""

    relative: float
    argument: float
    absolute: float
    reason: str

    def within(self, other: "Tolerance") -> bool:
        """Whether it allows no more than the other, whatever the value."""
        mine, others = (self.relative, self.argument, self.absolute), (other.relative, other.argument, other.absolute)
        return all(0 <= a <= b for a, b in zip(mine, others, strict=True))


_SUM = 32 * ULP
_DENORMAL = 4 * _SMALLEST_DENORMAL
# Half an ulp each for the difference, the scale and the product, and what rsqrtf adds to the scale.
_ARGUMENT = 3 * ULP

TOLERANCES: dict[str, Tolerance] = {
    "squares": Tolerance(ULP, 0, _DENORMAL, "one rounding"),
    "tile_square_sums": Tolerance(_SUM, 0, 2**14 * _DENORMAL, "a thread adds up to 32 values, then trees of 32"),
    "tile_maxima": Tolerance(0, 0, 0, "a maximum does not round"),
    "row_square_sums": Tolerance(_SUM, 0, 2**14 * _DENORMAL, "as of a tile, and the tiles one after the other"),
    "row_inverse_rms": Tolerance(8 * ULP, 0, 0, "half the sum's error, one division and a 2-ulp rsqrtf"),
    "row_maxima": Tolerance(0, 0, 0, "a maximum does not round"),
    "arguments": Tolerance(8 * ULP, 0, _DENORMAL, "the difference, the scale's error and the product"),
    "exponentials": Tolerance(8 * ULP, _ARGUMENT, _DENORMAL, "the argument's rounding and a 2-ulp expf"),
    "tile_exponential_sums": Tolerance(_SUM, _ARGUMENT, _DENORMAL, "the exponentials' errors and those of a sum"),
    "row_exponential_sums": Tolerance(_SUM, _ARGUMENT, _DENORMAL, "the exponentials' errors and those of a sum"),
    "y": Tolerance(8 * ULP, _ARGUMENT, _DENORMAL, "the exponential's error, the sum's and the division's"),
}

# Of the output where a library's kernels made it, which add a row in an order of their own.
LIBRARY_OUTPUT = Tolerance(16 * ULP, _ARGUMENT, _DENORMAL, "as y, with a library's sum: cuDNN's was seen 9 ulp off")
OF_A_LIBRARY = "y.of_a_library"  # its name among the rules

# Of the output, besides its element-wise bound.
OUTPUT_OF_ROW_MAXIMUM = 2e-6
OUTPUT_ROW_SUM = 1e-5


def acceptance_rules() -> dict[str, str]:
    """The tolerance table as text."""
    rules = {
        name: f"{t.relative:.9g} relative + {t.argument:.9g} x weighted argument + {t.absolute:.9g} ({t.reason})"
        for name, t in {**TOLERANCES, OF_A_LIBRARY: LIBRARY_OUTPUT}.items()
    }
    rules["y.row_maximum_error"] = f"{OUTPUT_OF_ROW_MAXIMUM:.9g} of the row's maximum"
    rules["y.row_sums"] = f"1 within {OUTPUT_ROW_SUM:.9g}"
    return rules


_RULE = re.compile(r"(\S+) relative \+ (\S+) x weighted argument \+ (\S+)(?: \((.*)\))?")


def parse_rule(text: str) -> Tolerance | None:
    """The tolerance that ``acceptance_rules`` wrote; None where the text is no such rule."""
    match = _RULE.fullmatch(text)
    try:
        return Tolerance(float(match[1]), float(match[2]), float(match[3]), match[4] or "") if match else None
    except ValueError:
        return None


def allowed_error(name: str, reference: Reference, tile: int, tolerance: Tolerance | None = None) -> Float64:
    """The largest error allowed for each value of a quantity, in the quantity's shape. Kept with the reference, unless
    a tolerance is given instead of the table's.
    """
    if tolerance is not None:
        return _allowed_error(name, reference, tile, tolerance)
    key = (name, tile if name.startswith("tile_") else 0)
    if key not in reference.allowed_errors:
        reference.allowed_errors[key] = _allowed_error(name, reference, tile, TOLERANCES[name])
    return reference.allowed_errors[key]


def _allowed_error(name: str, reference: Reference, tile: int, tolerance: Tolerance) -> Float64:
    expected = reference.quantity(name, tile)
    with np.errstate(invalid="ignore"):
        allowed = tolerance.relative * np.abs(expected) + tolerance.absolute
    if tolerance.argument:
        allowed = allowed + tolerance.argument * _weighted(name, reference, tile)
    return np.asarray(allowed)


def _weighted(name: str, reference: Reference, tile: int) -> Float64:
    """The quantity with each exponential in it weighted with the magnitude of its argument."""
    weighted = reference.weighted_exponentials
    if name == "tile_exponential_sums":
        return sum_over_tiles(weighted, tile)
    if name == "row_exponential_sums":
        return np.asarray(weighted.sum(axis=1))
    if name == "y":
        return weighted / reference.row_exponential_sums[:, None]
    return weighted
