"""Runs a measurement session: verify, time in shuffled rounds, verify again, all into one file."""

import hashlib
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

import numpy as np

from megakernel.device.face import Device, Executable, Stopwatch
from megakernel.device.sources import kernel_folder, source_hashes
from megakernel.errors import CompileError, PlanError
from megakernel.operator.checks import Check
from megakernel.operator.contract import Problem
from megakernel.operator.tolerances import acceptance_rules
from megakernel.record.plan import Submission
from megakernel.record.protocol import Cache, Protocol
from megakernel.record.session import NOT_FROZEN, EvictedSample, Freeze, Header, RoundState, Sample, StandIns, Subject
from megakernel.record.writer import SessionWriter
from megakernel.run.environment import environment
from megakernel.run.evict import sweeper
from megakernel.run.measure import (
    garbage_collection_off,
    measure_evicted_round,
    measure_round,
    time_batch,
    warm_up,
)
from megakernel.run.prepare import KernelStore, Operands, Prepared, configuration_for, prepare
from megakernel.run.verify import Inputs, run_and_check, verify
from megakernel.run.watchdog import Watchdog
from megakernel.variants.catalogue import FLOORS
from megakernel.variants.declaration import Configuration, Variant
from megakernel.variants.frozen import FrozenTable, shipped

FIXTURE = "timing"


@dataclass(frozen=True)
class Request:
    """What to measure. Shapes are measured one after the other, in the order given."""

    variants: tuple[Variant, ...]
    rows: tuple[int, ...]
    width: int
    eps: float
    submissions: tuple[Submission, ...]
    protocol: Protocol
    frozen: FrozenTable = field(default_factory=shipped)
    freeze: Freeze = NOT_FROZEN


@dataclass(frozen=True)
class _Timed:
    """A subject that passed verification."""

    series: int
    subject: Subject
    prepared: Prepared
    executable: Executable


@dataclass(frozen=True)
class Outcome:
    """One line for each subject that was wrong, before or after timing, and for each that could not be run."""

    failures: tuple[str, ...]
    refused: tuple[str, ...]


# Called before each step: steps done, steps in all, and what comes next.
Report = Callable[[int, int, str], None]


class _Session:
    def __init__(self, device: Device, request: Request, writer: SessionWriter, report: Report) -> None:
        self.device = device
        self.request = request
        self.writer = writer
        self.report = report
        self.watchdog = Watchdog(writer.abandon)
        self.shuffler = random.Random(request.protocol.order_seed)
        self.failures: list[str] = []
        self.refused: list[str] = []
        self.total = len(request.rows) * (request.protocol.rounds + request.protocol.evicted_rounds + 2)
        self.done = 0

    def step(self, what: str, problem: Problem) -> None:
        self.report(self.done, self.total, f"{problem.rows} x {problem.width}: {what}")
        self.done += 1

    def shape(self, problem: Problem, store: KernelStore) -> None:
        protocol = self.request.protocol
        inputs = Inputs.of(FIXTURE, problem)
        entry = self.request.frozen.own(self.device.facts.label, self.device.facts.sm_count, problem.rows)
        shape = self.writer.add_shape(
            problem,
            hashlib.sha256(inputs.reference.x.tobytes()).hexdigest(),
            StandIns(entry.local, entry.megakernel) if entry else None,
        )
        with ExitStack() as stack:
            operands = stack.enter_context(Operands(self.device, problem))
            inputs.load(operands)
            stopwatch = stack.enter_context(self.device.stopwatch())
            self.step("verifying", problem)
            subjects = [
                timed
                for variant in self.request.variants
                for timed in self._verified(stack, store, shape, variant, operands, inputs, stopwatch)
            ]
            self._rounds(
                shape, problem, subjects, "warm", protocol.rounds, lambda e: measure_round(e, stopwatch, protocol)
            )
            evicted = self._evicted(shape, problem, subjects, store, stopwatch)
            self.step("verifying again", problem)
            for timed in subjects:
                guard = self.watchdog.guard(timed.prepared, protocol.watchdog_s)
                verification = run_and_check(timed.prepared, timed.executable, inputs, guard)
                for again in (timed, *(e for e in evicted if e.executable is timed.executable)):
                    self.writer.add_verification_after(again.series, verification)
                self._note(timed.prepared.variant, timed.executable.submission, problem, verification.failures)

    def _rounds(
        self,
        shape: int,
        problem: Problem,
        subjects: Sequence[_Timed],
        cache: Cache,
        rounds: int,
        measure: Callable[[Executable], Sample | EvictedSample],
    ) -> None:
        protocol = self.request.protocol
        name = "round" if cache == "warm" else "evicted round"
        for round_number in range(rounds):
            self.step(f"{name} {round_number + 1} of {rounds}", problem)
            self.writer.require_room()
            order = list(subjects)
            self.shuffler.shuffle(order)
            before = self.device.read_state()
            for position, timed in enumerate(order):
                guard = self.watchdog.guard(timed.prepared, protocol.watchdog_s)
                with guard(f"{timed.executable.submission}, {name} {round_number + 1}"):
                    sample = measure(timed.executable)
                self.writer.append(timed.series, round_number, position, sample)
            self.writer.finish_round(shape, RoundState(before, self.device.read_state()), cache)

    def _evicted(
        self, shape: int, problem: Problem, subjects: Sequence[_Timed], store: KernelStore, stopwatch: Stopwatch
    ) -> list[_Timed]:
        """The evicted rounds: the same executables in series of their own."""
        protocol = self.request.protocol
        if not protocol.evicted_rounds:
            return []
        with sweeper(self.device, store, protocol) as sweep:
            evicted = []
            for timed in subjects:
                subject = replace(timed.subject, cache="evicted")
                evicted.append(replace(timed, series=self.writer.add_series(shape, subject), subject=subject))
            self._rounds(
                shape,
                problem,
                evicted,
                "evicted",
                protocol.evicted_rounds,
                lambda e: measure_evicted_round(e, sweep, stopwatch, protocol),
            )
        return evicted

    def _verified(
        self,
        stack: ExitStack,
        store: KernelStore,
        shape: int,
        variant: Variant,
        operands: Operands,
        inputs: Inputs,
        stopwatch: Stopwatch,
    ) -> list[_Timed]:
        """The variant's subjects that may be timed. What does not compile, does not fit or is wrong is kept in the
        file with its reason, and does not stop the others.
        """
        problem = operands.problem
        timed: list[_Timed] = []
        try:
            configuration = self._configuration(store, shape, variant, operands, inputs, stopwatch)
            prepared = stack.enter_context(prepare(self.device, store, variant, operands, configuration))
            guard = self.watchdog.guard(prepared, self.request.protocol.watchdog_s)
            for submission in self.request.submissions:
                executable = stack.enter_context(prepared.executable(submission))
                topology = executable.topology()
                verification = verify(prepared, executable, inputs, guard)
                if verification.passed:
                    subject = Subject(
                        prepared.plan,
                        submission,
                        variant.computes,
                        verification,
                        topology,
                        executable.graph_timings,
                        prepared.provenance,
                    )
                    timed.append(_Timed(self.writer.add_series(shape, subject), subject, prepared, executable))
                else:
                    self._note(variant, submission, problem, verification.failures)
                    reasons = "\n".join(str(failure) for failure in verification.failures)
                    self.writer.add_refusal(shape, variant.name, submission, reasons)
        except (CompileError, PlanError) as error:
            self.writer.add_refusal(shape, variant.name, "any", str(error))
            self.refused.append(f"{variant.name}, {problem.rows} rows: {error}")
        return timed

    def _note(self, variant: Variant, submission: Submission, problem: Problem, failures: Sequence[Check]) -> None:
        """The first that failed: the others mostly follow from it, and the file has them all."""
        if failures:
            more = f" (and {len(failures) - 1} more checks)" if len(failures) > 1 else ""
            self.failures.append(f"{variant.name}, {problem.rows} rows, {submission}: {failures[0]}{more}")

    def _configuration(
        self,
        store: KernelStore,
        shape: int,
        variant: Variant,
        operands: Operands,
        inputs: Inputs,
        stopwatch: Stopwatch,
    ) -> Configuration:
        """Of a floor the fastest of those that are right, by timing all in turn; of others the frozen one."""
        protocol = self.request.protocol
        if variant not in FLOORS or len(variant.configurations) == 1 or not protocol.pilot_repeats:
            return configuration_for(self.device, store, variant, operands.problem, self.request.frozen)
        candidates = []
        with ExitStack() as stack:
            for configuration in variant.configurations:
                prepared = stack.enter_context(prepare(self.device, store, variant, operands, configuration))
                # As a graph: direct launches of a short kernel wait for the host, and would all look alike.
                executable = stack.enter_context(prepared.executable("graph"))
                guard = self.watchdog.guard(prepared, protocol.watchdog_s)
                if verify(prepared, executable, inputs, guard, changing_input=False).passed:
                    candidates.append((configuration, executable, guard))
            if not candidates:
                return variant.configurations[0]  # to be refused with its reasons
            batches_ns = np.empty((protocol.pilot_repeats, len(candidates)))
            with garbage_collection_off():
                for repeat in range(protocol.pilot_repeats):
                    for column, (_, executable, guard) in enumerate(candidates):
                        with guard("pilot"):
                            warm_up(executable, protocol)
                            time_batch(executable, stopwatch, protocol.batch)
                        batches_ns[repeat, column] = stopwatch.elapsed_ns()
        names = [str(configuration) for configuration, *_ in candidates]
        self.writer.add_pilot(shape, variant.name, names, batches_ns)
        return candidates[int(np.argmin(np.median(batches_ns, axis=0)))][0]


def run_session(
    device: Device, request: Request, writer: SessionWriter, report: Report = lambda done, total, what: None
) -> Outcome:
    """Measures what was asked for. The writer is left open: finish it, or close it after an error.

    Raises:
        DeviceError: a driver call failed. Finished rounds are in the file.
        RecordError: the file cannot be written any more; what it holds stays readable.
        MissingError: a compiler or package is missing.
    """
    session = _Session(device, request, writer, report)
    writer.write_header(
        Header(
            device=device.facts,
            protocol=request.protocol,
            fixture=FIXTURE,
            environment=environment(),
            kernel_sources=source_hashes(kernel_folder(), (variant.source for variant in request.variants)),
            tolerances=acceptance_rules(),
            freeze=request.freeze,
            configurations=request.frozen.text,
        )
    )
    try:
        with KernelStore(device) as store:
            for rows in request.rows:
                session.shape(Problem(rows, request.width, request.eps), store)
    except BaseException as error:
        with suppress(Exception):  # a full disk must not hide what went wrong
            interrupted = isinstance(error, KeyboardInterrupt)
            said = str(error) or ("interrupted" if interrupted else type(error).__name__)
            writer.interrupt(said)
        raise
    return Outcome(tuple(session.failures), tuple(session.refused))
