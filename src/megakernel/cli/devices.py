"""``mk devices`` and ``mk occupancy``."""

import typer

from megakernel.cli.options import (
    ConfigurationOption,
    DeviceOption,
    JsonOption,
    RowsOption,
    SmsOption,
    VariantArguments,
    WidthOption,
    chosen_variants,
    parse_configuration,
)
from megakernel.operator.contract import BENCHMARK_ROWS, BENCHMARK_WIDTH


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
    device: DeviceOption = "auto",
    sms: SmsOption = None,
    json: JsonOption = False,
) -> None:
    """Shows how many blocks of each kernel fit, what limits them, and the launches that follow."""
    from megakernel.device.choose import open_device
    from megakernel.report import tables
    from megakernel.run.occupancy import occupancy_records
    from megakernel.run.prepare import KernelStore

    variants = chosen_variants(variant)
    chosen = parse_configuration(configuration)
    counts = rows or list(BENCHMARK_ROWS)
    with open_device(device, sms=sms) as opened, KernelStore(opened) as store:
        records = occupancy_records(opened, store, variants, counts, width, chosen)
        if json:
            tables.print_json(records)
        else:
            facts = opened.facts
            title = f"{facts.name} ({facts.arch}), {facts.sm_count} SMs, rows of {width}; cap = blocks/SM x SMs"
            tables.print_occupancy(records, counts, title)
