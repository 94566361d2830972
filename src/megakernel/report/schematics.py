"""Schematics drawn from declarations: where quantities live between stages, and what waits for what."""

from typing import TYPE_CHECKING, Any

from megakernel.report.analysis import Analysis
from megakernel.report.style import FAINT, INK, WARNING, family, new_figure, short
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Access, Stage, Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        dict.fromkeys(
            access.quantity.name
            for stage in variant.stages
            for access in _touched(stage.reads + stage.writes)
            if access.quantity.components
        )
    )
    names.sort(key=lambda name: name == "y")
    return [*names, "shared memory"] if any(_keeps_tile(stage) for stage in variant.stages) else names


def _keeps_tile(stage: Stage) -> bool:
    return stage.shared.bytes_per_element > 0


def _exchanged(stage: Stage) -> list[str]:
    """What the blocks of one kernel pass to each other: each such quantity needs a meeting of its own."""
    read = {access.quantity.name for access in _touched(stage.reads)}
    return [access.quantity.name for access in _touched(stage.writes) if access.quantity.name in read]


def _touched(accesses: tuple[Access, ...]) -> list[Access]:
    """Without those of which a kernel takes the address alone."""
    return [access for access in accesses if access.scope != "untouched"]


def _phases(stage: Stage) -> int:
    """The parts into which meetings cut a kernel."""
    return len(_exchanged(stage)) + 1 if stage.barrier != "none" else 1


def _place(stage: Stage, name: str, *, written: bool) -> float:
    """Where in a kernel's column a quantity is touched, 0 to 1: it is written before its meeting and read after it.

    The declaration does not say more: what is only read counts as read at first, what is only written at last.
    """
    phases, exchanged = _phases(stage), _exchanged(stage)
    if phases == 1:
        return 0.62 if written else 0.38
    of_the_rest = phases - 1 if written else 0
    phase = exchanged.index(name) + (0 if written else 1) if name in exchanged else of_the_rest
    return (phase + (0.7 if written else 0.3)) / phases


def _storage_panel(panel: Any, variant: Variant, names: list[str]) -> None:
    count = len(variant.stages)
    for place, name in enumerate(names):
        panel.axhline(place, color="#EEEEEE", linewidth=0.8, zorder=0)
        touched = [
            column - 0.42 + 0.84 * _place(stage, name, written=written)
            for column, stage in enumerate(variant.stages)
            for written, accesses in ((False, stage.reads), (True, stage.writes))
            if name in {access.quantity.name for access in _touched(accesses)}
        ]
        if len(touched) > 1:
            panel.plot([min(touched), max(touched)], [place, place], color=FAINT, linewidth=1.6, zorder=1)
    for column, stage in enumerate(variant.stages):
        _kernel_column(panel, variant, stage, column, names)
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.4, -1.3)
    panel.set_xlim(-0.5, count - 0.5)
    panel.set_xticks([])
    panel.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        panel.spines[side].set_visible(False)
    kernels = "1 kernel" if count == 1 else f"{count} kernels"
    panel.set_title(f"{variant.name}: {kernels}", fontsize=9)


def _kernel_column(panel: Any, variant: Variant, stage: Stage, column: int, names: list[str]) -> None:
    from matplotlib.patches import Rectangle

    colour = family(variant.name)
    left, bottom = column - 0.42, len(names) - 0.5
    panel.add_patch(
        Rectangle((left, -0.5), 0.84, bottom + 0.5, facecolor=colour, alpha=0.13, edgecolor=colour, linewidth=1)
    )
    panel.text(column, -0.62, short(_name(stage), 16), ha="center", va="bottom", fontsize=7)
    for written, accesses in ((False, stage.reads), (True, stage.writes)):
        for access in _touched(accesses):
            name = access.quantity.name
            if name in names:
                x = left + 0.84 * _place(stage, name, written=written)
                panel.plot(
                    x, names.index(name), _WRITTEN if written else _READ, markerfacecolor=INK if written else "white",
                    markeredgecolor=INK, markersize=5, zorder=3,
                )  # fmt: skip
    if _keeps_tile(stage):
        place = names.index("shared memory")
        panel.plot([left + 0.04, left + 0.8], [place, place], color=_SHARED, linewidth=5, solid_capstyle="butt")
    for step in range(1, _phases(stage)):
        x = left + 0.84 * step / _phases(stage)
        panel.plot([x, x], [-0.5, bottom], color=WARNING, linewidth=1.1, linestyle=(0, (3, 2)), zorder=2)


def _storage_handles() -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], linestyle="", marker=_READ, markerfacecolor="white", markeredgecolor=INK, label="read"),
        Line2D([], [], linestyle="", marker=_WRITTEN, markerfacecolor=INK, markeredgecolor=INK, label="written"),
        Line2D([], [], color=FAINT, linewidth=2, label="kept in global memory"),
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
    panel.set_ylim(len(variants) - 0.65, -0.7)
    panel.axis("off")
    panel.set_title(
        "solid arrow: all blocks have finished · dashed arrow: programmatic, may begin early · "
        "dashed line in a box: its blocks meet (a barrier)",
        fontsize=8,
    )
    return figure


def _chain(panel: Any, variant: Variant, line: int, longest: int) -> None:
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    count = len(variant.stages)
    width = longest / count
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
        most = 15 if width < 2 else 40
        meeting = {"none": "", "row": ", meet per row", "grid": ", all meet"}[stage.barrier]
        panel.text(
            middle, line - 0.09, short(_name(stage), most), ha="center", va="center", fontsize=5.6 if width < 2 else 8
        )
        panel.text(
            middle, line + 0.12, _grid(stage) + meeting, ha="center", va="center", fontsize=5.8 if width < 2 else 7,
            color="#444444",
        )  # fmt: skip
        for step in range(1, _phases(stage)):
            x = left + 0.05 + (width - 0.28) * step / _phases(stage)
            panel.plot([x, x], [line - 0.3, line + 0.26], color=WARNING, linewidth=1.2, linestyle=(0, (3, 2)))
        if column:
            early = stage.programmatic
            panel.add_patch(
                FancyArrowPatch(
                    (left - 0.22, line - 0.02), (left + 0.05, line - 0.02), arrowstyle="-|>", mutation_scale=8,
                    color=INK, linewidth=1, linestyle=(0, (2, 2)) if early else "-", shrinkA=0, shrinkB=0,
                )
            )  # fmt: skip


def _name(stage: Stage) -> str:
    return stage.kernel.partition("<")[0]


def _grid(stage: Stage) -> str:
    if stage.library:
        return stage.library
    return {"tiles": "block per tile", "rows": "block per row", "one": "one block"}[stage.grid]
