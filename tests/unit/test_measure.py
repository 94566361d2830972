"""The timing loops, with a scripted clock: what is called when, and what the figures mean."""

import gc
from collections.abc import Callable

import numpy as np
import pytest

from megakernel.errors import DeviceError
from megakernel.record.plan import GraphTimings, Submission, Topology
from megakernel.record.protocol import Protocol
from megakernel.run.measure import garbage_collection_off, measure_round, time_singles


class Script:
    """An executable, a stopwatch and a clock that write down every call; time passes as the script says."""

    submission: Submission = "direct"
    graph_timings: GraphTimings | None = None

    def __init__(self, submit_ns: int = 3, wait_ns: int = 40, fail_at: int = -1) -> None:
        self.calls: list[str] = []
        self.now = 1_000
        self.fail_at = fail_at
        self.collecting: set[bool] = set()
        self.submit: Callable[[], None] = lambda: self.step("submit", submit_ns)
        self.wait: Callable[[], None] = lambda: self.step("wait", wait_ns)

    def step(self, name: str, ns: int) -> None:
        self.collecting.add(gc.isenabled())
        self.calls.append(name)
        if len(self.calls) - 1 == self.fail_at:
            raise DeviceError("cuLaunchKernel failed")
        self.now += ns

    def clock(self) -> int:
        self.calls.append("clock")
        return self.now

    def topology(self) -> Topology | None:
        return None

    def prepare(self) -> None:
        raise AssertionError("preparing belongs before a round")

    def __enter__(self) -> "Script":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class ScriptedStopwatch:
    def __init__(self, script: Script) -> None:
        self.script = script

    def start(self) -> None:
        self.script.step("start event", 1)

    def stop(self) -> None:
        self.script.step("stop event", 5)

    def wait(self) -> None:
        self.script.step("wait for stop", 700)

    def elapsed_ns(self) -> float:
        self.script.calls.append("elapsed")
        return 123.5


def test_a_round_warms_up_then_times_singles_then_a_batch() -> None:
    script = Script()
    sample = measure_round(script, ScriptedStopwatch(script), Protocol(warmups=2, singles=3, batch=4), script.clock)
    single = ["clock", "submit", "wait", "clock"]
    batch = ["start event", "clock", *["submit"] * 4, "clock", "stop event", "wait for stop", "clock"]
    assert script.calls == ["submit", "submit", "wait", *single * 3, *batch, "elapsed"]
    # Undivided: enqueueing excludes the stop event, completion ends with its wait and excludes the start event.
    assert sample.singles_ns.tolist() == [43, 43, 43]
    assert sample.singles_ns.dtype == np.int64
    assert (sample.enqueue_ns, sample.batch_ns, sample.event_ns) == (12, 12 + 5 + 700, 123.5)


def test_waiting_and_submitting_are_told_apart() -> None:
    # A 10 ms kernel: completion sees it, enqueueing does not.
    script = Script(submit_ns=1_000, wait_ns=10_000_000)
    sample = measure_round(script, ScriptedStopwatch(script), Protocol(warmups=0, singles=1, batch=8), script.clock)
    assert sample.singles_ns.tolist() == [10_001_000]
    assert sample.enqueue_ns == 8_000


def test_a_clock_of_large_values_keeps_every_nanosecond() -> None:
    script = Script()
    script.now = 2**62
    elapsed = time_singles(script.submit, script.wait, 2, script.clock)
    assert elapsed.tolist() == [43, 43]


def test_nothing_is_collected_during_a_round_and_collection_comes_back() -> None:
    assert gc.isenabled()
    script = Script()
    measure_round(script, ScriptedStopwatch(script), Protocol(warmups=1, singles=1, batch=1), script.clock)
    assert script.collecting == {False}
    assert gc.isenabled()


@pytest.mark.parametrize("fail_at", [0, 2, 5, 9, 12, 13])
def test_collection_comes_back_after_a_failure_wherever_it_happens(fail_at: int) -> None:
    script = Script(fail_at=fail_at)
    with pytest.raises(DeviceError):
        measure_round(script, ScriptedStopwatch(script), Protocol(warmups=2, singles=1, batch=2), script.clock)
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with garbage_collection_off():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
