"""When launches run on the GPU, by its own clock."""

from itertools import pairwise

import pytest

from megakernel.device.face import Device
from megakernel.operator.contract import Problem
from megakernel.run.trace import out_of_order, trace
from megakernel.variants.catalogue import CATALOGUE

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["unfused", "local_recompute", "local2_recompute", "row_retained"])
def test_launches_run_in_order(gpu: Device, name: str) -> None:
    spans = trace(gpu, CATALOGUE[name], Problem(64))
    assert len(spans) == {"unfused": 9, "local_recompute": 3, "local2_recompute": 2, "row_retained": 2}[name]
    assert out_of_order(spans) == []
    assert all(span.end_ns > span.begin_ns for span in spans)


def test_programmatic_launches_overlap(gpu: Device) -> None:
    """What the edge is for; and it shows that the trace would see an overlap."""
    spans = trace(gpu, CATALOGUE["local_recompute_pdl"], Problem(16))
    assert any(after.begin_ns < before.end_ns for before, after in pairwise(spans))
    assert out_of_order(spans) == []
