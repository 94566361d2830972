"""Analyses of made-up sessions that have the whole chain."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from tests.unit.samples import STATE, header, subject, write_round

from megakernel.operator.contract import BENCHMARK_WIDTH, Problem
from megakernel.record.facts import DeviceState
from megakernel.record.plan import Submission
from megakernel.record.protocol import Protocol
from megakernel.record.writer import SessionWriter

CHAIN = {
    "empty": 6000.0,
    "copy": 8000.0,
    "unfused": 27000.0,
    "local_recompute": 15000.0,
    "retained": 14500.0,
    "row_retained": 14000.0,
    "control_retain": 14500.0,
    "control_reload": 15500.0,
    "control_spill": 16500.0,
}
COMPUTES = {"empty": "nothing", "copy": "copy"}
THROTTLED = replace(STATE, throttle_reasons=4)


def write_chain(
    path: Path,
    times_ns: Mapping[str, float] = CHAIN,
    *,
    rows: tuple[int, ...] = (16,),
    rounds: int = 3,
    scale: float = 1.0,
    throttled: tuple[int, ...] = (),
    state: DeviceState = STATE,
    device: str = "Fake GPU",
    kind: Literal["gpu", "emulator"] = "gpu",
    width: int = BENCHMARK_WIDTH,
) -> Path:
    """A session with direct launches and graph replays of every name; each round is a little slower than the last."""
    writer = SessionWriter(path)
    protocol = Protocol(rounds=rounds, warmups=1, singles=3, batch=4, order_seed=7)
    head = header(protocol)
    writer.write_header(replace(head, device=replace(head.device, name=device, kind=kind)))
    submissions: tuple[Submission, ...] = ("direct", "graph")
    for count in rows:
        shape = writer.add_shape(Problem(count, width), "00" * 32)
        times: dict[int, float] = {}
        for name, ns in times_ns.items():
            for submission in submissions:
                of = subject(name, count, submission, COMPUTES.get(name, "softmax"), width)
                extra = 3000 if submission == "direct" else 0
                times[writer.add_series(shape, of)] = scale * (ns + extra)
        for number in range(rounds):
            slower = {series: ns + 10 * number for series, ns in times.items()}
            write_round(writer, shape, number, slower, THROTTLED if number in throttled else state)
    writer.finish()
    return path
