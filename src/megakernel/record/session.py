"""A measurement session: what was timed, how, where, and every raw sample."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from megakernel.operator.contract import Problem
from megakernel.record.facts import DeviceFacts, DeviceState
from megakernel.record.plan import GraphTimings, Plan, Submission, Topology
from megakernel.record.protocol import Cache, Protocol
from megakernel.record.verification import Verification

SCHEMA = "megakernel.session"
SCHEMA_VERSION = 1

FreezeState = Literal["none", "as frozen", "changed"]


@dataclass(frozen=True)
class Sample:
    """One round of one series, in nanoseconds, undivided.

    Attributes:
        singles_ns: host completion of each single invocation, int64.
        enqueue_ns: host time to submit the batch.
        batch_ns: host time from before the batch's submission until its stop event was waited for.
        event_ns: from the start event to the stop event around the batch.
    """

    singles_ns: NDArray[np.int64]
    enqueue_ns: int
    batch_ns: int
    event_ns: float


@dataclass(frozen=True)
class EvictedSample:
    """One evicted round of one series, in nanoseconds: every invocation behind a sweep of its own.

    Attributes:
        singles_ns: host completion of single invocations, int64.
        single_event_ns: from the start event to the stop event around other single invocations, float64. The host's
            timer runs in none of these, so that the stop event's cost falls into no host completion.
    """

    singles_ns: NDArray[np.int64]
    single_event_ns: NDArray[np.float64]


@dataclass(frozen=True)
class Subject:
    """What one series times: a planned variant in one submission.

    Attributes:
        cache: ``evicted`` where a sweep of the caches comes before each invocation.
        compiler: which one made its kernels, with which options, for which architecture.
    """

    plan: Plan
    submission: Submission
    computes: str
    before: Verification
    topology: Topology | None = None
    graph_timings: GraphTimings | None = None
    compiler: Mapping[str, str] = field(default_factory=dict)
    cache: Cache = "warm"


@dataclass(frozen=True)
class Freeze:
    """How a session stands to a manifest made before it.

    Attributes:
        manifest: its text; empty where there is none.
        changes: a line for each thing that is not as frozen.
    """

    manifest: str = ""
    changes: tuple[str, ...] = ()

    @property
    def state(self) -> FreezeState:
        return "none" if not self.manifest else "changed" if self.changes else "as frozen"


NOT_FROZEN = Freeze()


@dataclass(frozen=True)
class StandIns:
    """Which local family and which megakernel the pilot chose to stand for a shape."""

    local: str
    megakernel: str


@dataclass(frozen=True)
class RoundState:
    """The device before and after one round of a shape."""

    before: DeviceState
    after: DeviceState


@dataclass(frozen=True)
class Header:
    """What holds for a whole session.

    Attributes:
        environment: versions, hashes and the like, as text; what could not be found out is absent.
        kernel_sources: SHA-256 of every kernel source, by path.
        tolerances: the acceptance rules, as text by quantity.
        configurations: the whole table that configurations were taken from, as text.
    """

    device: DeviceFacts
    protocol: Protocol
    fixture: str
    environment: Mapping[str, str]
    kernel_sources: Mapping[str, str]
    tolerances: Mapping[str, str]
    freeze: Freeze = NOT_FROZEN
    configurations: str = ""


@dataclass(frozen=True)
class Series:
    """Every sample of one subject. Arrays have one entry (or row) per finished round.

    Attributes:
        singles_ns: ``(rounds, singles)`` int64.
        position: the subject's place in the round's order.
        rounds: the number of each round.
        cache: of an ``evicted`` series, ``enqueue_ns``, ``batch_ns`` and ``event_ns`` are empty and a batch is one.
        single_event_ns: ``(rounds, singles)`` float64 of an evicted series; of a warm one empty.
    """

    variant: str
    computes: str
    problem: Problem
    submission: Submission
    configuration: str
    launches: int
    batch: int
    singles_ns: NDArray[np.int64]
    enqueue_ns: NDArray[np.int64]
    batch_ns: NDArray[np.int64]
    event_ns: NDArray[np.float64]
    rounds: NDArray[np.int64]
    position: NDArray[np.int64]
    verified_before: bool
    verified_after: bool | None
    cache: Cache = "warm"
    single_event_ns: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))


@dataclass(frozen=True)
class Session:
    """A session as loaded from its file.

    Attributes:
        refusals: a line for each subject that was not timed, with the reason.
        freeze_state: whether what ran is what a manifest had frozen; ``changes`` says what is not.
        stand_ins: by row count, where the pilot had chosen for this device.
    """

    path: str
    complete: bool
    interruption: str
    device: Mapping[str, str | int | float]
    protocol: Mapping[str, str | int | float]
    environment: Mapping[str, str]
    series: tuple[Series, ...]
    throttled_rounds: int = 0
    refusals: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    freeze_state: FreezeState = "none"
    changes: tuple[str, ...] = ()
    stand_ins: Mapping[int, StandIns] = field(default_factory=dict)
