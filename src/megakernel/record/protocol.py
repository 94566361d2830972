"""The timing protocol, as data. What a session did is what its file says here."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from megakernel.errors import UsageError

LONGEST_WATCHDOG_S = 86_400.0  # a day; a thread cannot wait for any length of time

METRICS = ("host_completion", "host_enqueue", "host_batch_completion", "event_interval")

ShapeOrder = Literal["given", "ascending", "descending"]

# A series is timed warm or evicted; each is a series of its own.
Cache = Literal["warm", "evicted"]
CACHES: tuple[Cache, ...] = ("warm", "evicted")

_LARGEST_COUNT = 1_000_000
_LARGEST_SWEEP_BYTES = 2**40


@dataclass(frozen=True)
class Protocol:
    """How each (variant, submission) of a shape is timed in each round.

    Attributes:
        rounds: in each, every (variant, submission) once, in an order shuffled anew.
        warmups: invocations before the timed ones.
        singles: invocations timed one by one, each waited for.
        batch: invocations submitted together and waited for once.
        order_seed: of the generator that shuffles.
        cache: ``warm`` replays the same device-resident input.
        shape_order: how the shapes follow one another; a second session reverses the first's.
        evicted_rounds: rounds of the evicted diagnostic, after a shape's warm rounds; 0 leaves it out.
        evicted_singles: invocations of such a round, each behind a sweep of the caches.
        evicted_bytes: the least that a sweep reads.
        evicted_l2s: a sweep also reads at least so many times the device's L2.
        pilot_repeats: batches of each configuration of a floor that choose the fastest; 0 takes its default.
        watchdog_s: seconds after which a round of one variant counts as hung.
    """

    rounds: int = 21
    warmups: int = 10
    singles: int = 32
    batch: int = 32
    order_seed: int = 0
    cache: Literal["warm"] = "warm"
    shape_order: ShapeOrder = "given"
    evicted_rounds: int = 0
    evicted_singles: int = 8
    evicted_bytes: int = 256 * 2**20
    evicted_l2s: int = 2
    pilot_repeats: int = 9
    watchdog_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("rounds", "singles", "batch", "evicted_singles"):
            if not 1 <= getattr(self, name) <= _LARGEST_COUNT:
                raise UsageError(f"{name} is {getattr(self, name)}: give 1 to {_LARGEST_COUNT}")
        for name in ("warmups", "pilot_repeats", "evicted_rounds", "evicted_l2s"):
            if not 0 <= getattr(self, name) <= _LARGEST_COUNT:
                raise UsageError(f"{name} is {getattr(self, name)}: give 0 to {_LARGEST_COUNT}")
        if not 1 <= self.evicted_bytes <= _LARGEST_SWEEP_BYTES:
            raise UsageError(f"evicted_bytes is {self.evicted_bytes}: give 1 to {_LARGEST_SWEEP_BYTES}")
        if self.shape_order not in get_args(ShapeOrder):
            raise UsageError(f"shape_order is {self.shape_order!r}: give one of {', '.join(get_args(ShapeOrder))}")
        if not 0 < self.watchdog_s <= LONGEST_WATCHDOG_S:
            raise UsageError(f"watchdog is {self.watchdog_s} s: give more than 0, at most {LONGEST_WATCHDOG_S}")
        if not -(2**63) <= self.order_seed < 2**63:
            raise UsageError(f"seed is {self.order_seed}: give a number of 64 bits")


# An emulated launch takes up to a second and its time says nothing: enough to run the whole pipeline.
EMULATED = Protocol(
    rounds=3,
    warmups=0,
    singles=1,
    batch=1,
    evicted_singles=1,
    evicted_bytes=2**20,
    evicted_l2s=0,
    pilot_repeats=0,
    watchdog_s=600.0,
)

# A whole session: the published rounds, and the evicted diagnostic.
SESSION = Protocol(shape_order="ascending", evicted_rounds=15)
EMULATED_SESSION = replace(EMULATED, shape_order="ascending", evicted_rounds=1)
