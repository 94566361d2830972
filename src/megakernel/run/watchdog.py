"""Turns a hang on the device into a message and an end.

A launch that never finishes cannot be stopped from the host: all that is left is to say what hung, save what was
measured, and end the process. One waiting thread, armed for a stretch of work; it wakes only to fire.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from megakernel.device.face import Buffer, Device
from megakernel.record.plan import Launch, Plan
from megakernel.run.prepare import Prepared
from megakernel.variants.declaration import ROW_BARRIER_WORDS, ROW_BARRIERS

_LOOK_ON_LIMIT_S = 3.0

Guard = Callable[[str], AbstractContextManager[None]]


def unguarded(what: str) -> AbstractContextManager[None]:
    """A guard that watches nothing."""
    return nullcontext()


class Watchdog:
    """Fires when an armed stretch of work takes longer than its limit.

    Args:
        save: called with the message before the process ends: keeps the samples and says where, if there are any.
        end: ends the process; a test's stand-in returns.
    """

    def __init__(self, save: Callable[[str], str], end: Callable[[int], None] = os._exit) -> None:
        self._save = save
        self._end = end

    def guard(self, prepared: Prepared, limit_s: float) -> Guard:
        """A guard for one prepared variant: used as ``with guard("round 3"): ...``."""
        return lambda what: self.armed(prepared, what, limit_s)

    @contextmanager
    def armed(self, prepared: Prepared, what: str, limit_s: float) -> Iterator[None]:
        """Watches the block of code under ``with``."""
        done = threading.Event()

        def watch() -> None:
            if not done.wait(limit_s):
                self._fire(prepared, what, limit_s)

        thread = threading.Thread(target=watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _fire(self, prepared: Prepared, what: str, limit_s: float) -> None:
        plan = prepared.plan
        lines = [
            f"hang: {plan.variant} {plan.configuration} at {plan.problem.rows} x {plan.problem.width}, {what}, "
            f"did not finish within {limit_s:g} s"
        ]
        # In a thread of its own: where the driver itself is stuck, even looking on never returns.
        looker = threading.Thread(target=lambda: lines.extend(_explain_or_say_why_not(prepared)), daemon=True)
        looker.start()
        looker.join(_LOOK_ON_LIMIT_S)
        try:
            kept = self._save("\n".join(lines))
            lines += [f"the samples so far are in {kept}"] if kept else []
        finally:
            sys.stderr.write("mk: " + "\n".join(lines) + "\n")
            sys.stderr.flush()
            self._end(2)


def _explain_or_say_why_not(prepared: Prepared) -> list[str]:
    try:
        return explain(prepared.device, prepared.plan, prepared.buffers.get(ROW_BARRIERS.name))
    except Exception as error:
        return [f"the barrier words could not be read: {error}"]


def explain(device: Device, plan: Plan, barriers: Buffer | None) -> list[str]:
    """What the barrier words say of each launch, while it may still be running."""
    words = None if barriers is None else device.peek(barriers)[::ROW_BARRIER_WORDS]
    lines = []
    for number, launch in enumerate(plan.launches):
        line = f"launch {number + 1} of {len(plan.launches)}: {launch.kernel}, {launch.grid} blocks of {launch.block}"
        if launch.barrier_members and words is not None:
            line += "; " + _barrier_states(launch, [int(word) for word in words])
        elif launch.cooperative:
            line += "; a grid-wide barrier (its state is the driver's own)"
        lines.append(line)
    return lines


def arrived(word: int, members: int) -> int:
    """How many of a row's blocks wait at its barrier. See ``RowBarrier`` in cuda/barriers.cuh.

    The low 31 bits count members; the leader adds ``2**31 - (members - 1)`` instead of one.
    """
    low = word & 0x7FFF_FFFF
    return low if low < 2**30 else low - (2**31 - (members - 1)) + 1


def _barrier_states(launch: Launch, words: list[int]) -> str:
    """Of the rows whose words were copied: a prefix of all rows, in a long plan."""
    end = launch.first_row + launch.rows
    seen = range(launch.first_row, min(end, len(words)))
    waiting = [(row, arrived(words[row], launch.barrier_members)) for row in seen]
    states = [
        f"row {row}: {count} of {launch.barrier_members} blocks arrived (word {words[row]:#010x})"
        for row, count in waiting
        if count
    ]
    more = len(states) - 4
    states = states[:4] + ([f"{more} more rows wait"] if more > 0 else [])
    if not states and seen:
        states = [f"no block waits at a barrier of rows {seen.start} to {seen.stop - 1}"]
    if len(seen) < launch.rows:
        states.append(f"rows {max(launch.first_row, len(words))} to {end - 1} were not looked at")
    return "; ".join(states)
