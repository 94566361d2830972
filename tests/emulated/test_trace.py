"""The stamps of instrumented kernels, which the emulator runs like any others: launches follow one another."""

import pytest

from megakernel.device.emulator import Emulator
from megakernel.operator.contract import Problem
from megakernel.run.trace import out_of_order, trace
from tests.emulated.checking import EMULATED, SMALL, UNALIGNED


@pytest.mark.parametrize("name", ["local_recompute_pdl", "control_both", "rms_cudnn"])
def test_every_launch_is_stamped_in_order(emulator: Emulator, name: str) -> None:
    variant = EMULATED[name]
    spans = trace(emulator, variant, Problem(2, UNALIGNED), SMALL)

    assert [span.kernel.partition("<")[0] for span in spans] == [s.kernel.partition("<")[0] for s in variant.stages]
    assert [span.programmatic for span in spans] == [stage.programmatic for stage in variant.stages]
    assert all(span.end_ns > span.begin_ns >= 0 for span in spans)
    assert out_of_order(spans) == []
