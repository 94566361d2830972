"""The figures by name, and how they are written."""

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from megakernel.errors import UsageError
from megakernel.files import write_new
from megakernel.report import charts, schematics
from megakernel.report.analysis import Analysis
from megakernel.report.style import settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[Analysis], "Figure"]] = {
    "completion": charts.completion,
    "penalties": charts.penalties,
    "metrics": charts.metrics,
    "distance": charts.distance,
    "rounds": charts.rounds,
    "storage": schematics.storage,
    "dependencies": schematics.dependencies,
}
FORMATS = ("svg", "png", "pdf")
_PNG_DPI = 150


def write_figure(analysis: Analysis, name: str, out: Path) -> None:
    """Writes one figure; the suffix of the file says in which format.

    Raises:
        UsageError: no such figure or format.
        RecordError: the files do not hold what the figure shows, or ``out`` is in the way or cannot be written.
    """
    data = render(analysis, name, out.suffix.lower().lstrip("."))
    write_new(out, data)


def render(analysis: Analysis, name: str, file_format: str) -> bytes:
    """The figure in a format. The same data gives the same bytes: no date is in them."""
    if name not in FIGURES:
        raise UsageError(f"unknown figure {name!r}: choose from {', '.join(FIGURES)}")
    if file_format not in FORMATS:
        raise UsageError(f"{file_format!r} is no format for a figure: name a file that ends in .svg, .png or .pdf")
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": None}
    with settings(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name may hold what the font does not
        figure = FIGURES[name](analysis)
        _settle(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=file_format, metadata=dates[file_format], dpi=_PNG_DPI, bbox_inches="tight")
    return buffer.getvalue()


def _settle(figure: "Figure") -> None:
    """Lays the figure out for good: the solver's last digits differ from run to run, and they reach the file."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for panel in figure.axes:
        left, bottom, width, height = (round(edge, 9) for edge in panel.get_position(original=True).bounds)
        panel.set_position((left, bottom, width, height))


def inline_svg(analysis: Analysis, name: str) -> str:
    """The figure as an element of a page: without prologue, and with identifiers that no other figure has."""
    text = render(analysis, name, "svg").decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = text.replace("url(#", f"url(#{name}-")
    return re.sub(r'\b(xlink:href|href)="#', rf'\1="#{name}-', text)
