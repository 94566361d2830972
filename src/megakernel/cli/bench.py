"""``mk bench`` and ``mk show``."""

from pathlib import Path
from typing import Annotated

import typer

from megakernel.cli.options import (
    DeviceOption,
    JsonOption,
    RowsOption,
    SubmissionOption,
    WidthOption,
    chosen_variants,
    submissions,
    with_floors,
)
from megakernel.operator.contract import BENCHMARK_ROWS, BENCHMARK_WIDTH, DEFAULT_EPS
from megakernel.record.protocol import Protocol

_DEFAULTS = Protocol()


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)
    app.command("show")(show)


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
    rows: RowsOption = list(BENCHMARK_ROWS),
    width: WidthOption = BENCHMARK_WIDTH,
    eps: Annotated[float, typer.Option("--eps", help="Added to the mean square.")] = DEFAULT_EPS,
    submission: SubmissionOption = "both",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds for each shape.")] = _DEFAULTS.rounds,
    warmups: Annotated[int, typer.Option("--warmups", min=0, help="Untimed invocations first.")] = _DEFAULTS.warmups,
    singles: Annotated[int, typer.Option("--singles", min=1, help="Invocations timed one by one.")] = _DEFAULTS.singles,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Invocations in a batch.")] = _DEFAULTS.batch,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the order within rounds.")] = _DEFAULTS.order_seed,
    watchdog: Annotated[
        float, typer.Option("--watchdog", help="Seconds until a round of one variant counts as hung.")
    ] = _DEFAULTS.watchdog_s,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Result file; must not exist.", metavar="FILE", show_default="bench-TIME.h5"),
    ] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Verifies and measures implementations, keeps every sample in an HDF5 file and prints the table."""
    from datetime import datetime

    from megakernel.device.choose import open_device
    from megakernel.errors import VerdictError
    from megakernel.operator.contract import Problem
    from megakernel.record.reader import load
    from megakernel.record.writer import SessionWriter
    from megakernel.report import tables
    from megakernel.report.summary import records, summarise
    from megakernel.run.session import Request, run_session

    protocol = Protocol(rounds, warmups, singles, batch, seed, watchdog_s=watchdog)
    distinct_rows = tuple(dict.fromkeys(rows))
    for count in distinct_rows:
        Problem(count, width, eps)  # refuses bad values before anything is opened
    request = Request(
        with_floors(chosen_variants(variant)), distinct_rows, width, eps, submissions(submission), protocol
    )
    path = out or Path(f"bench-{datetime.now():%Y%m%d-%H%M%S}.h5")
    with open_device(device) as opened:
        writer = SessionWriter(path)
        try:
            with tables.progress_bar() as bar:
                outcome = run_session(opened, request, writer, tables.progress_report(bar))
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
    if outcome.failures:
        for failure in outcome.failures:
            tables.print_notice(failure)
        raise VerdictError(f"{len(outcome.failures)} checks failed or variants were refused: see above")


def show(
    file: Annotated[Path, typer.Argument(help="Result file of mk bench.", metavar="FILE")],
    json: JsonOption = False,
) -> None:
    """Prints the table of a result file. Needs no GPU."""
    from megakernel.errors import RecordError
    from megakernel.record.reader import load
    from megakernel.report import tables
    from megakernel.report.summary import records, summarise

    session = load(file)
    if not any(len(series.rounds) for series in session.series):
        raise RecordError(
            f"{file} holds no finished round" + (f": {session.interruption}" if session.interruption else "")
        )
    if json:
        tables.print_json(records(summarise(session)))
    else:
        tables.print_session(session)
