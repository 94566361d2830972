"""``mk show`` and ``mk report``: from files alone, without a GPU."""

from pathlib import Path
from typing import Annotated

import typer

from megakernel.cli.options import JsonOption

CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]
ThrottledOption = Annotated[
    bool, typer.Option("--exclude-throttled", help="Leave out rounds in which power or heat held the clock down.")
]


def register(app: typer.Typer) -> None:
    app.command("show")(show)
    app.command("report")(report)


def show(
    file: Annotated[Path, typer.Argument(help="Result file of mk bench.", metavar="FILE")],
    everything: Annotated[bool, typer.Option("--all", help="Every metric of every submission.")] = False,
    json: JsonOption = False,
) -> None:
    """Prints the table of a result file. Needs no GPU."""
    from megakernel.report import tables
    from megakernel.report.analysis import load_finished
    from megakernel.report.summary import records, summarise

    session = load_finished(file)
    if json:
        tables.print_json(records(summarise(session)))
    else:
        tables.print_session(session, everything=everything)


def report(
    files: Annotated[list[Path], typer.Argument(help="Result files: the sessions of one measurement.", metavar="FILE")],
    json: JsonOption = False,
    csv: CsvOption = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one self-contained page with figures.", metavar="FILE")
    ] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", help="Write one figure: mk report --help names them.", metavar="NAME")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to: its suffix is svg, png or pdf.", metavar="FILE")
    ] = None,
    exclude_throttled: ThrottledOption = False,
) -> None:
    """Analyses one session, or the sessions of one measurement: medians, targets, penalties, rates. Needs no GPU.

    Figures: completion, penalties, metrics, distance, rounds, storage, dependencies.
    """
    from megakernel.errors import UsageError
    from megakernel.report import tables
    from megakernel.report.analysis import analyse
    from megakernel.report.summary import records, to_csv

    if sum((json, csv, html is not None, figure is not None)) > 1:
        raise UsageError("give one of --json, --csv, --html and --figure")
    if (figure is None) != (out is None):
        raise UsageError("--figure NAME and --out FILE go together")
    analysis = analyse(files, exclude_throttled=exclude_throttled)
    if json:
        tables.print_json(records(analysis.rows))
    elif csv:
        tables.print_text(to_csv(analysis.rows))
    elif html is not None:
        from megakernel.report.page import write_page

        write_page(analysis, html)
        tables.print_lines([f"page: {html}"])
    elif figure is not None and out is not None:
        from megakernel.report.figures import write_figure

        write_figure(analysis, figure, out)
        tables.print_lines([f"figure: {out}"])
    else:
        tables.print_report(analysis)
