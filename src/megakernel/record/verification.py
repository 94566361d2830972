"""What verifying one executable left behind."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from megakernel.operator.checks import Check, passed
from megakernel.record.facts import DeviceFacts
from megakernel.record.plan import Plan, Submission


@dataclass(frozen=True)
class Verification:
    """The checks, and what an audit needs to repeat them.

    Attributes:
        fixture: the input's name.
        output_sha256: of the output's bytes; empty where there is no output.
        output_row: the output's row ``output_row_index``, float32.
        intermediates: tile and row quantities in full, float32, by the reference's name.
    """

    fixture: str
    checks: tuple[Check, ...]
    output_sha256: str = ""
    output_row_index: int = 0
    output_row: NDArray[np.float32] | None = None
    intermediates: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return passed(self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)


@dataclass(frozen=True)
class Result:
    """A verification, and of what; on the emulator also the seed of its interleaving."""

    device: DeviceFacts
    plan: Plan
    submission: Submission
    verification: Verification
    seed: int = 0
