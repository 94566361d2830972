"""The words in which a wrong kernel is described: what is edited, under which settings, and what must notice."""

from dataclasses import dataclass, field

from megakernel.variants.declaration import Configuration

# Several tiles in a short row, several warps in a block.
SMALL = Configuration(128, 512)


@dataclass(frozen=True)
class Edit:
    """One replacement in a kernel file. ``old`` occurs once, or ``occurrence`` says which of several is meant."""

    file: str
    old: str
    new: str
    occurrence: int | None = None


@dataclass(frozen=True)
class Line:
    """A line of the edited sources, by a fragment of its text: a detector must name it."""

    file: str
    text: str


@dataclass(frozen=True)
class Setting:
    """What a fault needs to show. The unedited sources pass under the very same setting.

    Attributes:
        seeds: interleavings to try on the emulator; one of them must show the fault.
        time_limit_s: of an emulated launch.
    """

    variant: str
    rows: int = 3
    width: int = 1541
    configuration: Configuration = SMALL
    fixture: str = "timing"
    weak_stores: bool = False
    seeds: tuple[int, ...] = (0,)
    time_limit_s: float = 20.0


@dataclass(frozen=True)
class Fault:
    """A shipped kernel made wrong.

    Attributes:
        caught_by: checks that must fail; ``launch.NAME`` is a detector of the emulator.
        where: the line that the detector names, or words of the first check's detail.
        on_gpu: whether a real GPU may run it and always shows it: no access out of bounds, no hang, no luck.
    """

    name: str
    setting: Setting
    edits: tuple[Edit, ...]
    caught_by: tuple[str, ...]
    where: Line | str = ""
    on_gpu: bool = False


@dataclass(frozen=True)
class Harmless:
    """An edit that changes nothing of what matters: no seed may raise an alarm, with weak stores or without."""

    name: str
    edits: tuple[Edit, ...]
    setting: Setting = field(default_factory=lambda: Setting("row_retained"))
