"""Times one executable for one round. The loops are tight: nothing is built, looked up or collected in them."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from megakernel.device.face import Executable, Stopwatch
from megakernel.record.protocol import Protocol
from megakernel.record.session import EvictedSample, Sample

Clock = Callable[[], int]


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """A collection inside a timed loop would be timed with it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def measure_round(
    executable: Executable, stopwatch: Stopwatch, protocol: Protocol, clock: Clock = time.perf_counter_ns
) -> Sample:
    """Warms up, times single invocations, then times one batch.

    Args:
        executable: verified and prepared.
        stopwatch: on the stream that the executable submits to.
        clock: monotonic, in nanoseconds.

    Raises:
        DeviceError: a call failed; nothing of this round is returned.
    """
    with garbage_collection_off():
        warm_up(executable, protocol)
        singles = time_singles(executable, protocol.singles, clock)
        enqueue_ns, batch_ns = time_batch(executable, stopwatch, protocol.batch, clock)
    return Sample(singles, enqueue_ns, batch_ns, stopwatch.elapsed_ns())


def measure_evicted_round(
    executable: Executable,
    sweep: Executable,
    stopwatch: Stopwatch,
    protocol: Protocol,
    clock: Clock = time.perf_counter_ns,
) -> EvictedSample:
    """Times single invocations, each behind a sweep of the caches that has finished: first by the host, then others
    by the stopwatch alone.

    Raises:
        DeviceError: a call failed; nothing of this round is returned.
    """
    count = protocol.evicted_singles
    singles_ns = np.empty(count, np.int64)
    events_ns = np.empty(count, np.float64)
    with garbage_collection_off():
        for i in range(count):
            sweep.run()
            singles_ns[i] = time_singles(executable, 1, clock)[0]
        for i in range(count):
            sweep.run()
            stopwatch.start()
            submitted = executable.submit()
            try:
                stopwatch.stop()
                stopwatch.wait()
            finally:  # as in a batch
                executable.check(submitted)
            events_ns[i] = stopwatch.elapsed_ns()
    return EvictedSample(singles_ns, events_ns)


def warm_up(executable: Executable, protocol: Protocol) -> None:
    for _ in range(protocol.warmups):
        executable.check(executable.submit())
    executable.check(None, executable.wait())


def time_singles(executable: Executable, count: int, clock: Clock = time.perf_counter_ns) -> NDArray[np.int64]:
    """Host completion of ``count`` invocations, each from before its submission until its wait returns, in ns."""
    submit, wait, check = executable.submit, executable.wait, executable.check
    elapsed = [0] * count
    for i in range(count):
        started = clock()
        submitted = submit()
        waited = wait()
        elapsed[i] = clock() - started
        check(submitted, waited)
    return np.array(elapsed, np.int64)


def time_batch(
    executable: Executable, stopwatch: Stopwatch, batch: int, clock: Clock = time.perf_counter_ns
) -> tuple[int, int]:
    """Host time to submit a batch, and until its stop event was waited for, in ns. The stopwatch holds the interval."""
    submit = executable.submit
    outcomes: list[object] = [None] * batch
    stopwatch.start()  # recorded before the host's timer starts
    started = clock()
    for i in range(batch):
        outcomes[i] = submit()
    enqueued = clock()
    try:
        stopwatch.stop()
        stopwatch.wait()
        finished = clock()
    finally:  # a submission that failed is what must be seen, not what failed because of it
        for outcome in outcomes:
            executable.check(outcome)
    return enqueued - started, finished - started
