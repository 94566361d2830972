"""One self-contained page: tables, figures as SVG, provenance. It loads nothing from anywhere."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from megakernel.errors import MissingError, RecordError, UsageError
from megakernel.files import write_new
from megakernel.report.analysis import Analysis
from megakernel.report.content import (
    Table,
    evicted_table,
    main_table,
    penalty_table,
    provenance_table,
    python_note,
    rate_table,
    resource_table,
    target_lines,
    verification_lines,
    verification_table,
    warnings,
    way_table,
)
from megakernel.report.figures import inline_svg
from megakernel.report.style import clean

_TEMPLATE = Path(__file__).with_name("page.html")

CAPTIONS = {
    "completion": "Host completion by row count: unfused, with graph replay, local fusion, and the megakernels.",
    "penalties": "Retention penalties: extra host completion when values are reloaded instead of kept.",
    "distance": "Distance to the floor: times copy (x read once, y written once) in the same run, graph replay.",
    "metrics": "The four metrics side by side, direct launch and graph replay.",
    "rounds": "Every round against its series' median, with the SM clock below: drift shows as a slope or a step.",
    "storage": "Where quantities live, drawn from the declarations. Not a picture of time.",
    "dependencies": "What waits for what, drawn from the declarations. Not a picture of time.",
}
_LIMITS = (
    "Warm invocation latency of one operator, at these widths and row counts, on these devices and days. Other GPUs, "
    "other inputs, cold data and whole applications need measurements of their own.",
    "Whiskers span session medians, and p10-p90 describe rounds: neither is a confidence interval. Retention penalties "
    "include staging through shared memory and a block synchronisation.",
    "Event intervals can hold gaps in what the host supplied; direct launches carry what Python adds.",
)


@dataclass(frozen=True)
class Figure:
    """An SVG element, and what it shows in words."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Section:
    """A part of the page; ``long`` cells may wrap."""

    name: str
    heading: str
    text: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    long: bool = False


def write_page(analysis: Analysis, out: Path) -> None:
    """Writes the page.

    Raises:
        UsageError: the file's name does not end as a page's does.
        RecordError: a file is in the way, or it cannot be written.
        MissingError: Jinja2 or Matplotlib is not installed.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out}: give the page a name that ends in .html")
    write_new(out, render_page(analysis).encode())


def render_page(analysis: Analysis) -> str:
    """The page as text. All that comes from a file is escaped."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingError("a page needs Jinja2: pip install 'megakernel[report]'") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    count = len(analysis.sessions)
    counts = ", ".join(str(rows) for rows in analysis.row_counts)
    text = template.render(
        title=clean(f"{analysis.device}: {counts} rows, {count} session{'s' if count > 1 else ''}"),
        warnings=[clean(line) for line in warnings(analysis)],
        targets=target_lines(analysis),
        sections=_sections(analysis),
    )
    return text + "\n"


def _sections(analysis: Analysis) -> list[Section]:
    sections = [
        Section("ways", "Which way pays", tables=_tables(way_table(analysis))),
        Section(
            "completion",
            "Host completion",
            tuple(python_note(analysis.sessions)),
            _figures(analysis, "completion"),
            _tables(main_table(analysis)),
        ),
        Section(
            "retention",
            "What retention saves",
            figures=_figures(analysis, "penalties"),
            tables=_tables(penalty_table(analysis.penalties, analysis.published)),
        ),
        Section("metrics", "The four metrics", figures=_figures(analysis, "metrics")),
        Section(
            "distance",
            "Distance to the floor",
            figures=_figures(analysis, "distance"),
            tables=_tables(rate_table(analysis), evicted_table(analysis)),
        ),
        Section("rounds", "Rounds and clocks", figures=_figures(analysis, "rounds")),
        Section("schematics", "How they differ", figures=_figures(analysis, "storage", "dependencies")),
        Section("limits", "Limits", _LIMITS),
        Section(
            "verified",
            "What was verified",
            _cleaned(verification_lines(analysis)),
            tables=_tables(verification_table(analysis)),
        ),
        Section("kernels", "Kernels", tables=_tables(resource_table(analysis))),
        Section("provenance", "Provenance", tables=_tables(provenance_table(analysis)), long=True),
    ]
    return [section for section in sections if section.text or section.figures or section.tables]


def _figures(analysis: Analysis, *names: str) -> tuple[Figure, ...]:
    """Those that the files have the data for."""
    drawn = []
    for name in names:
        try:
            drawn.append(Figure(inline_svg(analysis, name), CAPTIONS[name]))
        except RecordError:  # such as no controls: the section is left out, and the table says nothing of them
            continue
    return tuple(drawn)


def _tables(*tables: Table | None) -> tuple[Table, ...]:
    return tuple(
        Table(
            clean(table.title),
            table.columns,
            tuple(tuple(clean(cell) for cell in row) for row in table.rows),
            _cleaned(table.notes),
        )
        for table in tables
        if table is not None
    )


def _cleaned(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(clean(line) for line in lines)
