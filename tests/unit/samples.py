"""Session files with made-up samples."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.unit.fakes import FACTS, resources

from megakernel.operator.checks import Check
from megakernel.operator.contract import Problem
from megakernel.record.facts import DeviceState
from megakernel.record.plan import GraphTimings, Launch, Node, Plan, Residency, Submission, Topology
from megakernel.record.protocol import Protocol
from megakernel.record.session import Header, RoundState, Sample, Subject
from megakernel.record.verification import Verification
from megakernel.record.writer import SessionWriter
from megakernel.variants.declaration import Configuration

PROTOCOL = Protocol(rounds=2, warmups=1, singles=3, batch=4, order_seed=7)
STATE = DeviceState(sm_clock_mhz=1980, memory_clock_mhz=2619, temperature_c=40, power_mw=120_000, throttle_reasons=1)
PASSED = Verification("timing", (Check("y.accuracy", True, 0.25, 1.0, "exact"),), "ab" * 32)
LAUNCH = Launch("k<256>", 10, 256, 96, False, (), 0, 1)


def header(protocol: Protocol = PROTOCOL, environment: Mapping[str, str] | None = None) -> Header:
    return Header(FACTS, protocol, "timing", environment or {"python": "3"}, {"local.cu": "00" * 32}, {"y": "small"})


def subject(
    variant: str, rows: int = 16, submission: Submission = "graph", computes: str = "softmax", width: int = 1000
) -> Subject:
    room = Residency(resources(variant), 256, 96, 4, 132, -1)
    plan = Plan(variant, Problem(rows, width), Configuration(256, 1024), (LAUNCH,), (), (room,))
    topology, timings = None, None
    if submission == "graph":
        topology, timings = Topology((Node("_Zk", 10, 256, 96, False, (2**64 - 1,)),), ()), GraphTimings(4, 3, 2, 1)
    return Subject(plan, submission, computes, PASSED, topology, timings, compiler={"compiler": "none"})


def sample(ns: float, protocol: Protocol = PROTOCOL) -> Sample:
    """Every metric takes ``ns`` an invocation."""
    batch = ns * protocol.batch
    return Sample(np.full(protocol.singles, ns).astype(np.int64), int(batch), int(batch), float(batch))


def write_round(
    writer: SessionWriter, shape: int, round_number: int, ns: Mapping[int, float], state: DeviceState = STATE
) -> None:
    """One round with a value for each series."""
    for position, (series, value) in enumerate(ns.items()):
        writer.append(series, round_number, position, sample(value))
    writer.finish_round(shape, RoundState(STATE, state))


def write_session(
    path: Path, values: Mapping[str, list[float]], *, complete: bool = True, kind: str = "gpu", rows: int = 16
) -> Path:
    """A file with one series for each name, timed at ``values`` ns in its rounds; ``copy`` is the floor."""
    writer = SessionWriter(path)
    head = header()
    writer.write_header(replace(head, device=replace(head.device, kind="emulator" if kind == "emulator" else "gpu")))
    shape = writer.add_shape(Problem(rows, 1000), "00" * 32)
    series = {
        name: writer.add_series(shape, subject(name, rows, computes="copy" if name == "copy" else "softmax"))
        for name in values
    }
    for round_number in range(max(len(v) for v in values.values())):
        write_round(writer, shape, round_number, {series[name]: v[round_number] for name, v in values.items()})
    if complete:
        writer.finish()
        return path
    writer.close()
    return writer.partial
