"""How figures look: colours that colour-blind readers tell apart and that differ in lightness when printed grey."""

from typing import TYPE_CHECKING, Any

from megakernel.errors import MissingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette. A family has a colour and a mark, so that no figure depends on colour alone.
FLOOR, UNFUSED, LOCAL, MEGAKERNEL, OTHER = "#999999", "#E69F00", "#56B4E9", "#005A8C", "#CC79A7"
WARNING = "#D55E00"
INK, FAINT = "#222222", "#BBBBBB"
MARKS = {FLOOR: "v", UNFUSED: "s", LOCAL: "o", MEGAKERNEL: "D", OTHER: "^"}
HATCHES = {FLOOR: "", UNFUSED: "//", LOCAL: "..", MEGAKERNEL: "", OTHER: "xx"}
FAMILIES = {"floor": FLOOR, "unfused": UNFUSED, "local fusion": LOCAL, "megakernel": MEGAKERNEL, "other": OTHER}

_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "megakernel",  # the same figure is the same file
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a name from a file may hold dollars
    "text.usetex": False,
}


def family(variant: str) -> str:
    """The colour of a variant's family, by its name."""
    if variant in ("empty", "copy"):
        return FLOOR
    if variant == "unfused":
        return UNFUSED
    if variant.startswith("local"):
        return LOCAL
    if variant.startswith("control_") or "retained" in variant:
        return MEGAKERNEL
    return OTHER


def clean(text: str) -> str:
    """Text from a file, with what no figure or page can hold spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short(text: str, most: int = 24) -> str:
    """Clean, and cut where it would push the figure aside; tables hold the whole name."""
    text = clean(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def settings() -> Any:
    """A context in which figures are made and written.

    Raises:
        MissingError: Matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingError("figures need Matplotlib: pip install 'megakernel[report]'") from error
    known: Any = {name: value for name, value in _SETTINGS.items() if name in matplotlib.rcParams}
    return matplotlib.rc_context(known)


def new_figure(width_in: float, height_in: float) -> "Figure":
    """A figure that needs no display: it is not pyplot's."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")
