"""Schematics drawn from declarations: where quantities live between stages, and what waits for what."""

from typing import TYPE_CHECKING, Any

from megakernel.report.analysis import Analysis
from megakernel.report.style import FAINT, INK, WARNING, family, new_figure, short
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Stage, Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The operator's: statistics before exponentials, exponential sums before normalising.
_SYNCHRONISATIONS = 2
_SHARED = "#009E73"
_READ, _WRITTEN = "o", "s"


def drawn(analysis: Analysis) -> list[Variant]:
    """The chain from unfused over the local families to the megakernels that stand for some row count."""
    counts = analysis.row_counts or (16,)
    pairs = [analysis.stand_ins.pair(rows) for rows in counts]
    names = ["unfused", *(pair.local for pair in pairs), *(pair.megakernel for pair in pairs)]
    return [CATALOGUE[name] for name in dict.fromkeys(names) if name in CATALOGUE]


def storage(analysis: Analysis) -> "Figure":
    """A lane for each quantity in global memory, a column for each kernel; a green lane is shared memory."""
    variants = drawn(analysis)
    lanes = [_lanes(variant) for variant in variants]
    heights = [len(names) + 1.6 for names in lanes]
    figure = new_figure(9.2, 0.235 * sum(heights) + 0.9)
    panels = figure.subplots(len(variants), 1, squeeze=False, height_ratios=heights).ravel()
    for panel, variant, names in zip(panels, variants, lanes, strict=True):
        _storage_panel(panel, variant, names)
    figure.legend(handles=_storage_handles(), loc="outside upper center", ncols=5)
    return figure


def _lanes(variant: Variant) -> list[str]:
    """Quantities that hold values, by first use; y last; shared memory below them where a tile is kept there."""
    names = list(
        dict.fromkeys(a.quantity.name for s in variant.stages for a in s.reads + s.writes if a.quantity.components)
    )
    names.sort(key=lambda name: name == "y")
    return [*names, "shared memory"] if any(_keeps_tile(stage) for stage in variant.stages) else names


def _keeps_tile(stage: Stage) -> bool:
    return stage.shared.bytes_per_element > 0


def _storage_panel(panel: Any, variant: Variant, names: list[str]) -> None:
    count = len(variant.stages)
    alone = 9 / max(count, 3) if count < 3 else 1  # one kernel is drawn as wide as it matters
    for place, name in enumerate(names):
        touched = [i for i, s in enumerate(variant.stages) if name in {a.quantity.name for a in s.reads + s.writes}]
        panel.axhline(place, color="#EEEEEE", linewidth=0.8, zorder=0)
        if len(touched) > 1:
            panel.plot([touched[0], touched[-1]], [place, place], color=FAINT, linewidth=1.6, zorder=1)
    for column, stage in enumerate(variant.stages):
        _kernel_column(panel, variant, stage, column, names)
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.4, -1.3)
    panel.set_xlim(-0.6, max(count - 0.4, 0.6 * alone))
    panel.set_xticks([])
    panel.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        panel.spines[side].set_visible(False)
    kernels = "1 kernel" if count == 1 else f"{count} kernels"
    panel.set_title(f"{variant.name}: {kernels}", fontsize=9)


def _kernel_column(panel: Any, variant: Variant, stage: Stage, column: int, names: list[str]) -> None:
    from matplotlib.patches import Rectangle

    colour = family(variant.name)
    bottom = len(names) - 0.5
    panel.add_patch(
        Rectangle(
            (column - 0.42, -0.5), 0.84, bottom + 0.5, facecolor=colour, alpha=0.13, edgecolor=colour, linewidth=1
        )
    )
    panel.text(column, -0.62, short(_name(stage), 16), ha="center", va="bottom", fontsize=7)
    for accesses, offset, mark in ((stage.reads, -0.1, _READ), (stage.writes, 0.1, _WRITTEN)):
        for access in accesses:
            if access.quantity.name in names:
                face = "white" if mark == _READ else INK
                place = names.index(access.quantity.name)
                panel.plot(
                    column + offset, place, mark, markerfacecolor=face, markeredgecolor=INK, markersize=5, zorder=3
                )  # fmt: skip
    if _keeps_tile(stage):
        place = names.index("shared memory")
        panel.plot([column - 0.38, column + 0.38], [place, place], color=_SHARED, linewidth=5, solid_capstyle="butt")
    if stage.barrier != "none":
        for step in range(1, _SYNCHRONISATIONS + 1):
            x = column - 0.42 + 0.84 * step / (_SYNCHRONISATIONS + 1)
            panel.plot([x, x], [-0.5, bottom], color=WARNING, linewidth=1.1, linestyle=(0, (3, 2)), zorder=2)


def _storage_handles() -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], linestyle="", marker=_READ, markerfacecolor="white", markeredgecolor=INK, label="read"),
        Line2D([], [], linestyle="", marker=_WRITTEN, markerfacecolor=INK, markeredgecolor=INK, label="written"),
        Line2D([], [], color=FAINT, linewidth=2, label="kept in global memory between kernels"),
        Line2D([], [], color=_SHARED, linewidth=5, label="kept in shared memory"),
        Line2D([], [], color=WARNING, linestyle=(0, (3, 2)), label="barrier inside the kernel"),
    ]


def dependencies(analysis: Analysis) -> "Figure":
    """Boxes are kernels in stream order; an arrow is a boundary at which every block of the one before has finished."""
    variants = drawn(analysis)
    figure = new_figure(9.8, 0.86 * len(variants) + 0.6)
    panel = figure.subplots()
    longest = max(len(variant.stages) for variant in variants)
    for line, variant in enumerate(variants):
        _chain(panel, variant, line, longest)
    panel.set_xlim(-0.02, longest + 0.02)
    panel.set_ylim(len(variants) - 0.35, -0.75)
    panel.axis("off")
    panel.set_title(
        "solid arrow: all blocks have finished   dashed arrow: programmatic, may begin early   "
        "dashed line in a box: its blocks meet",
        fontsize=8,
    )
    return figure


def _chain(panel: Any, variant: Variant, line: int, longest: int) -> None:
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    count = len(variant.stages)
    width = min(longest / count, 3.0)
    colour = family(variant.name)
    panel.text(0, line - 0.42, f"{variant.name}", fontsize=9, fontweight="bold", va="bottom")
    for column, stage in enumerate(variant.stages):
        left = column * width
        box = FancyBboxPatch(
            (left + 0.05, line - 0.3), width - 0.28, 0.56, boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=colour + "30", edgecolor=colour, linewidth=1.2,
        )  # fmt: skip
        panel.add_patch(box)
        middle = left + 0.05 + (width - 0.28) / 2
        most = 13 if width < 2 else 40
        meeting = {"none": "", "row": ", meet per row", "grid": ", all meet"}[stage.barrier]
        panel.text(
            middle, line - 0.09, short(_name(stage), most), ha="center", va="center", fontsize=6.3 if width < 2 else 8
        )
        panel.text(
            middle, line + 0.12, _grid(stage) + meeting, ha="center", va="center", fontsize=5.8 if width < 2 else 7,
            color="#444444",
        )  # fmt: skip
        if stage.barrier != "none":
            for step in range(1, _SYNCHRONISATIONS + 1):
                x = left + 0.05 + (width - 0.28) * step / (_SYNCHRONISATIONS + 1)
                for low, high in ((-0.3, -0.2), (0.2, 0.26)):
                    panel.plot([x, x], [line + low, line + high], color=WARNING, linewidth=1.6)
        if column:
            early = bool(getattr(stage, "programmatic", False))
            panel.add_patch(
                FancyArrowPatch(
                    (left - 0.22, line - 0.02), (left + 0.05, line - 0.02), arrowstyle="-|>", mutation_scale=8,
                    color=INK, linewidth=1, linestyle=(0, (2, 2)) if early else "-", shrinkA=0, shrinkB=0,
                )
            )  # fmt: skip


def _name(stage: Stage) -> str:
    return stage.kernel.partition("<")[0]


def _grid(stage: Stage) -> str:
    return {"tiles": "block per tile", "rows": "block per row", "one": "one block"}[stage.grid]
