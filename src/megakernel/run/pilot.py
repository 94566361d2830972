"""The pilot: which configuration each variant takes at one row count, and which of them stand for the shape.

Every configuration that fits is verified, then timed as a graph by batches: all that are left, in an order shuffled
anew, over and over. After each stage the slower half of each variant's configurations is dropped. What is left at the
end is timed in several repeats, warm and with the caches swept: the fastest warm one is taken, and how often it won
says how far it is ahead.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from megakernel.device.face import Device, Executable, Stopwatch
from megakernel.errors import CompileError, PlanError
from megakernel.operator.contract import Problem
from megakernel.record.protocol import EMULATED, Protocol
from megakernel.run.evict import sweeper
from megakernel.run.measure import (
    garbage_collection_off,
    measure_evicted_round,
    time_batch,
    time_singles,
    warm_up,
)
from megakernel.run.prepare import KernelStore, Operands, Prepared, prepare
from megakernel.run.verify import Inputs, verify
from megakernel.run.watchdog import Watchdog
from megakernel.variants.declaration import Configuration, Family, Variant
from megakernel.variants.frozen import Entry, Figures

# Floors choose for themselves in every session; the controls follow what they are controls of.
_TUNED: tuple[Family, ...] = ("unfused", "local", "megakernel", "library")

CONTROLS_FOLLOW = "retained"
CONTROLS_ROWS = 16


@dataclass(frozen=True)
class Effort:
    """How long the pilot tries.

    Attributes:
        screening: batches of each configuration in the first stage; each later one takes twice those of the last.
        finalists: configurations of each variant that are never dropped.
        repeats: of the final, each with a winner of its own.
        batches: of each finalist in each repeat.
        seed: of the shuffled orders.
        protocol: warm-ups, batches and sweeps.
    """

    screening: int = 3
    finalists: int = 2
    repeats: int = 5
    batches: int = 5
    seed: int = 0
    protocol: Protocol = field(default_factory=lambda: Protocol(warmups=3))


EMULATED_EFFORT = Effort(screening=1, repeats=2, batches=1, protocol=EMULATED)


@dataclass
class _Candidate:
    """One verified configuration, and what it took so far: batches per invocation, and single invocations, in ns."""

    variant: Variant
    prepared: Prepared
    executable: Executable
    event_ns: list[float] = field(default_factory=list)
    host_ns: list[float] = field(default_factory=list)
    evicted_ns: list[float] = field(default_factory=list)
    wins: int = 0

    @property
    def configuration(self) -> Configuration:
        return self.prepared.plan.configuration

    @property
    def median_ns(self) -> float:
        return float(np.median(self.event_ns))


@dataclass(frozen=True)
class Tuned:
    """One row count's outcome, with a line for each configuration that was wrong, and that could not be run."""

    entry: Entry
    failures: tuple[str, ...]
    refused: tuple[str, ...]


Report = Callable[[int, int, str], None]


def tuned_variants(variants: Iterable[Variant]) -> list[Variant]:
    """Those with something to choose."""
    return [variant for variant in variants if variant.family in _TUNED]


def tune(
    device: Device,
    store: KernelStore,
    variants: Sequence[Variant],
    problem: Problem,
    source: str,
    effort: Effort,
    report: Report = lambda done, total, what: None,
) -> Tuned:
    """Tunes every variant for one problem. ``report`` is called before each step.

    Raises:
        PlanError: no local family or no megakernel is left to stand for the shape.
        DeviceError, MissingError: see those stages.
    """
    return _Pilot(device, store, problem, effort, report).run(tuned_variants(variants), source)


class _Pilot:
    def __init__(self, device: Device, store: KernelStore, problem: Problem, effort: Effort, report: Report) -> None:
        self.device, self.store, self.problem, self.effort, self.report = device, store, problem, effort, report
        self.watchdog = Watchdog(lambda message: "")
        self.shuffler = random.Random(effort.seed)
        self.failures: list[str] = []
        self.refused: list[str] = []

    def run(self, variants: Sequence[Variant], source: str) -> Tuned:
        inputs = Inputs.of("timing", self.problem)
        steps = [(v, c) for v in variants for c in v.configurations]
        total = len(steps) + 3
        with ExitStack() as stack:
            operands = stack.enter_context(Operands(self.device, self.problem))
            inputs.load(operands)
            stopwatch = stack.enter_context(self.device.stopwatch())
            found: list[_Candidate] = []
            for done, (variant, configuration) in enumerate(steps):
                self._step(done, total, f"verifying {variant.name} {configuration}")
                found += self._candidate(stack, variant, configuration, operands, inputs)
            by_variant = {v.name: [c for c in found if c.variant == v] for v in variants}
            by_variant = {name: candidates for name, candidates in by_variant.items() if candidates}
            counts = {name: len(candidates) for name, candidates in by_variant.items()}
            self._step(len(steps), total, "screening")
            by_variant = self._screened(by_variant, stopwatch)
            self._step(len(steps) + 1, total, "the final")
            self._final(by_variant, stopwatch)
            self._step(len(steps) + 2, total, "with the caches swept")
            self._evicted([c for candidates in by_variant.values() for c in candidates], stopwatch)
        return Tuned(self._entry(by_variant, counts, source), tuple(self.failures), tuple(self.refused))

    def _step(self, done: int, total: int, what: str) -> None:
        self.report(done, total, f"{self.problem.rows} x {self.problem.width}: {what}")

    def _candidate(
        self, stack: ExitStack, variant: Variant, configuration: Configuration, operands: Operands, inputs: Inputs
    ) -> list[_Candidate]:
        """The configuration, where it fits and is right; it is then kept open."""
        with ExitStack() as own:
            try:
                prepared = own.enter_context(prepare(self.device, self.store, variant, operands, configuration))
                executable = own.enter_context(prepared.executable("graph"))
            except (CompileError, PlanError) as error:
                self.refused.append(f"{variant.name} {configuration}, {self.problem.rows} rows: {error}")
                return []
            guard = self.watchdog.guard(prepared, self.effort.protocol.watchdog_s)
            verification = verify(prepared, executable, inputs, guard, changing_input=False)
            if not verification.passed:
                wrong = verification.failures[0]
                self.failures.append(f"{variant.name} {configuration}, {self.problem.rows} rows: {wrong}")
                return []
            stack.push(own.pop_all())
        return [_Candidate(variant, prepared, executable)]

    def _screened(self, alive: dict[str, list[_Candidate]], stopwatch: Stopwatch) -> dict[str, list[_Candidate]]:
        """Successive halving: each stage gives those that are left twice the batches."""
        batches = self.effort.screening
        while any(len(candidates) > self.effort.finalists for candidates in alive.values()):
            crowded = [c for cs in alive.values() if len(cs) > self.effort.finalists for c in cs]
            for _ in range(batches):
                self._pass(crowded, stopwatch)
            alive = {
                name: sorted(candidates, key=lambda c: c.median_ns)[
                    : max(self.effort.finalists, -(-len(candidates) // 2))
                ]
                if len(candidates) > self.effort.finalists
                else candidates
                for name, candidates in alive.items()
            }
            batches *= 2
        return alive

    def _final(self, alive: dict[str, list[_Candidate]], stopwatch: Stopwatch) -> None:
        """Starts anew: what the screening chose by must not also praise it."""
        everyone = [c for candidates in alive.values() for c in candidates]
        for candidate in everyone:
            candidate.event_ns.clear()
        for _ in range(self.effort.repeats):
            for _ in range(self.effort.batches):
                self._pass(everyone, stopwatch, singles=True)
            for candidates in alive.values():
                min(candidates, key=lambda c: float(np.median(c.event_ns[-self.effort.batches :]))).wins += 1

    def _pass(self, candidates: Sequence[_Candidate], stopwatch: Stopwatch, *, singles: bool = False) -> None:
        """One batch of each, in a new order."""
        protocol = self.effort.protocol
        for candidate in self._shuffled(candidates):
            executable = candidate.executable
            with self._guarded(candidate), garbage_collection_off():
                warm_up(executable, protocol)
                if singles:
                    candidate.host_ns += time_singles(executable, protocol.evicted_singles).tolist()
                time_batch(executable, stopwatch, protocol.batch)
                candidate.event_ns.append(stopwatch.elapsed_ns() / protocol.batch)

    def _evicted(self, finalists: Sequence[_Candidate], stopwatch: Stopwatch) -> None:
        protocol = self.effort.protocol
        with sweeper(self.device, self.store, protocol) as sweep:
            for _ in range(self.effort.repeats):
                for candidate in self._shuffled(finalists):
                    with self._guarded(candidate):
                        sample = measure_evicted_round(candidate.executable, sweep, stopwatch, protocol)
                    candidate.evicted_ns += sample.single_event_ns.tolist()

    def _shuffled(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        order = list(candidates)
        self.shuffler.shuffle(order)
        return order

    def _guarded(self, candidate: _Candidate) -> AbstractContextManager[None]:
        return self.watchdog.guard(candidate.prepared, self.effort.protocol.watchdog_s)("pilot")

    def _entry(self, finalists: dict[str, list[_Candidate]], counts: dict[str, int], source: str) -> Entry:
        ranked = {name: sorted(candidates, key=lambda c: c.median_ns) for name, candidates in finalists.items()}
        winners = {name: candidates[0] for name, candidates in ranked.items()}
        facts = self.device.facts
        return Entry(
            device=facts.label,
            sm_count=facts.sm_count,
            rows=self.problem.rows,
            width=self.problem.width,
            source=source,
            configurations={name: winner.configuration for name, winner in winners.items()},
            local=self._best("local", winners.values()),
            megakernel=self._best("megakernel", winners.values()),
            figures={name: self._figures(candidates, counts[name]) for name, candidates in ranked.items()},
        )

    def _best(self, family: Family, winners: Iterable[_Candidate]) -> str:
        of_family = [winner for winner in winners if winner.variant.family == family]
        if not of_family:
            reasons = (*self.failures, *self.refused)
            raise PlanError(
                f"no variant of the family {family} is left at {self.problem.rows} x {self.problem.width}"
                + (f": {reasons[0]}" if reasons else "")
            )
        return min(of_family, key=lambda winner: winner.median_ns).variant.name

    def _figures(self, ranked: Sequence[_Candidate], count: int) -> Figures:
        winner, evicted = ranked[0], min(ranked, key=lambda c: float(np.median(c.evicted_ns)))
        figures: dict[str, str | float] = {
            "event_ns": round(winner.median_ns, 1),
            "host_ns": round(float(np.median(winner.host_ns)), 1),
            "won": winner.wins,
            "repeats": self.effort.repeats,
            "candidates": count,
        }
        if len(ranked) > 1:
            figures |= {"runner_up": str(ranked[1].configuration), "runner_up_event_ns": round(ranked[1].median_ns, 1)}
        return figures | {
            "evicted": str(evicted.configuration),
            "evicted_event_ns": round(float(np.median(evicted.evicted_ns)), 1),
        }


def with_controls(entries: Iterable[Entry], controls: Iterable[Variant]) -> list[Entry]:
    """One device's entries, with one configuration for all controls at all row counts: that of what they are controls
    of, at the row count nearest to 16.
    """
    entries = list(entries)
    known = [e for e in entries if CONTROLS_FOLLOW in e.configurations]
    if not known:
        return entries
    nearest = min(known, key=lambda e: abs(np.log(e.rows / CONTROLS_ROWS)))
    shared = {v.name: nearest.configurations[CONTROLS_FOLLOW] for v in controls}
    return [replace(e, configurations={**e.configurations, **shared}) for e in entries]
