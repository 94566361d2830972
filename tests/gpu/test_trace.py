"""When launches run on the GPU, by its own clock."""

import pytest
from tests.gpu.planted import EARLY_PAIR, ORDERLY_PAIR

from megakernel.device.face import Device
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS, Submission
from megakernel.run.trace import out_of_order, trace
from megakernel.variants.catalogue import CATALOGUE

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("submission", SUBMISSIONS)
@pytest.mark.parametrize(
    "name", ["unfused", "local_recompute", "local_recompute_pdl", "local2_recompute", "row_retained"]
)
def test_launches_run_in_order(gpu: Device, name: str, submission: Submission) -> None:
    launches = {"unfused": 9, "local_recompute": 3, "local_recompute_pdl": 3, "local2_recompute": 2, "row_retained": 2}
    spans = trace(gpu, CATALOGUE[name], Problem(64), submission=submission)
    assert len(spans) == launches[name]
    assert out_of_order(spans) == []
    assert all(span.end_ns > span.begin_ns for span in spans)


@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_a_programmatic_launch_starts_while_the_one_before_runs(gpu: Device, submission: Submission) -> None:
    """Direct and in a graph the attribute is there and works; without it the same kernels follow one another."""
    before, after = trace(gpu, EARLY_PAIR, Problem(1, 4096), submission=submission)
    assert after.begin_ns < before.end_ns <= after.end_ns
    before, after = trace(gpu, ORDERLY_PAIR, Problem(1, 4096), submission=submission)
    assert before.end_ns <= after.begin_ns
