"""``mk devices`` and ``mk occupancy``."""

from typing import Annotated

import typer

from megakernel.cli.options import (
    ConfigurationOption,
    FrozenOption,
    JsonOption,
    RowsOption,
    VariantArguments,
    WidthOption,
    chosen_variants,
    frozen_table,
    parse_configuration,
    say_if_borrowed,
)
from megakernel.operator.contract import BENCHMARK_ROWS, BENCHMARK_WIDTH

_MOST = 2**31 - 1


def register(app: typer.Typer) -> None:
    app.command("devices")(devices)
    app.command("occupancy")(occupancy)


def devices(json: JsonOption = False) -> None:
    """Lists the GPUs that can be used."""
    from dataclasses import asdict

    from megakernel.device.gpu import list_gpus
    from megakernel.report import tables

    found = list_gpus()
    if json:
        tables.print_json([asdict(facts) for facts in found])
    else:
        tables.print_devices(found)


def occupancy(
    variant: VariantArguments = None,
    rows: RowsOption = None,
    width: WidthOption = BENCHMARK_WIDTH,
    configuration: ConfigurationOption = None,
    frozen: FrozenOption = None,
    device: Annotated[
        str, typer.Option("--device", help="auto, a GPU's index or UUID, or a GPU by name: h100.", metavar="NAME")
    ] = "auto",
    sms: Annotated[int | None, typer.Option("--sms", min=1, max=_MOST, help="SMs of a named GPU.", metavar="N")] = None,
    smem_per_sm: Annotated[
        int | None,
        typer.Option("--smem-per-sm", min=1, max=_MOST, help="Shared memory of its SM, in bytes.", metavar="N"),
    ] = None,
    smem_per_block: Annotated[
        int | None,
        typer.Option("--smem-per-block", min=1, max=_MOST, help="What a block may have, in bytes.", metavar="N"),
    ] = None,
    registers_per_sm: Annotated[
        int | None, typer.Option("--registers-per-sm", min=1, max=_MOST, help="Registers of its SM.", metavar="N")
    ] = None,
    threads_per_sm: Annotated[
        int | None,
        typer.Option("--threads-per-sm", min=1, max=_MOST, help="Threads that its SM holds.", metavar="N"),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Walk through each kernel's numbers.")] = False,
    json: JsonOption = False,
) -> None:
    """Shows how many blocks of each kernel fit, what limits them, and the launches that follow.

    Needs no GPU with --device h100, or a100, h100-pcie, h200, l40s, rtx4090, b200.
    """
    from megakernel.device.choose import open_planner
    from megakernel.report import tables
    from megakernel.run.occupancy import explanation, occupancy_of
    from megakernel.run.prepare import KernelStore

    variants = chosen_variants(variant)
    chosen = parse_configuration(configuration)
    table = frozen_table(frozen)
    planner = open_planner(
        device,
        sm_count=sms,
        shared_bytes_per_sm=smem_per_sm,
        shared_bytes_per_block=smem_per_block,
        registers_per_sm=registers_per_sm,
        threads_per_sm=threads_per_sm,
    )
    counts = rows or list(BENCHMARK_ROWS)
    with planner, KernelStore(planner) as store:
        if chosen is None:
            say_if_borrowed(planner.facts, table)
        occupancies = occupancy_of(planner, store, variants, counts, width, chosen, frozen=table)
        if json:
            tables.print_json([each.record() for each in occupancies])
        elif explain:
            for each in occupancies:
                tables.print_lines([*explanation(each), ""])
        else:
            facts = planner.facts
            source = "asked of the driver" if facts.driver_version else "computed from machine code and limits"
            of = f"{facts.name} ({facts.arch}), {facts.sm_count} SMs, rows of {width}"
            title = f"{of}; cap = blocks/SM x SMs, {source}"
            tables.print_occupancy([each.record() for each in occupancies], counts, title)
