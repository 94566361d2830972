"""The figures drawn from samples. Each takes an analysis and returns a Matplotlib figure, or refuses."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from megakernel.errors import RecordError
from megakernel.operator.contract import BENCHMARK_WIDTH
from megakernel.record.protocol import METRICS
from megakernel.report.analysis import Analysis
from megakernel.report.penalties import CAVEAT, CONTROLS
from megakernel.report.style import (
    FAINT,
    FAMILIES,
    FLOOR,
    HATCHES,
    INK,
    LOCAL,
    MARKS,
    MEGAKERNEL,
    UNFUSED,
    WARNING,
    clean,
    family,
    new_figure,
    short,
)
from megakernel.report.summary import Row, round_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEGAKERNELS = ("retained", "row_retained", "slot_retained", "cluster_retained")


def completion(analysis: Analysis) -> "Figure":
    """Host completion, a panel for each row count: unfused, graph replay, local fusion, megakernels."""
    shapes = [(rows, steps) for rows in analysis.row_counts if (steps := _steps(analysis, rows))]
    if not shapes:
        raise RecordError("no chain of unfused, local fusion and megakernel was measured: nothing to draw")
    columns = min(2, len(shapes))
    lines = -(-len(shapes) // columns)
    most = max(len(steps) for _, steps in shapes)
    figure = new_figure(4.6 * columns, lines * (1.0 + 0.32 * most) + 0.6)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel in panels[len(shapes) :]:
        panel.set_visible(False)
    for panel, (rows, steps) in zip(panels, shapes, strict=False):
        _completion_panel(panel, analysis, rows, steps)
    note = "bars: mean of the session medians; whiskers span them" if len(analysis.sessions) > 1 else "one session"
    figure.suptitle(
        f"Host completion, {short(analysis.device, 40)}, warm ({note})\n“+”: successive steps; *: stands for the "
        "megakernels; percentages: latency against local fusion; axis ranges differ",
        fontsize=9,
        x=0.01,
        ha="left",
    )
    return figure


def _steps(analysis: Analysis, rows: int) -> list[tuple[str, Row, str]]:
    """What a panel shows, from above: label, row and colour."""
    pair = analysis.stand_ins.pair(rows)
    names = [("unfused", "unfused", "direct", UNFUSED), ("+ graph replay", "unfused", "graph", UNFUSED)]
    names += [(f"+ {pair.local}", pair.local, "graph", LOCAL)]
    others = [name for name in _MEGAKERNELS if name != pair.megakernel]
    names += [(f"+ {pair.megakernel} *", pair.megakernel, "graph", MEGAKERNEL)]
    names += [(f"   {name}", name, "graph", MEGAKERNEL) for name in others]
    found = [
        (label, analysis.find(name, rows, submission, "host_completion"), colour)
        for label, name, submission, colour in names
    ]
    return [(label, row, colour) for label, row, colour in found if row is not None]


def _completion_panel(panel: Any, analysis: Analysis, rows: int, steps: list[tuple[str, Row, str]]) -> None:
    pair = analysis.stand_ins.pair(rows)
    local = analysis.find(pair.local, rows, "graph", "host_completion")
    copy = analysis.find("copy", rows, "graph", "host_completion")
    longest = max(max(row.session_median_ns) for _, row, _ in steps) / 1e3
    for place, (_, row, colour) in enumerate(steps):
        mean = row.mean_ns / 1e3
        faint = colour == UNFUSED and row.submission == "direct"
        panel.barh(
            place, mean, height=0.66, color=colour, edgecolor=INK, linewidth=0.5, alpha=0.55 if faint else 1.0,
            hatch=HATCHES[colour],
        )  # fmt: skip
        _whisker(panel, row, place)
        text = f"{mean:.1f}"
        if local is not None and colour == MEGAKERNEL:
            text += f"  ({100 * (row.mean_ns / local.mean_ns - 1):+.1f} %)"
        panel.text(max(row.session_median_ns) / 1e3 + 0.015 * longest, place, text, va="center", fontsize=8, color=INK)
    if copy is not None:
        panel.axvline(copy.mean_ns / 1e3, color=FLOOR, linewidth=1.0, linestyle=(0, (4, 2)), zorder=3)
        panel.text(copy.mean_ns / 1e3, -0.62, " copy", fontsize=7, color="#555555", va="center")
    panel.set_yticks(range(len(steps)), [clean(label) for label, _, _ in steps])
    panel.set_ylim(len(steps) - 0.4, -0.9)
    panel.set_xlim(0, longest * 1.3)
    panel.set_xlabel("host completion, µs")
    panel.set_title(f"{rows} row{'s' if rows > 1 else ''}", fontsize=9)
    panel.tick_params(axis="y", length=0)


def _whisker(panel: Any, row: Row, place: float, *, colour: str = INK) -> None:
    """Spans the session medians; one session has none."""
    if len(row.session_median_ns) > 1:
        low, high = min(row.session_median_ns) / 1e3, max(row.session_median_ns) / 1e3
        panel.errorbar(
            (low + high) / 2, place, xerr=(high - low) / 2, color=colour, capsize=3, linewidth=1.1, zorder=4
        )  # fmt: skip


def penalties(analysis: Analysis) -> "Figure":
    """Retention penalties: dots are means over the sessions, whiskers their range; published ones are hollow."""
    if not analysis.penalties:
        raise RecordError("the files hold no control_retain with other controls at 16 rows: no penalties to draw")
    found = analysis.penalties
    figure = new_figure(7.0, 1.7 + 0.42 * len(found))
    panel = figure.subplots()
    for place, penalty in enumerate(found):
        mean = penalty.mean_ns / 1e3
        panel.plot([penalty.least_ns / 1e3, penalty.most_ns / 1e3], [place, place], color=INK, linewidth=1.2, zorder=2)
        panel.plot(
            mean, place, "D", color=MEGAKERNEL, markersize=7, zorder=3, label="these files" if not place else None
        )
        panel.annotate(f"{mean:+.2f}", (mean, place), (0, 7), textcoords="offset points", ha="center", fontsize=8)
        stated = analysis.published.penalties_ns.get(penalty.control) if penalty.width == BENCHMARK_WIDTH else None
        if stated is not None:
            first = not any(p.control in analysis.published.penalties_ns for p in found[:place])
            panel.plot(
                stated / 1e3, place, "o", markerfacecolor="white", markeredgecolor=INK, markersize=7, zorder=3,
                label="published, H100" if first else None,
            )  # fmt: skip
    panel.axvline(0, color=FAINT, linewidth=0.8, zorder=1)
    panel.set_yticks(range(len(found)), [f"{p.control}\n{CONTROLS[p.control]}" for p in found])
    panel.set_ylim(len(found) - 0.4, -0.7)
    panel.margins(x=0.12)
    panel.set_xlabel(f"extra host completion over control_retain, µs ({found[0].rows} rows, graph replay)")
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, 1.22), ncols=2)
    panel.tick_params(axis="y", length=0)
    head, tail = CAVEAT.split(": ")
    figure.supxlabel(f"{head}:\n{tail}", fontsize=7.5, color="#555555")
    return figure


def metrics(analysis: Analysis) -> "Figure":
    """The four metrics side by side: a row of panels for each row count, direct and graph in each."""
    counts = analysis.row_counts
    heights = [0.5 + 0.19 * len(analysis.variants(rows)) for rows in counts]
    figure = new_figure(10.5, sum(heights) + 1.1)
    grid = figure.subplots(len(counts), 4, squeeze=False, sharey="row", height_ratios=heights)
    for line, rows in zip(grid, counts, strict=True):
        names = analysis.variants(rows)
        for panel, metric in zip(line, METRICS, strict=True):
            for place, name in enumerate(names):
                for submission, filled in (("direct", False), ("graph", True)):
                    row = analysis.find(name, rows, submission, metric)
                    if row is not None and row.mean_ns > 0:
                        _dot(panel, row.mean_ns / 1e3, place, family(name), filled=filled)
            panel.set_yticks(range(len(names)), [short(name) for name in names])
            panel.set_ylim(len(names) - 0.5, -0.5)
            _logarithmic(panel)
            panel.grid(axis="y", color="#EEEEEE", linewidth=0.6)
            panel.set_axisbelow(True)
            panel.tick_params(axis="y", length=0)
        line[0].set_title(f"{rows} row{'s' if rows > 1 else ''}", fontweight="bold")
    for panel, metric in zip(grid[-1], METRICS, strict=True):
        panel.set_xlabel(f"{metric}\nµs, logarithmic")
    figure.legend(handles=_submission_handles() + _family_handles(analysis), loc="outside upper center", ncols=7)
    return figure


def distance(analysis: Analysis) -> "Figure":
    """Distance to the floor: host completion and event interval of graph replays, over that of copy."""
    counts = [
        rows for rows in analysis.row_counts
        if any(_ratio(analysis, n, rows, "host_completion") for n in analysis.variants(rows))
    ]  # fmt: skip
    if not counts:
        raise RecordError("the files hold no copy beside graph replays: no distance to draw")
    names = {rows: [n for n in analysis.variants(rows) if n not in analysis.floors] for rows in counts}
    columns = min(2, len(counts))
    lines = -(-len(counts) // columns)
    most = max(len(listed) for listed in names.values())
    figure = new_figure(4.8 * columns, lines * (0.8 + 0.24 * max(most, 2)) + 0.7)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel in panels[len(counts) :]:
        panel.set_visible(False)
    for panel, rows in zip(panels, counts, strict=False):
        for place, name in enumerate(names[rows]):
            host = _ratio(analysis, name, rows, "host_completion")
            event = _ratio(analysis, name, rows, "event_interval")
            if host and event:
                panel.plot([host, event], [place, place], color=FAINT, linewidth=1.0, zorder=1)
            for value, filled, shift, side in ((event, False, 6, "left"), (host, True, -6, "right")):
                if value:
                    _dot(panel, value, place, family(name), filled=filled)
                    panel.annotate(
                        f"{value:.2f}", (value, place), (shift, 0), textcoords="offset points", ha=side, va="center",
                        fontsize=7, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
                    )  # fmt: skip
        panel.axvline(1, color=FLOOR, linewidth=1.0, linestyle=(0, (4, 2)))
        panel.set_yticks(range(len(names[rows])), [short(name) for name in names[rows]])
        panel.set_ylim(len(names[rows]) - 0.5, -0.7)
        _logarithmic(panel, room=1.5)
        panel.tick_params(axis="y", length=0)
        panel.set_title(f"{rows} row{'s' if rows > 1 else ''}")
        panel.set_xlabel("times copy (dashed) in the same run, logarithmic")
    handles = [_handle(INK, "host completion", filled=True), _handle(INK, "event interval", filled=False)]
    drawn = {family(name) for listed in names.values() for name in listed}
    figure.legend(handles=handles + _family_handles(analysis, drawn), loc="outside upper center", ncols=6)
    return figure


def rounds(analysis: Analysis) -> "Figure":
    """Each round's host completion against the series' median, and the SM clock, so that drift shows."""
    from matplotlib.lines import Line2D

    sessions = list(zip(analysis.sessions, analysis.details, strict=True))
    counts = analysis.row_counts
    figure = new_figure(4.9 * len(sessions), 1.9 * len(counts) + 0.9)
    ratios = [value for _ in counts for value in (3, 1)]
    grid = figure.subplots(2 * len(counts), len(sessions), squeeze=False, height_ratios=ratios)
    shown = {rows: _followed(analysis, rows) for rows in counts}
    for column, (session, details) in enumerate(sessions):
        for position, rows in enumerate(counts):
            panel, below = grid[2 * position][column], grid[2 * position + 1][column]
            series_here = [
                s for s in session.series
                if s.problem.rows == rows and s.submission == "graph" and s.cache == "warm" and len(s.rounds)
            ]  # fmt: skip
            for series in sorted(series_here, key=lambda s: s.variant in shown[rows]):
                values = round_values(series, "host_completion")
                middle = float(np.median(values))
                if not middle > 0:
                    continue
                followed = series.variant in shown[rows]
                colour = family(series.variant)
                panel.plot(
                    series.rounds, 100 * (values / middle - 1), marker=MARKS[colour] if followed else "",
                    color=colour if followed else FAINT, markersize=3.2, linewidth=1.0, zorder=3 if followed else 1,
                )  # fmt: skip
            panel.axhline(0, color=FAINT, linewidth=0.6)
            panel.set_ylabel("% of median", fontsize=7.5)
            panel.set_title(f"{rows} row{'s' if rows > 1 else ''}, session {column + 1}", fontsize=9)
            panel.tick_params(axis="x", labelbottom=False)
            states = [shape for shape in details.shapes if shape.problem.rows == rows and shape.cache == "warm"]
            _clock_panel(below, states, panel)
    for panel in grid[-1]:
        panel.set_xlabel("round")
    handles = [Line2D([], [], color=FAINT, label="others")]
    if _throttled(analysis):
        handles.append(_handle(WARNING, "throttled round", filled=True, mark="x"))
    drawn = {family(name) for names in shown.values() for name in names}
    figure.legend(handles=_family_handles(analysis, drawn) + handles, loc="outside upper center", ncols=6)
    return figure


def _logarithmic(panel: Any, room: float = 1.2) -> None:
    """One that is ten times slower leaves the others apart. ``room`` is the factor left free at both sides."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = panel.dataLim.intervalx
    panel.set_xscale("log")
    span = high / low if 0 < low <= high else 1.0
    if high > 0:
        room *= span**0.03  # marks have a width, however many decades there are
        # Three times as far as it begins: a tick at least, of 1, 2 and 5.
        panel.set_xlim(low / room, max(high * room, 3 * low / room))
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 1e3 else (1,)))
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _clock_panel(panel: Any, states: list[Any], above: Any) -> None:
    read = np.concatenate([s.sm_clock_mhz for s in states]) if states else np.empty((0, 2))
    clock = np.fmin(read[:, 0], read[:, 1])  # the lower of before and after; of one alone, that
    throttled = np.concatenate([s.throttled for s in states]) if states else np.empty(0, np.bool_)
    panel.set_xlim(above.get_xlim())
    for each in (above, panel):
        each.xaxis.get_major_locator().set_params(integer=True)
    panel.set_ylabel("SM MHz", fontsize=7.5)
    if not np.isfinite(clock).any():
        panel.text(0.5, 0.5, "clock unavailable", transform=panel.transAxes, ha="center", va="center", fontsize=8)
        panel.set_yticks([])
        return
    places = np.arange(len(clock))
    panel.step(places, clock, where="mid", color=INK, linewidth=1.0)
    if throttled.any():
        panel.plot(places[throttled], clock[throttled], "x", color=WARNING, markersize=6)
    low, high = np.nanmin(clock), np.nanmax(clock)
    panel.set_ylim(low - max(20, 0.1 * (high - low)), high + max(20, 0.1 * (high - low)))
    panel.set_yticks(sorted({float(low), float(high)}))


def _followed(analysis: Analysis, rows: int) -> set[str]:
    pair = analysis.stand_ins.pair(rows)
    return {"copy", "unfused", pair.local, pair.megakernel}


def _throttled(analysis: Analysis) -> bool:
    return any(shape.throttled.any() for details in analysis.details for shape in details.shapes)


def _ratio(analysis: Analysis, name: str, rows: int, metric: str) -> float | None:
    row = analysis.find(name, rows, "graph", metric)
    return None if row is None or name in analysis.floors else row.over_copy


def _dot(panel: Any, x: float, y: float, colour: str, *, filled: bool) -> None:
    mark = MARKS[colour]
    face = colour if filled else "white"
    panel.plot(
        x, y, mark, markerfacecolor=face, markeredgecolor=colour, markersize=5, markeredgewidth=1.2, zorder=3
    )  # fmt: skip


def _handle(colour: str, label: str, *, filled: bool, mark: str = "o") -> Any:
    from matplotlib.lines import Line2D

    face = colour if filled else "white"
    return Line2D([], [], linestyle="", marker=mark, color=colour, markerfacecolor=face, label=label, markersize=5)


def _submission_handles() -> list[Any]:
    return [_handle(INK, "graph", filled=True), _handle(INK, "direct", filled=False)]


def _family_handles(analysis: Analysis, drawn: Collection[str] = MARKS) -> list[Any]:
    """A mark for each family that was measured and is drawn."""
    used = {family(name) for name in analysis.variants()} & set(drawn)
    return [
        _handle(colour, name, filled=True, mark=MARKS[colour]) for name, colour in FAMILIES.items() if colour in used
    ]
