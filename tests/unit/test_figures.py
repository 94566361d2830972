"""Figures and page: every one is drawn without a display, the same each time, and nothing from a file is markup."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.unit.reports import CHAIN, write_chain

from megakernel.cli.main import run
from megakernel.errors import MissingError, RecordError, UsageError
from megakernel.report.analysis import Analysis, analyse
from megakernel.report.content import provenance_table
from megakernel.report.style import clean, settings

pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
pytest.importorskip("jinja2", reason="the extra 'report' is not installed")

from megakernel.report.figures import FIGURES, render
from megakernel.report.page import render_page

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('$x_1$')</script>&\x1b[1m"
VOID = {"meta", "link", "br", "hr", "img", "input"}


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("figures")
    first = write_chain(folder / "a.h5", rows=(1, 16), throttled=(1,))
    return analyse([first, write_chain(folder / "b.h5", rows=(1, 16), scale=1.02)])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    path = tmp_path_factory.mktemp("hostile") / "a.h5"
    return analyse([write_chain(path, {**CHAIN, HOSTILE: 9000, "日本": 9000}, rounds=1, device=HOSTILE)])


def texts(svg: bytes) -> str:
    return "\n".join(element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text"))


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_same_each_time_and_its_text_is_text(analysis: Analysis, name: str) -> None:
    first = render(analysis, name, "svg")
    assert render(analysis, name, "svg") == first
    assert b"<dc:date>" not in first
    assert len(texts(first)) > 40


def test_host_completion_is_labelled_with_means_and_percentages(analysis: Analysis) -> None:
    drawn = texts(render(analysis, "completion", "svg"))
    for label in ("1 row", "16 rows", "+ graph replay", "+ local_recompute", "+ row_retained *", "+ retained *"):
        assert label in drawn
    assert "14.2  (-6.7 %)" in drawn  # 14.0 and 14.3 against 15.0 and 15.3
    assert "axis ranges differ" in drawn


def test_penalties_are_drawn_beside_the_published_ones_with_the_caveat(analysis: Analysis) -> None:
    drawn = texts(render(analysis, "penalties", "svg"))
    assert "published, H100" in drawn
    assert "+1.01" in drawn
    assert "isolate memory access" in drawn


def test_schematics_follow_the_declarations(analysis: Analysis) -> None:
    storage = texts(render(analysis, "storage", "svg"))
    for label in ("unfused: 9 kernels", "local_recompute: 3 kernels", "row_retained: 1 kernel", "shared memory"):
        assert label in storage
    assert "exponential_sums" in texts(render(analysis, "dependencies", "svg"))


def test_a_clock_that_could_not_be_read_is_said_in_words(analysis: Analysis) -> None:
    details = analysis.details[0]
    unread = tuple(replace(shape, sm_clock_mhz=np.full_like(shape.sm_clock_mhz, np.nan)) for shape in details.shapes)
    one = replace(analysis, details=(replace(details, shapes=unread), *analysis.details[1:]))
    assert texts(render(one, "rounds", "svg")).count("clock unavailable") == 2  # one session, two row counts
    assert "clock unavailable" not in texts(render(analysis, "rounds", "svg"))
    assert "unavailable" in str(provenance_table(one).rows)


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("/home/a/bin/mk session --out /tmp/b.h5 --rows 1", "mk session --out b.h5 --rows 1"),
        ("mk session --out=/tmp/b.h5 '--out' '/home/a b/c d.h5'", "mk session --out=b.h5 '--out' 'c d.h5'"),
        ("c++ -std=c++17 -I/home/a/cuda --include-path=/opt/x/include", "c++ -std=c++17 -Icuda --include-path=include"),
        ("mk bench --out data/b.h5 12/13 https://a.org/b", "mk bench --out data/b.h5 12/13 https://a.org/b"),
    ],
)
def test_a_report_does_not_say_in_which_folders_files_lay(analysis: Analysis, recorded: str, shown: str) -> None:
    session = replace(analysis.sessions[0], environment={"command": recorded})
    details = analysis.details[0]
    compiled = replace(details, series=tuple(replace(each, compiler={"options": recorded}) for each in details.series))
    table = provenance_table(replace(analysis, sessions=(session,), details=(compiled,)))
    facts = {row[0]: row[1] for row in table.rows}
    assert facts["command"] == shown
    assert facts["compiled by"] == f"options {shown}"


@pytest.mark.parametrize(
    ("name", "message"),
    [("completion", "nothing to draw"), ("penalties", "no penalties to draw"), ("distance", "no distance to draw")],
)
def test_a_figure_without_its_data_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        render(analyse([write_chain(tmp_path / "a.h5", {"custom": 9000})]), name, "svg")


def test_figures_are_written_as_svg_png_and_pdf_without_a_display(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    path = str(write_chain(tmp_path / "a.h5"))
    for suffix, magic in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        out = tmp_path / f"a.{suffix}"
        assert run(["report", path, "--figure", "completion", "--out", str(out)]) == 0
        assert out.read_bytes().startswith(magic)
    assert "matplotlib.pyplot" not in sys.modules


def test_a_format_that_is_none_is_refused(analysis: Analysis) -> None:
    with pytest.raises(UsageError, match="is no format"):
        render(analysis, "metrics", "gif")


def test_without_the_extra_it_is_said_what_to_install(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingError, match=r"pip install 'megakernel\[report\]'"):
            (render_page if package == "jinja2" else lambda a: render(a, "metrics", "svg"))(analysis)


class Page(HTMLParser):
    """Collects what the page would load, its identifiers and headings, and whether tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.loads: list[str] = []
        self.targets: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.names.append(value or "")
            elif name in ("src", "srcset", "data", "action"):
                self.loads.append(value or "")
            elif name in ("href", "xlink:href"):
                (self.targets if (value or "").startswith("#") else self.loads).append((value or "").lstrip("#"))
        assert tag not in ("script", "iframe", "object", "embed", "link")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th", "h1", "li"):
            self.cells.append(data)


def test_the_page_is_whole_and_loads_nothing(analysis: Analysis) -> None:
    text = render_page(analysis)
    page = Page(text)
    assert page.open == []
    assert page.loads == []
    assert len(set(page.names)) == len(page.names)
    assert set(page.targets) <= set(page.names)
    assert not re.search(r"url\((?!#)", text)
    assert not re.search(r"\b(nan|inf)\b", " ".join(page.cells), re.IGNORECASE)
    assert text.count("<svg") == len(FIGURES)
    for heading in ("Host completion", "What retention saves", "Distance to the floor", "Provenance", "Limits"):
        assert f"<h2>{heading}</h2>" in text
    assert any("MISSED" in cell for cell in page.cells)
    assert any("throttled" in cell for cell in page.cells)
    assert "Session 1: 36 of 36 series passed before timing, 0 of 36 after it." in text
    assert render_page(analysis) == text


def test_text_from_a_file_is_escaped_in_page_and_figures(hostile: Analysis) -> None:
    text = render_page(hostile)
    page = Page(text)  # refuses a script
    assert "<script" not in text
    assert clean(HOSTILE) in page.cells
    assert "\x1b" not in text
    drawn = texts(render(hostile, "metrics", "svg"))
    assert "<script>alert('$x_1$')" in drawn  # verbatim, and no formula


def test_chromium_shows_the_page_without_errors_and_without_scrolling_sideways(
    analysis: Analysis, tmp_path: Path
) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine: the page is tested by an HTML parser alone")
    text = render_page(analysis)
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    measure = "<script>document.title = [innerWidth, document.documentElement.scrollWidth].join()</script></body>"
    shown = tmp_path / "page.html"
    measured = tmp_path / "measured.html"
    shown.write_text(text)
    measured.write_text(policy.sub("", text).replace("</body>", measure))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"]
    options += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"]

    def dump(page: Path, width: int) -> tuple[str, str]:
        command = [chromium, *options, f"--window-size={width},900", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout, done.stderr

    dom, log = dump(shown, 1200)
    assert dom.count("<svg") == len(FIGURES)
    assert "CONSOLE" not in log
    for width in (1300, 500):
        dom, _ = dump(measured, width)
        title = re.search(r"<title>(\d+),(\d+)</title>", dom)
        assert title is not None
        inner, content = map(int, title.groups())
        assert content <= inner


@pytest.mark.parametrize("name", ["metrics", "distance"])
@pytest.mark.parametrize("slowest_ns", [8_000.0, 8_400.0, 20_000.0, 2e6, 1e12])
def test_a_logarithmic_axis_has_ticks_and_room_for_its_marks_whatever_it_spans(
    tmp_path: Path, name: str, slowest_ns: float
) -> None:
    shown = analyse([write_chain(tmp_path / "a.h5", {"copy": 8_000.0, "retained": slowest_ns})])
    with settings():
        figure = FIGURES[name](shown)
        figure.draw_without_rendering()
    panels = [panel for panel in figure.axes if panel.get_xscale() == "log"]
    assert panels
    for panel in panels:
        low, high = panel.get_xlim()
        assert any(low <= tick <= high for tick in panel.get_xticks())
        first, last = panel.dataLim.intervalx
        assert np.log(first / low) >= 0.025 * np.log(high / low)
        assert np.log(high / last) >= 0.025 * np.log(high / low)
