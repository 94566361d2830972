"""``mk bench``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from megakernel.cli import interrupts
from megakernel.cli.options import (
    DeviceOption,
    JsonOption,
    RowsOption,
    SmsOption,
    SubmissionOption,
    WidthOption,
    chosen_variants,
    rows_or_default,
    submissions,
    with_floors,
)
from megakernel.operator.contract import BENCHMARK_ROWS, BENCHMARK_WIDTH, DEFAULT_EPS
from megakernel.record.protocol import EMULATED, Protocol


def _default(name: str) -> str:
    return f"{getattr(Protocol(), name)}; emulated {getattr(EMULATED, name)}"


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)


def bench(
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            help="Implementation, or FILE.py:NAME; repeat for several, all unless given.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    rows: RowsOption = None,
    width: WidthOption = BENCHMARK_WIDTH,
    eps: Annotated[float, typer.Option("--eps", help="Added to the mean square.")] = DEFAULT_EPS,
    submission: SubmissionOption = "both",
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="Rounds for each shape.", show_default=_default("rounds"))
    ] = None,
    warmups: Annotated[
        int | None,
        typer.Option("--warmups", min=0, help="Untimed invocations first.", show_default=_default("warmups")),
    ] = None,
    singles: Annotated[
        int | None,
        typer.Option("--singles", min=1, help="Invocations timed one by one.", show_default=_default("singles")),
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Invocations in a batch.", show_default=_default("batch"))
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the order within rounds.")] = Protocol().order_seed,
    watchdog: Annotated[
        float | None,
        typer.Option(
            "--watchdog",
            help="Seconds until a round of one variant counts as hung.",
            show_default=_default("watchdog_s"),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Result file; must not exist.", metavar="FILE", show_default="bench-TIME.h5"),
    ] = None,
    device: DeviceOption = "auto",
    sms: SmsOption = None,
    json: JsonOption = False,
) -> None:
    """Verifies and measures implementations, keeps every sample in an HDF5 file and prints the table."""
    from dataclasses import replace
    from datetime import datetime

    from megakernel.device.choose import open_device
    from megakernel.errors import PlanError, VerdictError
    from megakernel.operator.contract import Problem
    from megakernel.record.reader import load
    from megakernel.record.writer import SessionWriter
    from megakernel.report import tables
    from megakernel.report.summary import records, summarise
    from megakernel.run.session import Request, run_session

    variants = with_floors(chosen_variants(variant))
    chosen = {"rounds": rounds, "warmups": warmups, "singles": singles, "batch": batch, "watchdog_s": watchdog}
    overrides: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None} | {
        "order_seed": seed
    }
    path = out or Path(f"bench-{datetime.now():%Y%m%d-%H%M%S}.h5")
    for count in rows or BENCHMARK_ROWS:
        Problem(count, width, eps)  # refuses bad values before anything is opened
    replace(Protocol(), **overrides)
    with open_device(device, sms=sms) as opened:
        kind = opened.facts.kind
        protocol = replace(Protocol() if kind == "gpu" else EMULATED, **overrides)
        counts = rows_or_default(rows, kind)
        request = Request(variants, counts, width, eps, submissions(submission), protocol)
        writer = SessionWriter(path)
        try:
            with tables.progress_bar() as bar:
                outcome = run_session(opened, request, writer, interrupts.checked(tables.progress_report(bar)))
            writer.finish()
        except BaseException:
            if writer.close():
                tables.print_notice(f"the samples so far are in {writer.partial}")
            raise
    session = load(path)
    if json:
        tables.print_json(records(summarise(session)))
    else:
        tables.print_session(session)
        tables.print_lines([f"samples: {path}"])
    for line in (*outcome.refused, *outcome.failures):
        tables.print_notice(line)
    if outcome.failures:
        raise VerdictError(f"{len(outcome.failures)} checks failed: see above")
    if outcome.refused:
        raise PlanError(f"{len(outcome.refused)} could not be run: see above")
