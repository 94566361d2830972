"""The words in which an implementation is declared: quantities, stages, variants.

A variant is data. Compilation, occupancy, planning, launching, graph building and its audit, verification of
intermediates, bytes moved and the emulator all read this one declaration.

A kernel's parameters follow from its stage: pointers to the quantities it reads, then to those it writes, in the
order declared and each once; then the barrier words, if it has any; then its scalars.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from megakernel.errors import UsageError
from megakernel.operator.contract import Problem

Extent = Literal["element", "tile", "row"]
Scope = Literal["tile", "row", "row_once", "row_each_warp", "row_each_thread", "untouched"]
Grid = Literal["tiles", "rows", "one"]
ScalarType = Literal["uint32", "divisor", "float32"]
BarrierScope = Literal["none", "row", "grid"]
Family = Literal["floor", "unfused", "local", "megakernel", "control", "library", "own"]

ROW_BARRIER_WORDS = 32  # as in cuda/barriers.cuh; a test compares them


def _require(legal: bool, what: str, field_name: str, value: object, choices: Sequence[str]) -> None:
    """Refuses a declaration that makes no sense where it is made, and not where it would first be used."""
    if not legal:
        raise UsageError(f"{what}: {field_name} is {value!r}; give {' or '.join(choices)}")


@dataclass(frozen=True)
class Quantity:
    """A named array in global memory.

    Attributes:
        name: unique within a variant; also the name of its allocation.
        per: one value for each element ``(rows, width)``, tile ``(rows, tiles)`` or row ``(rows,)``.
        components: the reference quantities stored side by side in each value, all float32. Empty for words
            that hold state instead of values (barriers).
        words: 32-bit words in a value.
    """

    name: str
    per: Extent
    components: tuple[str, ...] = ()
    words: int = 1

    def __post_init__(self) -> None:
        _require(self.per in get_args(Extent), f"quantity {self.name}", "per", self.per, get_args(Extent))
        _require(self.words >= max(1, len(self.components)), f"quantity {self.name}", "words", self.words, ("enough",))

    @property
    def value_bytes(self) -> int:
        return 4 * self.words

    def values_per_row(self, problem: Problem, tile: int) -> int:
        return {"element": problem.width, "tile": problem.tiles(tile), "row": 1}[self.per]

    def row_bytes(self, problem: Problem, tile: int) -> int:
        return self.values_per_row(problem, tile) * self.value_bytes

    @property
    def tile(self) -> "Access":
        """The part that belongs to the block's tile."""
        return Access(self, "tile")

    @property
    def row(self) -> "Access":
        """All of the row, once per block."""
        return Access(self, "row")

    @property
    def row_once(self) -> "Access":
        """All of the row, by one of its blocks."""
        return Access(self, "row_once")

    @property
    def row_each_warp(self) -> "Access":
        """All of the row, once per warp."""
        return Access(self, "row_each_warp")

    @property
    def row_each_thread(self) -> "Access":
        """All of the row, once per thread."""
        return Access(self, "row_each_thread")

    @property
    def untouched(self) -> "Access":
        """Nothing: the kernel takes the address, and here leaves it alone."""
        return Access(self, "untouched")


@dataclass(frozen=True)
class Access:
    """What one block reads or writes of a quantity."""

    quantity: Quantity
    scope: Scope


@dataclass(frozen=True)
class Scalar:
    """A launch argument passed by value. A ``divisor`` is a uint32 with its reciprocal for fast division
    (``TileCount`` in cuda/tile.cuh).

    Attributes:
        value: where the variant fixes it; the others follow from the problem.
    """

    name: str
    dtype: ScalarType
    value: float | None = None


WIDTH = Scalar("width", "uint32")
TILES = Scalar("tiles", "divisor")
INVERSE_WIDTH = Scalar("inverse_width", "float32")
EPS = Scalar("eps", "float32")


@dataclass(frozen=True)
class SharedMemory:
    """Dynamic shared memory of a block, exactly the size of the kernel's one shared struct.

    Attributes:
        alignment: of the struct, in bytes; its size is a multiple of it.
    """

    bytes_per_element: int = 0
    bytes_per_warp: int = 0
    alignment: int = 16

    def __post_init__(self) -> None:
        for name, least in (("bytes_per_element", 0), ("bytes_per_warp", 0), ("alignment", 1)):
            value = getattr(self, name)
            _require(isinstance(value, int) and value >= least, "shared memory", name, value, (f"at least {least}",))

    def nbytes(self, tile: int, threads: int) -> int:
        content = self.bytes_per_element * tile + self.bytes_per_warp * (threads // 32)
        return -(-content // self.alignment) * self.alignment


NO_SHARED = SharedMemory()


@dataclass(frozen=True)
class Configuration:
    """The choices a template leaves open: threads in a block, elements in a tile."""

    threads: int
    tile: int

    def __post_init__(self) -> None:
        if self.threads % 32 or not 32 <= self.threads <= 1024:
            raise UsageError(f"threads is {self.threads}: give a multiple of 32 up to 1024")
        if self.tile < 1 or self.tile % (4 * self.threads):
            raise UsageError(f"tile is {self.tile}: give a multiple of {4 * self.threads} (4 x threads)")

    @classmethod
    def parse(cls, text: object) -> "Configuration":
        """Reads ``THREADSxTILE``, as ``str`` writes it.

        Raises:
            ValueError: it is something else.
            UsageError: there is no such configuration.
        """
        threads, x, tile = str(text).partition("x")
        if not (x and threads.isdecimal() and tile.isdecimal() and len(str(text)) <= 20):
            raise ValueError(f"{text!r} is not THREADSxTILE, such as 256x4096")
        return cls(int(threads), int(tile))

    def __str__(self) -> str:
        return f"{self.threads}x{self.tile}"


def tile_shape(problem: Problem, configuration: Configuration) -> str:
    """The ``Shape`` of cuda/tile.cuh that fits: how rows of this width meet tiles."""
    if problem.width % configuration.tile == 0:
        return "exact"
    return "aligned" if problem.width % 4 == 0 else "unaligned"


@dataclass(frozen=True)
class Stage:
    """One kernel launch, or one call of a library.

    Attributes:
        kernel: the kernel's name, with ``{threads}``, ``{tile}`` and ``{shape}`` where its template takes them.
        grid: a block for each tile of each row, for each row, or one block.
        reads: what a block reads of each quantity.
        writes: what a block writes of each quantity.
        scalars: arguments by value, in the kernel's order.
        shared: the block's dynamic shared memory.
        barrier: which blocks meet inside the kernel. Blocks that meet are launched cooperatively.
        threads: block size, where it is not the configuration's.
        programmatic: may start while the stage before still runs (programmatic dependent launch); its kernel waits
            for that before it needs what that wrote.
        library: of a library call: which library; ``kernel`` is then the library's function.
    """

    kernel: str
    grid: Grid = "tiles"
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    scalars: tuple[Scalar, ...] = (WIDTH, TILES)
    shared: SharedMemory = NO_SHARED
    barrier: BarrierScope = "none"
    threads: int | None = None
    programmatic: bool = False
    library: str = ""

    def __post_init__(self) -> None:
        what = f"stage {self.kernel}"
        _require(self.grid in get_args(Grid), what, "grid", self.grid, get_args(Grid))
        _require(self.barrier in get_args(BarrierScope), what, "barrier", self.barrier, get_args(BarrierScope))
        if self.threads is not None:
            legal = isinstance(self.threads, int) and 32 <= self.threads <= 1024 and self.threads % 32 == 0
            _require(legal, what, "threads", self.threads, ("a multiple of 32 up to 1024",))
        if self.library and (self.barrier != "none" or self.shared != NO_SHARED or self.programmatic):
            raise UsageError(
                f"{what}: a call of {self.library} has no barrier, shared memory or programmatic edge of ours"
            )
        if self.programmatic and self.barrier != "none":
            raise UsageError(f"{what}: blocks that meet start together: a stage with a barrier is not programmatic")
        try:
            self.kernel.format(threads=32, tile=128, shape="Shape::exact")
        except (KeyError, IndexError, ValueError) as error:
            raise UsageError(
                f"{what}: its name takes {{threads}}, {{tile}} and {{shape}} alone ({type(error).__name__}: {error})"
            ) from error

    @property
    def cooperative(self) -> bool:
        return self.barrier != "none"

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The quantities whose addresses the kernel takes, in the order of its parameters."""
        accessed = dict.fromkeys(access.quantity for access in self.reads + self.writes)
        return (*accessed, ROW_BARRIERS) if self.barrier == "row" else tuple(accessed)

    def kernel_name(self, problem: Problem, configuration: Configuration) -> str:
        """The name expression of the kernel for one problem and configuration."""
        return self.kernel.format(
            threads=configuration.threads,
            tile=configuration.tile,
            shape=f"Shape::{tile_shape(problem, configuration)}",
        )

    def block_threads(self, configuration: Configuration) -> int:
        return self.threads or configuration.threads

    def blocks_per_row(self, problem: Problem, configuration: Configuration) -> int:
        return problem.tiles(configuration.tile) if self.grid == "tiles" else 1

    def blocks(self, rows: int, problem: Problem, configuration: Configuration) -> int:
        return 1 if self.grid == "one" else rows * self.blocks_per_row(problem, configuration)

    def shared_bytes(self, configuration: Configuration) -> int:
        return self.shared.nbytes(configuration.tile, self.block_threads(configuration))

    def bytes_read(self, problem: Problem, configuration: Configuration) -> int:
        """Bytes that the stage asks of global memory for all rows, before any cache."""
        return problem.rows * sum(self.row_bytes(access, problem, configuration) for access in self.reads)

    def bytes_written(self, problem: Problem, configuration: Configuration) -> int:
        """Bytes that the stage writes to global memory for all rows."""
        return problem.rows * sum(self.row_bytes(access, problem, configuration) for access in self.writes)

    def row_bytes(self, access: Access, problem: Problem, configuration: Configuration) -> int:
        """Bytes that the stage moves for each row by one of its accesses, before any cache."""
        threads = self.block_threads(configuration)
        blocks_per_row = self.blocks_per_row(problem, configuration)
        repeats = {
            "tile": 1,  # the parts of a row's blocks make up the row
            "row_once": 1,
            "row": blocks_per_row,
            "row_each_warp": blocks_per_row * threads // 32,
            "row_each_thread": blocks_per_row * threads,
            "untouched": 0,
        }[access.scope]
        return access.quantity.row_bytes(problem, configuration.tile) * repeats


X = Quantity("x", "element", ("x",))
Y = Quantity("y", "element", ("y",))
ROW_BARRIERS = Quantity("row_barriers", "row", words=ROW_BARRIER_WORDS)


@dataclass(frozen=True)
class Variant:
    """An implementation of the operator.

    Attributes:
        name: its identifier in commands, files and data.
        source: the kernel file: a name within ``cuda/``, or an absolute path.
        stages: its launches, in order; each waits for the one before.
        configurations: those worth trying. Of a floor, the fastest is taken.
        for_rows: the default configuration by row count, as tuned; where empty, the first of ``configurations``.
        computes: whether the output is the operator's (a floor's is not).
        summary: one line for people.
        family: among which others it competes to stand for a shape; a user's own variants do not.
    """

    name: str
    source: str
    stages: tuple[Stage, ...]
    configurations: tuple[Configuration, ...]
    computes: Literal["softmax", "copy", "nothing"] = "softmax"
    summary: str = ""
    for_rows: Mapping[int, Configuration] = field(default_factory=dict, compare=False)
    family: Family = "own"

    def __post_init__(self) -> None:
        names: dict[str, Quantity] = {}
        for quantity in self.quantities:
            if names.setdefault(quantity.name, quantity) != quantity:
                raise UsageError(f"variant {self.name}: two different quantities are named {quantity.name}")
        what = f"variant {self.name}"
        if not self.stages or not self.configurations:
            raise UsageError(f"{what}: give at least one stage and one configuration")
        for chosen in (*self.configurations, *self.for_rows.values()):
            _require(isinstance(chosen, Configuration), what, "a configuration", chosen, ("a Configuration",))
        _require(
            all(rows >= 1 for rows in self.for_rows), what, "a row count", min(self.for_rows, default=1), ("1 on",)
        )
        for before, stage in zip((None, *self.stages), self.stages, strict=False):
            if stage.programmatic and (before is None or before.library):
                raise UsageError(
                    f"{what}: {stage.kernel} is programmatic, and so needs a kernel before it: behind nothing it would "
                    "overlap with the invocation before"
                )
        kinds = ("softmax", "copy", "nothing")
        _require(self.computes in kinds, what, "computes", self.computes, kinds)
        _require(self.family in get_args(Family), what, "family", self.family, get_args(Family))

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Every quantity that a stage touches, each once."""
        return tuple(dict.fromkeys(q for stage in self.stages for q in stage.quantities))

    @property
    def kernel_stages(self) -> tuple[Stage, ...]:
        """The stages that are kernels of ours."""
        return tuple(stage for stage in self.stages if not stage.library)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Which libraries the variant calls."""
        return tuple(dict.fromkeys(stage.library for stage in self.stages if stage.library))

    @property
    def scratch(self) -> tuple[Quantity, ...]:
        """Quantities besides input and output: each executable has its own."""
        return tuple(q for q in self.quantities if q not in (X, Y))

    @property
    def written(self) -> tuple[Quantity, ...]:
        """Every quantity that a stage writes, each once: all that is verified."""
        return tuple(dict.fromkeys(access.quantity for stage in self.stages for access in stage.writes))

    @property
    def intermediates(self) -> tuple[Quantity, ...]:
        """Scratch that is written, to be verified."""
        return tuple(q for q in self.written if q != Y)

    def default_configuration(self, rows: int) -> Configuration:
        """The configuration for a row count: that of the nearest row count with one of its own, else the first."""
        if not self.for_rows:
            return self.configurations[0]
        nearest = min(self.for_rows, key=lambda known: abs(math.log(known / rows)))
        return self.for_rows[nearest]

    def kernel_names(self, problem: Problem, configuration: Configuration) -> tuple[str, ...]:
        """The name expressions to compile, each once."""
        return tuple(dict.fromkeys(s.kernel_name(problem, configuration) for s in self.kernel_stages))

    def source_path(self, kernel_folder: Path) -> Path:
        return kernel_folder / self.source  # an absolute source stands for itself
