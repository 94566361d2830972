"""``mk tune``, ``mk freeze`` and ``mk session``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from megakernel.cli.options import (
    DeviceOption,
    FrozenOption,
    JsonOption,
    RowsOption,
    SmsOption,
    VariantOption,
    WidthOption,
    chosen_variants,
    frozen_table,
    rows_or_default,
    say_if_borrowed,
    with_floors,
)
from megakernel.operator.contract import BENCHMARK_ROWS, BENCHMARK_WIDTH, DEFAULT_EPS
from megakernel.record.protocol import EMULATED_SESSION, SESSION

_MANIFEST = Path("manifest.json")


def _default(name: str) -> str:
    return f"{getattr(SESSION, name)}; emulated {getattr(EMULATED_SESSION, name)}"


def register(app: typer.Typer) -> None:
    app.command("tune")(tune)
    app.command("freeze")(freeze)
    app.command("session")(session)


def tune(
    rows: RowsOption = None,
    width: WidthOption = BENCHMARK_WIDTH,
    frozen: Annotated[
        Path | None,
        typer.Option(
            "--frozen", help="Table whose other entries are kept.", metavar="FILE", show_default="the shipped one"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Table to write; must not exist.", metavar="FILE")] = Path(
        "frozen.toml"
    ),
    seed: Annotated[int, typer.Option("--seed", help="Seed of the order of batches.")] = 0,
    device: DeviceOption = "auto",
    sms: SmsOption = None,
    json: JsonOption = False,
) -> None:
    """The pilot: finds each variant's fastest configuration on this device, and which variants stand for a shape.

    The table is written after each row count.
    """
    from dataclasses import replace
    from datetime import date

    from megakernel import __version__
    from megakernel.cli import interrupts
    from megakernel.device.choose import open_device
    from megakernel.errors import VerdictError
    from megakernel.files import cannot_write
    from megakernel.operator.contract import Problem
    from megakernel.report import tables
    from megakernel.run import pilot
    from megakernel.run.prepare import KernelStore
    from megakernel.variants.catalogue import CATALOGUE
    from megakernel.variants.frozen import Entry, FrozenTable, merged, to_toml

    for count in rows or BENCHMARK_ROWS:
        Problem(count, width)
    table = frozen_table(frozen)
    failures: list[str] = []
    new: list[Entry] = []
    with open_device(device, sms=sms) as opened:
        facts = opened.facts
        effort = replace(pilot.Effort() if facts.kind == "gpu" else pilot.EMULATED_EFFORT, seed=seed)
        variants = _there(opened, tuple(CATALOGUE.values()))
        controls = [variant for variant in variants if variant.family == "control"]
        source = (
            f"mk tune of megakernel {__version__}, {date.today()}, {facts.kind}, driver {facts.driver_version or '-'}"
        )
        try:
            file = out.open("x")
        except OSError as error:
            raise cannot_write(out, error) from error
        try:
            with file, KernelStore(opened) as store:
                for count in rows_or_default(rows, facts.kind):
                    with tables.progress_bar() as bar:
                        report = interrupts.checked(tables.progress_report(bar))
                        tuned = pilot.tune(opened, store, variants, Problem(count, width), source, effort, report)
                    new.append(tuned.entry)
                    failures += tuned.failures
                    stands = f"{tuned.entry.local} / {tuned.entry.megakernel}"
                    for line in (f"{count} rows: {stands}", *tuned.refused, *tuned.failures):
                        tables.print_notice(line)
                    every = merged(table, new)
                    own = [e for e in every if (e.device, e.sm_count) == (facts.label, facts.sm_count)]
                    text = to_toml(merged(FrozenTable(every), pilot.with_controls(own, controls)))
                    file.seek(0)
                    file.truncate()
                    file.write(text)
                    file.flush()
        except BaseException:
            if new:
                tables.print_notice(f"{out} holds the row counts so far: {', '.join(str(e.rows) for e in new)}")
            else:
                out.unlink()
                tables.print_notice(f"no row count was finished: {out} is not there")
            raise
    if facts.kind == "emulator":
        tables.print_notice("emulated on a CPU: these winners say nothing about a GPU")
    if json:
        tables.print_json([_record(entry) for entry in new])
    else:
        tables.print_pilot(new)
        tables.print_lines([f"table: {out}"])
    if failures:
        raise VerdictError(f"{len(failures)} configurations were wrong: see above")


def _record(entry: Any) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(entry), "configurations": {name: str(c) for name, c in entry.configurations.items()}}


def _there(device: Any, variants: tuple[Any, ...]) -> tuple[Any, ...]:
    """The variants whose libraries are there; of the others it is said why not."""
    from megakernel.errors import PlanError
    from megakernel.report import tables

    found = []
    for variant in variants:
        try:
            for library in variant.libraries:
                device.require_library(library)
        except PlanError as error:
            tables.print_notice(f"without {variant.name}: {error}")
        else:
            found.append(variant)
    return tuple(found)


def freeze(
    out: Annotated[Path, typer.Option("--out", help="Manifest to write; must not exist.", metavar="FILE")] = _MANIFEST,
    check: Annotated[
        Path | None, typer.Option("--check", help="Instead compare with this manifest.", metavar="FILE")
    ] = None,
    variant: VariantOption = None,
    frozen: FrozenOption = None,
    device: Annotated[
        str, typer.Option("--device", help="emulator, to freeze its protocol; none is opened.", metavar="NAME")
    ] = "auto",
    json: JsonOption = False,
) -> None:
    """Writes a manifest: hashes of kernels, package and configurations; protocol, fixture, tolerances, acceptance.

    Needs no GPU. A session records the manifest, and refuses to run where something has changed since.
    """
    from megakernel.errors import VerdictError
    from megakernel.record import manifest
    from megakernel.report import tables
    from megakernel.run.freeze import compare
    from megakernel.run.freeze import freeze as make_manifest

    table = frozen_table(frozen)
    protocol = EMULATED_SESSION if device.partition(":")[0] == "emulator" else SESSION
    own = chosen_variants(variant) if variant else ()
    if check is not None:
        found = compare(check, table, protocol, own)
        if json:
            tables.print_json({"state": found.state, "changes": list(found.changes)})
        else:
            tables.print_lines(found.changes or [f"as frozen in {check}"])
        if found.changes:
            raise VerdictError(f"{len(found.changes)} things are not as frozen in {check}")
        return
    made = make_manifest(table, protocol, own)
    manifest.write(made, out)
    if json:
        tables.print_json(made.sections)
    else:
        counts = ", ".join(f"{len(section)} {name.replace('_', ' ')}" for name, section in made.sections.items())
        tables.print_lines([f"frozen: {counts}", f"manifest: {out}"])


def session(
    out: Annotated[Path, typer.Option("--out", help="Session file; must not exist.", metavar="FILE")],
    variant: VariantOption = None,
    rows: RowsOption = None,
    width: WidthOption = BENCHMARK_WIDTH,
    eps: Annotated[float, typer.Option("--eps", help="Added to the mean square.")] = DEFAULT_EPS,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Largest shape first: for the second session, on another machine.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Seed of the order within rounds.", show_default="0; with --reverse 1"),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest",
            help="What mk freeze wrote.",
            metavar="FILE",
            show_default=f"{_MANIFEST}, where there is one",
        ),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Measure what is not as frozen, and mark the file.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="Warm rounds for each shape.", show_default=_default("rounds"))
    ] = None,
    evicted_rounds: Annotated[
        int | None,
        typer.Option(
            "--evicted-rounds",
            min=0,
            help="Rounds with the caches swept.",
            show_default=_default("evicted_rounds"),
        ),
    ] = None,
    frozen: FrozenOption = None,
    device: DeviceOption = "auto",
    sms: SmsOption = None,
    json: JsonOption = False,
) -> None:
    """One measurement session by the full protocol: every variant, direct and graph, warm and evicted."""
    from dataclasses import replace

    from megakernel.cli.measuring import measure
    from megakernel.device.choose import open_device
    from megakernel.errors import RecordError
    from megakernel.operator.contract import Problem
    from megakernel.record.plan import SUBMISSIONS
    from megakernel.report import tables
    from megakernel.run.freeze import compare
    from megakernel.run.session import Request
    from megakernel.variants.catalogue import CATALOGUE

    named = chosen_variants(variant) if variant else ()
    given = {"rounds": rounds, "evicted_rounds": evicted_rounds}
    overrides: dict[str, Any] = {name: value for name, value in given.items() if value is not None} | {
        "order_seed": int(reverse) if seed is None else seed,
        "shape_order": "descending" if reverse else "ascending",
    }
    for count in rows or BENCHMARK_ROWS:
        Problem(count, width, eps)  # refuses bad values before anything is opened
    replace(SESSION, **overrides)
    table = frozen_table(frozen)
    with open_device(device, sms=sms) as opened:
        kind = opened.facts.kind
        protocol = replace(SESSION if kind == "gpu" else EMULATED_SESSION, **overrides)
        found = compare(manifest or (_MANIFEST if _MANIFEST.is_file() else None), table, protocol, named)
        if found.changes and not allow_changes:
            more = f" (and {len(found.changes) - 1} more: mk freeze --check)" if len(found.changes) > 1 else ""
            raise RecordError(
                f"this is not what was frozen: {found.changes[0]}{more}; --allow-changes measures it and marks the file"
            )
        if found.state != "as frozen":
            not_frozen = (
                f"{len(found.changes)} changes since the manifest" if found.changes else "no manifest (mk freeze)"
            )
            tables.print_notice(f"not frozen: {not_frozen}; the file says so")
        say_if_borrowed(opened.facts, table)
        variants = with_floors(named or _there(opened, tuple(CATALOGUE.values())))
        counts = tuple(sorted(rows_or_default(rows, kind), reverse=reverse))
        measure(opened, Request(variants, counts, width, eps, SUBMISSIONS, protocol, table, found), out, json=json)
