"""``mk bench``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from megakernel.cli.options import (
    DeviceOption,
    FrozenOption,
    JsonOption,
    RowsOption,
    SmsOption,
    SubmissionOption,
    VariantOption,
    WidthOption,
    chosen_variants,
    frozen_table,
    rows_or_default,
    say_if_borrowed,
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
    variant: VariantOption = None,
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
    evicted: Annotated[
        bool, typer.Option("--evicted", help="Also time with the caches swept before each invocation.")
    ] = False,
    frozen: FrozenOption = None,
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

    from megakernel.cli.measuring import measure
    from megakernel.device.choose import open_device
    from megakernel.operator.contract import Problem
    from megakernel.record.protocol import EMULATED_SESSION, SESSION
    from megakernel.run.session import Request

    variants = with_floors(chosen_variants(variant))
    chosen = {"rounds": rounds, "warmups": warmups, "singles": singles, "batch": batch, "watchdog_s": watchdog}
    overrides: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None} | {
        "order_seed": seed
    }
    path = out or Path(f"bench-{datetime.now():%Y%m%d-%H%M%S}.h5")
    for count in rows or BENCHMARK_ROWS:
        Problem(count, width, eps)  # refuses bad values before anything is opened
    replace(Protocol(), **overrides)
    table = frozen_table(frozen)
    with open_device(device, sms=sms) as opened:
        kind = opened.facts.kind
        if evicted:
            overrides["evicted_rounds"] = (SESSION if kind == "gpu" else EMULATED_SESSION).evicted_rounds
        protocol = replace(Protocol() if kind == "gpu" else EMULATED, **overrides)
        counts = rows_or_default(rows, kind)
        say_if_borrowed(opened.facts, table)
        measure(
            opened, Request(variants, counts, width, eps, submissions(submission), protocol, table), path, json=json
        )
