"""Times one executable for one round. The loops are tight: nothing is built, looked up or collected in them."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from megakernel.device.face import Executable, Stopwatch
from megakernel.record.protocol import Protocol
from megakernel.record.session import Sample

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
        for _ in range(protocol.warmups):
            executable.submit()
        executable.wait()
        singles = time_singles(executable.submit, executable.wait, protocol.singles, clock)
        enqueue_ns, batch_ns = _time_batch(executable, stopwatch, protocol.batch, clock)
    return Sample(singles, enqueue_ns, batch_ns, stopwatch.elapsed_ns())


def time_singles(
    submit: Callable[[], None], wait: Callable[[], None], count: int, clock: Clock = time.perf_counter_ns
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Host completion of ``count`` invocations, each from before its submission until its wait returns, in ns."""
    elapsed = [0] * count
    for i in range(count):
        started = clock()
        submit()
        wait()
        elapsed[i] = clock() - started
    return np.array(elapsed, np.int64)


def _time_batch(executable: Executable, stopwatch: Stopwatch, batch: int, clock: Clock) -> tuple[int, int]:
    submit = executable.submit
    stopwatch.start()  # recorded before the host's timer starts
    started = clock()
    for _ in range(batch):
        submit()
    enqueued = clock()
    stopwatch.stop()
    stopwatch.wait()
    finished = clock()
    return enqueued - started, finished - started
