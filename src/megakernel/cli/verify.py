"""``mk verify``."""

from typing import Annotated

import typer

from megakernel.cli.options import (
    ConfigurationOption,
    DeviceOption,
    JsonOption,
    RowsOption,
    SubmissionOption,
    VariantArguments,
    WidthOption,
    chosen_variants,
    parse_configuration,
    submissions,
)
from megakernel.operator.contract import BENCHMARK_ROWS, BENCHMARK_WIDTH, DEFAULT_EPS


def register(app: typer.Typer) -> None:
    app.command("verify")(verify)


def verify(
    variant: VariantArguments = None,
    rows: RowsOption = list(BENCHMARK_ROWS),
    width: WidthOption = BENCHMARK_WIDTH,
    eps: Annotated[float, typer.Option("--eps", help="Added to the mean square.")] = DEFAULT_EPS,
    fixture: Annotated[
        list[str], typer.Option("--fixture", help="Input; repeat for several, or 'all'.", metavar="NAME")
    ] = ["timing"],
    submission: SubmissionOption = "both",
    configuration: ConfigurationOption = None,
    device: DeviceOption = "auto",
    watchdog: Annotated[float, typer.Option("--watchdog", help="Seconds until a run counts as hung.")] = 30.0,
    verbose: Annotated[bool, typer.Option("--verbose", help="List every check.")] = False,
    json: JsonOption = False,
) -> None:
    """Holds outputs and every intermediate against a float64 reference."""
    from dataclasses import asdict

    from megakernel.device.choose import open_device
    from megakernel.errors import VerdictError
    from megakernel.operator.contract import Problem
    from megakernel.report import tables
    from megakernel.run.prepare import KernelStore
    from megakernel.run.verification import verify_all

    chosen = parse_configuration(configuration)
    with open_device(device) as opened, KernelStore(opened) as store:
        results = list(
            verify_all(
                opened,
                store,
                chosen_variants(variant),
                [Problem(count, width, eps) for count in rows],
                fixture,
                submissions(submission),
                chosen,
                watchdog_s=watchdog,
            )
        )
        device_name = opened.facts.name
    failed = [result for result in results if not result[2].passed]
    if json:
        tables.print_json(
            [
                {
                    "device": device_name,
                    "variant": plan.variant,
                    "rows": plan.problem.rows,
                    "width": plan.problem.width,
                    "submission": submitted,
                    "fixture": verification.fixture,
                    "passed": verification.passed,
                    "checks": [tables.finite(asdict(check)) for check in verification.checks],
                }
                for plan, submitted, verification in results
            ]
        )
    else:
        tables.print_verification(results, verbose=verbose)
    if failed:
        raise VerdictError(f"{len(failed)} of {len(results)} verifications failed")
