"""``mk show``, ``mk report`` and ``mk compare``: from files alone, without a GPU."""

from pathlib import Path
from typing import Annotated

import typer

from megakernel.cli.options import JsonOption
from megakernel.record.protocol import METRICS

CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]
ThrottledOption = Annotated[
    bool, typer.Option("--exclude-throttled", help="Leave out rounds in which power or heat held the clock down.")
]


def register(app: typer.Typer) -> None:
    app.command("show")(show)
    app.command("report")(report)
    app.command("compare")(compare)


def show(
    file: Annotated[Path, typer.Argument(help="File of mk bench or mk session.", metavar="FILE")],
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


def compare(
    first: Annotated[Path, typer.Argument(help="Result file of the first run.", metavar="A")],
    second: Annotated[Path, typer.Argument(help="Result file of the second, judged against it.", metavar="B")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help=f"Repeat for several: {', '.join(METRICS)}.",
            metavar="NAME",
            show_default="host_completion, event_interval",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="Relative change that matters.", metavar="SHARE", show_default="0.01"),
    ] = None,
    error_rate: Annotated[
        float | None,
        typer.Option(
            "--error-rate",
            help="Chance of any wrong verdict where nothing changed.",
            metavar="SHARE",
            show_default="0.05",
        ),
    ] = None,
    allow_different: Annotated[
        bool, typer.Option("--allow-different", help="Compare other devices and protocols too, naming what differs.")
    ] = False,
    exclude_throttled: ThrottledOption = False,
    json: JsonOption = False,
) -> None:
    """Says for each variant, shape and metric whether B is faster, slower or the same. Needs no GPU.

    Exit codes: 0 nothing is slower, 1 something is slower or was wrong, 3 that cannot be told.
    """
    from megakernel.errors import AmbiguousError, VerdictError
    from megakernel.report import compare as comparing
    from megakernel.report import tables
    from megakernel.report.analysis import load_pair
    from megakernel.report.content import comparison_table

    rules = comparing.Rules(
        metrics=tuple(dict.fromkeys(metric or comparing.DEFAULT_METRICS)),
        threshold=comparing.DEFAULT_THRESHOLD if threshold is None else threshold,
        error_rate=comparing.DEFAULT_ERROR_RATE if error_rate is None else error_rate,
    )
    one, other, excluded = load_pair(first, second, exclude_throttled=exclude_throttled)
    differing = comparing.require_comparable(one, other, allow_different=allow_different)
    found = comparing.compare(one, other, rules)
    notes = [*(f"DIFFERENT: {field}" for field in differing), *tables.pair_notes(one, other, excluded)]
    if json:
        for note in notes:
            tables.print_notice(note)
        tables.print_json(comparing.comparison_records(found))
    else:
        tables.print_lines(notes)
        tables.print_content(comparison_table(found, rules))
        tables.print_lines(comparing.missing(one, other))
    verdicts = [each.verdict for each in found]
    overall = comparing.overall(found)
    not_right = comparing.not_right(one, other)
    if not_right:
        more = f" (and {len(not_right) - 1} more)" if len(not_right) > 1 else ""
        raise VerdictError(f"{not_right[0]}{more}: its times say nothing")
    if overall == "slower":
        raise VerdictError(f"{verdicts.count('slower')} of {len(found)} comparisons are slower")
    if overall == "ambiguous":
        raise AmbiguousError(f"{verdicts.count('ambiguous')} of {len(found)} comparisons are ambiguous, none is slower")
