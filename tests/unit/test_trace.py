"""The instrumented source, and what its stamps say."""

from dataclasses import replace

import pytest

from megakernel.device.sources import kernel_folder
from megakernel.errors import UsageError
from megakernel.run.trace import Span, instrumented, out_of_order

ORDERED = (
    Span("a", 0, 4, 0, 100, False),
    Span("b", 0, 4, 100, 180, False),
    Span("c", 0, 4, 150, 200, True),
)


def test_stages_that_follow_one_another_are_in_order() -> None:
    assert out_of_order(ORDERED) == []


def test_a_launch_that_began_too_early_is_named() -> None:
    early = (ORDERED[0], replace(ORDERED[1], begin_ns=99), ORDERED[2])
    assert out_of_order(early) == ["launch 1 (b) began 1 ns before launch 0 (a) had ended"]


def test_a_programmatic_launch_may_begin_early_but_not_end_first() -> None:
    assert out_of_order((ORDERED[0], replace(ORDERED[1], programmatic=True, begin_ns=5), ORDERED[2])) == []
    ended = (ORDERED[0], replace(ORDERED[1], programmatic=True, begin_ns=5, end_ns=90), ORDERED[2])
    assert out_of_order(ended) == ["launch 1 (b) ended before launch 0 (a)"]


@pytest.mark.parametrize("path", sorted(kernel_folder().glob("*.cu")), ids=lambda path: path.name)
def test_every_kernel_of_a_shipped_source_is_instrumented(path: object) -> None:
    source = path.read_text()  # type: ignore[attr-defined]
    text = instrumented(source)
    assert text.count("const LaunchStamp launch_stamp(launch_span);") == source.count("__global__")


def test_a_kernel_without_parameters_gets_its_first() -> None:
    assert instrumented("__global__ void empty() {}") == (
        '#include "trace.cuh"\n__global__ void empty(LaunchSpan* launch_span) {'
        " const LaunchStamp launch_stamp(launch_span);}"
    )


def test_a_kernel_in_a_form_that_would_be_missed_is_refused() -> None:
    source = "__global__ void a() {} __global__ void __cluster_dims__(2, 1, 1) b(float* y) {}"
    with pytest.raises(UsageError, match=r"^1 kernels to trace were found"):
        instrumented(source)


def test_a_source_without_kernels_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^0 kernels to trace were found"):
        instrumented("int x;")
