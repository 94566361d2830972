"""The timing protocol and the device's state, as data."""

import math

import pytest
from tests.unit.fakes import FACTS

from megakernel.errors import UsageError
from megakernel.record.facts import DeviceState
from megakernel.record.protocol import EMULATED, METRICS, Protocol


def test_the_defaults_are_the_published_protocol() -> None:
    protocol = Protocol()
    assert (protocol.rounds, protocol.warmups, protocol.singles, protocol.batch) == (21, 10, 32, 32)
    assert EMULATED.rounds >= 1
    assert METRICS == ("host_completion", "host_enqueue", "host_batch_completion", "event_interval")


@pytest.mark.parametrize("name", ["rounds", "singles", "batch"])
@pytest.mark.parametrize("value", [0, -1])
def test_counts_of_samples_are_positive(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"^{name} is {value}: give 1 to 1000000$"):
        Protocol(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["warmups", "pilot_repeats"])
def test_counts_of_preparations_may_be_zero_but_not_negative(name: str) -> None:
    assert getattr(Protocol(**{name: 0}), name) == 0  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"^{name} is -1: give 0 to 1000000$"):
        Protocol(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 1e12])
def test_the_watchdog_waits_for_some_time_but_not_forever(seconds: float) -> None:
    # A thread can wait for some 292 years; beyond that it dies at once, and nobody watches.
    with pytest.raises(UsageError, match=r"^watchdog is .* s: give "):
        Protocol(watchdog_s=seconds)


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 2**70])
def test_a_seed_that_the_file_cannot_hold_is_refused_before_measuring(seed: int) -> None:
    with pytest.raises(UsageError, match=r"^seed is "):
        Protocol(order_seed=seed)


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [
        (None, False),
        (0, False),
        (0x1, False),  # idle
        (0x2, False),  # clocks set by the user
        (0x10, False),  # sync boost
        (0x100, False),  # display
        (0x113, False),
        (0x4, True),  # software power cap
        (0x8, True),  # hardware slowdown
        (0x20, True),  # software thermal
        (0x40, True),  # hardware thermal
        (0x80, True),  # power brake
        (0x1 | 0x4, True),
    ],
)
def test_only_power_and_heat_count_as_throttling(reasons: int | None, throttled: bool) -> None:
    assert DeviceState(throttle_reasons=reasons).throttled is throttled


def test_the_architecture_is_named_for_the_compiler() -> None:
    assert FACTS.arch == "sm_90"
