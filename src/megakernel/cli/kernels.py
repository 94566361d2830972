"""``mk compile`` and ``mk graph``."""

from pathlib import Path
from typing import Annotated

import typer

from megakernel.cli.options import (
    ConfigurationOption,
    DeviceOption,
    FrozenOption,
    JsonOption,
    SmsOption,
    VariantArguments,
    WidthOption,
    chosen_variants,
    frozen_table,
    parse_configuration,
    say_if_borrowed,
)
from megakernel.operator.contract import BENCHMARK_ROWS, BENCHMARK_WIDTH


def register(app: typer.Typer) -> None:
    app.command("compile")(compile_)
    app.command("graph")(graph)


def compile_(
    variant: VariantArguments = None,
    arch: Annotated[str, typer.Option("--arch", help="Real architecture to compile for.", metavar="SM")] = "sm_90",
    width: WidthOption = BENCHMARK_WIDTH,
    configuration: ConfigurationOption = None,
    frozen: FrozenOption = None,
    keep: Annotated[Path | None, typer.Option("--keep", help="Folder to keep cubins in.", metavar="DIR")] = None,
    json: JsonOption = False,
) -> None:
    """Compiles kernels for a named architecture, with no need of a GPU, and shows what they take."""
    import time
    from dataclasses import asdict

    from megakernel.device.nvrtc import compile_recipe, make_recipe
    from megakernel.device.sources import kernel_folder
    from megakernel.files import write_new
    from megakernel.operator.contract import Problem
    from megakernel.report import tables
    from megakernel.variants.declaration import tile_shape

    records: list[dict[str, object]] = []
    given = parse_configuration(configuration)
    table = frozen_table(frozen)
    subjects = [
        (each, chosen)
        for each in chosen_variants(variant)
        for chosen in ([given] if given else table.configurations(each, BENCHMARK_ROWS))
    ]
    for each, chosen in subjects:
        problem = Problem(1, width)
        started = time.perf_counter()
        recipe = make_recipe(each.source_path(kernel_folder()), each.kernel_names(problem, chosen), arch)
        cubin = compile_recipe(recipe)
        seconds = time.perf_counter() - started
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            name = f"{each.name}-{chosen}-{tile_shape(problem, chosen)}-{arch}"
            write_new(keep / f"{name}.cubin", cubin.image)
            write_new(keep / f"{name}.ptx", cubin.ptx)
        for resources in cubin.resources.values():
            records.append(
                {"variant": each.name, "arch": arch, **asdict(resources)}
                | {"cubin_bytes": len(cubin.image), "seconds": round(seconds, 3)}
            )
    if json:
        tables.print_json(records)
    else:
        text = {"variant", "arch", "name"}
        columns = [key for key in records[0] if key != "symbol"]
        tables.print_table(
            [(column.replace("_", " "), column not in text) for column in columns],
            [[record[column] for column in columns] for record in records],
        )


def graph(
    variant: Annotated[str, typer.Argument(help="Implementation, or FILE.py:NAME.", metavar="VARIANT")],
    rows: Annotated[int, typer.Option("--rows", min=1, help="Row count.", metavar="N")] = 16,
    width: WidthOption = BENCHMARK_WIDTH,
    configuration: ConfigurationOption = None,
    frozen: FrozenOption = None,
    device: DeviceOption = "auto",
    sms: SmsOption = None,
    dot: Annotated[
        Path | None, typer.Option("--dot", help="Write the graph in Graphviz' language.", metavar="FILE")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Also replay an instrumented build, and show when each launch ran.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Builds a variant's graph, audits it against its declaration and prints its topology."""
    from dataclasses import asdict

    from megakernel.device.choose import open_device
    from megakernel.errors import VerdictError
    from megakernel.files import write_new
    from megakernel.operator.contract import Problem
    from megakernel.report import tables
    from megakernel.run.graph import audit, describe, expected_topology, to_dot
    from megakernel.run.prepare import KernelStore, Operands, prepare
    from megakernel.run.trace import out_of_order
    from megakernel.run.trace import trace as trace_launches

    (chosen,) = chosen_variants([variant])
    table = frozen_table(frozen)
    with (
        open_device(device, sms=sms) as opened,
        KernelStore(opened) as store,
        Operands(opened, Problem(rows, width)) as operands,
        prepare(opened, store, chosen, operands, parse_configuration(configuration), frozen=table) as prepared,
        prepared.executable("graph") as executable,
    ):
        if configuration is None:
            say_if_borrowed(opened.facts, table)
        expected = expected_topology(prepared.plan, prepared.kernels, prepared.addresses)
        held = executable.topology()
        topology = held or expected
        faults = audit(held, expected) if held else []
        names = {kernel.resources.symbol: kernel.resources.name for kernel in prepared.kernels.values()}
        verdict = "; ".join(faults) or ("as declared" if held else "none: the emulator holds no graph to read back")
        spans = trace_launches(opened, chosen, prepared.plan.problem, prepared.plan.configuration) if trace else ()
        disorder = out_of_order(spans)
        if dot is not None:
            write_new(dot, (to_dot(topology, chosen.name, names) + "\n").encode())
        if json:
            audited = {"variant": chosen.name, "audited": held is not None, "faults": faults}
            tables.print_json(asdict(topology) | audited | {"trace": [asdict(span) for span in spans]})
        else:
            tables.print_lines([*describe(topology, names), f"audit: {verdict}"])
            if spans:
                columns = [("launch", False), ("rows", False), ("begin ns", True), ("end ns", True), ("took ns", True)]
                tables.print_table(
                    columns,
                    [[s.kernel, f"{s.first_row}+{s.rows}", s.begin_ns, s.end_ns, s.end_ns - s.begin_ns] for s in spans],
                )
                tables.print_lines([f"trace: {'; '.join(disorder) or 'launches ran in order'}"])
    if faults:
        raise VerdictError(f"the graph of {chosen.name} is not as declared: {'; '.join(faults)}")
    if disorder:
        raise VerdictError(f"the launches of {chosen.name} did not run in order: {'; '.join(disorder)}")
