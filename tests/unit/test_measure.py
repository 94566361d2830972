"""The timing loops, with a scripted clock: what is called when, and what the figures mean."""

import gc
from collections.abc import Callable

import numpy as np
import pytest

from megakernel.errors import DeviceError
from megakernel.record.plan import GraphTimings, Submission, Topology
from megakernel.record.protocol import Protocol
from megakernel.record.session import EvictedSample
from megakernel.run.measure import garbage_collection_off, measure_evicted_round, measure_round, time_singles


class Script:
    """An executable, a stopwatch and a clock that write down every call; time passes as the script says."""

    submission: Submission = "direct"
    graph_timings: GraphTimings | None = None

    def __init__(self, submit_ns: int = 3, wait_ns: int = 40, fail_at: int = -1, refuse_at: int = -1) -> None:
        self.calls: list[str] = []
        self.now = 1_000
        self.fail_at = fail_at
        self.refuse_at = refuse_at
        self.collecting: set[bool] = set()
        self.submit: Callable[[], object] = lambda: self.step("submit", submit_ns)
        self.wait: Callable[[], object] = lambda: self.step("wait", wait_ns)

    def step(self, name: str, ns: int) -> str:
        """Fails at once at call ``fail_at``; at call ``refuse_at`` it returns what ``check`` finds bad."""
        self.collecting.add(gc.isenabled())
        self.calls.append(name)
        if len(self.calls) - 1 == self.fail_at:
            raise DeviceError(f"{name} failed")
        self.now += ns
        return "bad" if len(self.calls) - 1 == self.refuse_at else "good"

    def check(self, submitted: object, waited: object = None) -> None:
        self.calls.append("check")
        if "bad" in (submitted, waited):
            raise DeviceError("refused")

    def run(self) -> None:
        raise AssertionError("a round submits and waits itself")

    def clock(self) -> int:
        self.calls.append("clock")
        return self.now

    def counted_bytes(self) -> None:
        return None

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

    def __enter__(self) -> "ScriptedStopwatch":
        return self

    def __exit__(self, *_: object) -> None:
        pass

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
    warmups = ["submit", "check", "submit", "check", "wait", "check"]
    single = ["clock", "submit", "wait", "clock", "check"]
    batch = ["start event", "clock", *["submit"] * 4, "clock", "stop event", "wait for stop", "clock", *["check"] * 4]
    assert script.calls == [*warmups, *single * 3, *batch, "elapsed"]
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
    elapsed = time_singles(script, 2, script.clock)
    assert elapsed.tolist() == [43, 43]


def test_nothing_is_collected_during_a_round_and_collection_comes_back() -> None:
    assert gc.isenabled()
    script = Script()
    measure_round(script, ScriptedStopwatch(script), Protocol(warmups=1, singles=1, batch=1), script.clock)
    assert script.collecting == {False}
    assert gc.isenabled()


# Of a round with two warm-ups, one single and a batch of two: the calls that reach the device.
CALLS = {0: "submit", 4: "wait", 7: "submit", 8: "wait", 11: "start event", 13: "submit", 16: "stop event"}


@pytest.mark.parametrize("call", CALLS)
def test_a_failure_anywhere_ends_the_round_and_collection_comes_back(call: int) -> None:
    script = Script(fail_at=call)
    with pytest.raises(DeviceError, match=f"^{CALLS[call]} failed$"):
        measure_round(script, ScriptedStopwatch(script), Protocol(warmups=2, singles=1, batch=2), script.clock)
    assert gc.isenabled()


@pytest.mark.parametrize("call", [0, 2, 4, 7, 8, 13, 14])
def test_a_refusal_that_a_call_returns_is_raised_once_the_clock_has_stopped(call: int) -> None:
    script = Script(refuse_at=call)
    with pytest.raises(DeviceError, match="refused"):
        measure_round(script, ScriptedStopwatch(script), Protocol(warmups=2, singles=1, batch=2), script.clock)
    assert gc.isenabled()
    assert script.calls[-1] == "check"


def test_a_refused_submission_is_what_is_seen_not_what_failed_because_of_it() -> None:
    script = Script(refuse_at=13, fail_at=16)
    with pytest.raises(DeviceError, match="refused"):
        measure_round(script, ScriptedStopwatch(script), Protocol(warmups=2, singles=1, batch=2), script.clock)


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with garbage_collection_off():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


class ScriptedSweep(Script):
    """Writes into another script's list."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    def run(self) -> None:
        self.script.step("sweep", 90_000)

    def __enter__(self) -> "ScriptedSweep":
        return self


def evicted(script: Script, singles: int = 2) -> EvictedSample:
    protocol = Protocol(evicted_rounds=1, evicted_singles=singles, warmups=5)
    return measure_evicted_round(script, ScriptedSweep(script), ScriptedStopwatch(script), protocol, script.clock)


def test_every_evicted_invocation_has_a_sweep_of_its_own_that_is_timed_by_nothing() -> None:
    script = Script()
    sample = evicted(script)
    by_host = ["sweep", "clock", "submit", "wait", "clock", "check"]
    by_events = ["sweep", "start event", "submit", "stop event", "wait for stop", "check", "elapsed"]
    assert script.calls == [*by_host * 2, *by_events * 2]
    assert sample.singles_ns.tolist() == [43, 43]
    assert (sample.singles_ns.dtype, sample.single_event_ns.dtype) == (np.dtype(np.int64), np.dtype(np.float64))
    assert sample.single_event_ns.tolist() == [123.5, 123.5]
    assert script.collecting == {False}
    assert gc.isenabled()


@pytest.mark.parametrize("call", [0, 2, 3, 6, 7, 8, 9])
def test_a_failure_anywhere_ends_an_evicted_round(call: int) -> None:
    script = Script(fail_at=call)
    with pytest.raises(DeviceError, match=r"failed$"):
        evicted(script, singles=1)
    assert gc.isenabled()


@pytest.mark.parametrize("call", [2, 3, 8])
def test_a_refusal_in_an_evicted_round_is_raised(call: int) -> None:
    script = Script(refuse_at=call)
    with pytest.raises(DeviceError, match="refused"):
        evicted(script, singles=1)
