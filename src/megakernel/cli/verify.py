"""``mk verify``."""

from typing import Annotated

import typer

from megakernel.cli.options import (
    ConfigurationOption,
    DeviceOption,
    FrozenOption,
    JsonOption,
    RowsOption,
    SmsOption,
    SubmissionOption,
    VariantArguments,
    WidthOption,
    chosen_variants,
    frozen_table,
    parse_configuration,
    rows_or_default,
    say_if_borrowed,
    submissions,
)
from megakernel.operator.contract import BENCHMARK_ROWS, BENCHMARK_WIDTH, DEFAULT_EPS
from megakernel.record.protocol import EMULATED, Protocol

_WATCHDOG_S = 60.0


def register(app: typer.Typer) -> None:
    app.command("verify")(verify)


def verify(
    variant: VariantArguments = None,
    rows: RowsOption = None,
    width: WidthOption = BENCHMARK_WIDTH,
    eps: Annotated[float, typer.Option("--eps", help="Added to the mean square.")] = DEFAULT_EPS,
    fixture: Annotated[
        list[str], typer.Option("--fixture", help="Input; repeat for several, or 'all'.", metavar="NAME")
    ] = ["timing"],
    submission: SubmissionOption = "both",
    configuration: ConfigurationOption = None,
    frozen: FrozenOption = None,
    device: DeviceOption = "auto",
    sms: SmsOption = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Interleavings to explore on the emulator.", metavar="N")
    ] = 1,
    weak_stores: Annotated[
        bool, typer.Option("--weak-stores", help="Emulate stores that other blocks see only after a release.")
    ] = False,
    watchdog: Annotated[
        float | None,
        typer.Option("--watchdog", help="Seconds until a run counts as hung.", show_default="60; emulated 600"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="List every check.")] = False,
    json: JsonOption = False,
) -> None:
    """Holds outputs and every intermediate against a float64 reference."""
    from dataclasses import replace

    from megakernel.device.choose import open_device
    from megakernel.errors import UsageError, VerdictError
    from megakernel.operator.contract import Problem
    from megakernel.record.verification import Result
    from megakernel.report import tables
    from megakernel.run.prepare import KernelStore
    from megakernel.run.verify import verify_all

    variants = chosen_variants(variant)
    chosen = parse_configuration(configuration)
    table = frozen_table(frozen)
    for count in rows or BENCHMARK_ROWS:
        Problem(count, width, eps)  # refuses bad values before anything is opened
    if watchdog is not None:
        Protocol(watchdog_s=watchdog)
    results: list[Result] = []
    if device == "auto" and (seeds > 1 or weak_stores):
        device = "emulator"  # the same for every seed
    if seeds > 1 and device.partition(":")[0] != "emulator":
        raise UsageError(f"interleavings can be explored on the emulator alone, not on device {device!r}")
    for seed in range(seeds):
        opened = open_device(device, sms=sms, seed=seed, weak_stores=weak_stores)
        with opened, KernelStore(opened) as store:
            if seed == 0 and chosen is None:
                say_if_borrowed(opened.facts, table)
            problems = [Problem(count, width, eps) for count in rows_or_default(rows, opened.facts.kind)]
            limit_s = watchdog or (_WATCHDOG_S if opened.facts.kind == "gpu" else EMULATED.watchdog_s)
            found = verify_all(
                opened,
                store,
                variants,
                problems,
                fixture,
                submissions(submission),
                chosen,
                frozen=table,
                watchdog_s=limit_s,
            )
            for result in found:
                results.append(replace(result, seed=seed))
                tables.print_progress(f"verified {len(results)}: seed {seed}, {tables.subject(result)}")
    tables.print_progress("")
    if json:
        tables.print_json([tables.verification_record(result) for result in results])
    else:
        tables.print_verification(results, verbose=verbose)
    failed = [result for result in results if not result.verification.passed]
    if failed:
        raise VerdictError(f"{len(failed)} of {len(results)} verifications failed")
