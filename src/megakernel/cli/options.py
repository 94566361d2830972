"""Options that several commands share, and what they mean. Help needs no more than the options: the catalogue is loaded
where it is used.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from megakernel.operator.contract import BENCHMARK_ROWS

if TYPE_CHECKING:
    from megakernel.record.facts import DeviceFacts
    from megakernel.record.plan import Submission
    from megakernel.variants.declaration import Configuration, Variant
    from megakernel.variants.frozen import FrozenTable

SubmissionChoice = Literal["direct", "graph", "both"]

EMULATED_ROWS = (16,)

VariantArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[VARIANT]...", help="Implementations, or FILE.py:NAME; all unless given.", show_default=False
    ),
]
RowsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--rows", min=1, help="Row count; repeat for several.", metavar="N", show_default="1, 16, 32, 64; emulated 16"
    ),
]
WidthOption = Annotated[int, typer.Option("--width", min=1, max=2**31 - 1, help="Elements in a row.", metavar="N")]
DeviceOption = Annotated[
    str, typer.Option("--device", help="auto, a GPU's index or UUID, emulator, or emulator:GPU.", metavar="NAME")
]
SmsOption = Annotated[
    int | None,
    typer.Option("--sms", min=1, max=65536, help="SMs of the emulated GPU, instead of its own.", metavar="N"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
SubmissionOption = Annotated[SubmissionChoice, typer.Option("--submission", help="How invocations are submitted.")]
ConfigurationOption = Annotated[
    str | None,
    typer.Option("--configuration", metavar="THREADSxTILE", help="Instead of the variants' own, such as 256x4096."),
]
FrozenOption = Annotated[
    Path | None,
    typer.Option(
        "--frozen",
        help="Table of configurations, as mk tune writes it.",
        metavar="FILE",
        show_default="the shipped one",
    ),
]
VariantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        help="Implementation, or FILE.py:NAME; repeat for several, all unless given.",
        metavar="NAME",
        show_default=False,
    ),
]


def frozen_table(path: Path | None) -> "FrozenTable":
    """The table of a file, or the shipped one."""
    from megakernel.variants.frozen import load, shipped

    return shipped() if path is None else load(path)


def say_if_borrowed(facts: "DeviceFacts", table: "FrozenTable") -> None:
    """Says it where the table has no configurations of this device."""
    from megakernel.report import tables

    if notice := table.notice(facts.label, facts.sm_count):
        tables.print_notice(notice)


def chosen_variants(names: list[str] | None) -> "tuple[Variant, ...]":
    """The variants named, each once; where none is, all of the catalogue that call no library."""
    from megakernel.variants.catalogue import CATALOGUE, find

    if names:
        return tuple(dict.fromkeys(find(name) for name in names))
    return tuple(variant for variant in CATALOGUE.values() if not variant.libraries)


def with_floors(variants: "tuple[Variant, ...]") -> "tuple[Variant, ...]":
    """The variants with the floors in front, so that each figure has its limit beside it."""
    from megakernel.variants.catalogue import FLOORS

    return tuple(dict.fromkeys((*FLOORS, *variants)))


def submissions(choice: SubmissionChoice) -> "tuple[Submission, ...]":
    from megakernel.record.plan import SUBMISSIONS

    return SUBMISSIONS if choice == "both" else (choice,)


def rows_or_default(rows: list[int] | None, kind: str) -> tuple[int, ...]:
    """The rows asked for, each once; else the benchmark's, of which the emulator runs one."""
    if rows:
        return tuple(dict.fromkeys(rows))
    return BENCHMARK_ROWS if kind == "gpu" else EMULATED_ROWS


def parse_configuration(text: str | None) -> "Configuration | None":
    """Reads ``THREADSxTILE``."""
    from megakernel.variants.declaration import Configuration

    try:
        return None if text is None else Configuration.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
