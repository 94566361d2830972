"""The shipped implementations. Adding one is a kernel under ``cuda/`` and a declaration here."""

import sys
import traceback
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from megakernel.errors import UsageError
from megakernel.files import require_file
from megakernel.variants.declaration import (
    EPS,
    INVERSE_WIDTH,
    TILES,
    WIDTH,
    Configuration,
    Quantity,
    Scalar,
    SharedMemory,
    Stage,
    Variant,
    X,
    Y,
)

SQUARES = Quantity("squares", "element", ("squares",))
EXPONENTIALS = Quantity("exponentials", "element", ("exponentials",))
TILE_STATISTICS = Quantity("tile_statistics", "tile", ("tile_square_sums", "tile_maxima"), words=2)
TILE_SQUARE_SUMS = Quantity("tile_square_sums", "tile", ("tile_square_sums",))
TILE_MAXIMA = Quantity("tile_maxima", "tile", ("tile_maxima",))
TILE_SUMS = Quantity("tile_sums", "tile", ("tile_exponential_sums",))
ARGUMENTS = Quantity("arguments", "element", ("arguments",))
ROW_STATISTICS = Quantity("row_statistics", "row", ("row_square_sums", "row_maxima"), words=2)
ROW_INVERSE_RMS = Quantity("row_inverse_rms", "row", ("row_inverse_rms",))
ROW_MAXIMA = Quantity("row_maxima", "row", ("row_maxima",))
ROW_SUMS = Quantity("row_sums", "row", ("row_exponential_sums",))

# The structs of the kernel sources: BlockScratch alone, or behind a tile of floats.
SCRATCH = SharedMemory(bytes_per_warp=12)
TILE_AND_SCRATCH = SharedMemory(bytes_per_element=4, bytes_per_warp=12)

# One warp per row combines the tiles of a row.
ROW_KERNEL_THREADS = 32

_T = "<{threads}, {tile}, {shape}>"

EMPTY = Variant(
    "empty",
    source="floors.cu",
    family="floor",
    stages=(Stage("empty", grid="one", scalars=(), threads=32),),
    configurations=(Configuration(32, 128),),
    computes="nothing",
    summary="floor: one launch of nothing",
)

COPY = Variant(
    "copy",
    source="floors.cu",
    family="floor",
    stages=(Stage("copy" + _T, reads=(X.tile,), writes=(Y.tile,)),),
    configurations=(
        Configuration(256, 1024),
        Configuration(256, 2048),
        Configuration(256, 4096),
        Configuration(512, 4096),
        Configuration(512, 8192),
        Configuration(1024, 8192),
        Configuration(1024, 16384),
    ),
    computes="copy",
    summary="floor: x read once and y written once, the fastest of its configurations",
)

UNFUSED = Variant(
    "unfused",
    source="unfused.cu",
    family="unfused",
    stages=(
        Stage("squares" + _T, reads=(X.tile,), writes=(SQUARES.tile,)),
        Stage("tile_sums" + _T, reads=(SQUARES.tile,), writes=(TILE_SQUARE_SUMS.tile,), shared=SCRATCH),
        Stage("tile_maxima" + _T, reads=(X.tile,), writes=(TILE_MAXIMA.tile,), shared=SCRATCH),
        Stage(
            "row_inverse_rms",
            grid="rows",
            reads=(TILE_SQUARE_SUMS.row,),
            writes=(ROW_INVERSE_RMS.row,),
            scalars=(TILES, INVERSE_WIDTH, EPS),
            threads=ROW_KERNEL_THREADS,
        ),
        Stage(
            "row_maxima",
            grid="rows",
            reads=(TILE_MAXIMA.row,),
            writes=(ROW_MAXIMA.row,),
            scalars=(TILES,),
            threads=ROW_KERNEL_THREADS,
        ),
        Stage(
            "exponentials" + _T,
            reads=(X.tile, ROW_INVERSE_RMS.row_each_thread, ROW_MAXIMA.row_each_thread),
            writes=(EXPONENTIALS.tile,),
        ),
        Stage("tile_sums" + _T, reads=(EXPONENTIALS.tile,), writes=(TILE_SUMS.tile,), shared=SCRATCH),
        Stage(
            "row_sums",
            grid="rows",
            reads=(TILE_SUMS.row,),
            writes=(ROW_SUMS.row,),
            scalars=(TILES,),
            threads=ROW_KERNEL_THREADS,
        ),
        Stage("normalise" + _T, reads=(EXPONENTIALS.tile, ROW_SUMS.row_each_thread), writes=(Y.tile,)),
    ),
    configurations=(
        Configuration(256, 4096),
        Configuration(256, 1024),
        Configuration(256, 2048),
        Configuration(512, 4096),
        Configuration(512, 8192),
    ),
    summary="nine kernels, every intermediate written to global memory",
)

_ROW_WISE = (WIDTH, TILES, INVERSE_WIDTH, EPS)
_LOCAL_CONFIGURATIONS = (
    Configuration(256, 4096),
    Configuration(256, 1024),
    Configuration(256, 2048),
    Configuration(256, 8192),
    Configuration(512, 4096),
    Configuration(512, 8192),
    Configuration(1024, 8192),
    Configuration(1024, 16384),
)
# Where each block reads a whole row, few large blocks repeat the least.
_REPEATING_CONFIGURATIONS = (
    Configuration(1024, 8192),
    Configuration(256, 4096),
    Configuration(512, 8192),
    Configuration(1024, 16384),
)

_TILE_STATISTICS = Stage("tile_statistics" + _T, reads=(X.tile,), writes=(TILE_STATISTICS.tile,), shared=SCRATCH)
_EXPONENTIAL_SUMS = Stage(
    "exponential_sums" + _T,
    reads=(X.tile, TILE_STATISTICS.row_each_warp),
    writes=(TILE_SUMS.tile,),
    scalars=_ROW_WISE,
    shared=SCRATCH,
)
_NORMALISE = Stage(
    "normalise" + _T,
    reads=(X.tile, TILE_STATISTICS.row_each_warp, TILE_SUMS.row_each_warp),
    writes=(Y.tile,),
    scalars=_ROW_WISE,
)
_NORMALISE_WRITTEN = Stage(
    "normalise_written" + _T, reads=(EXPONENTIALS.tile, TILE_SUMS.row_each_warp), writes=(Y.tile,)
)

LOCAL_RECOMPUTE = Variant(
    "local_recompute",
    source="local.cu",
    family="local",
    stages=(_TILE_STATISTICS, _EXPONENTIAL_SUMS, _NORMALISE),
    configurations=_LOCAL_CONFIGURATIONS,
    summary="three kernels; exponentials computed twice instead of written",
)

LOCAL_MATERIALIZED = Variant(
    "local_materialized",
    source="local.cu",
    family="local",
    stages=(
        _TILE_STATISTICS,
        Stage(
            "exponentials" + _T,
            reads=(X.tile, TILE_STATISTICS.row_each_warp),
            writes=(EXPONENTIALS.tile, TILE_SUMS.tile),
            scalars=_ROW_WISE,
            shared=SCRATCH,
        ),
        _NORMALISE_WRITTEN,
    ),
    configurations=_LOCAL_CONFIGURATIONS,
    summary="three kernels; exponentials written and read again",
)


def _overlapping(stage: Stage, *, first: bool = False) -> Stage:
    """The stage's kernel as it starts before the launch before it has finished."""
    return replace(stage, kernel=stage.kernel.replace(">", ", Programmatic>"), programmatic=not first)


LOCAL_RECOMPUTE_PDL = Variant(
    "local_recompute_pdl",
    source="local.cu",
    family="local",
    stages=(_overlapping(_TILE_STATISTICS, first=True), _overlapping(_EXPONENTIAL_SUMS), _overlapping(_NORMALISE)),
    configurations=_LOCAL_CONFIGURATIONS,
    summary="local_recompute, its kernels joined by programmatic dependent launch",
)

LOCAL2_RECOMPUTE = Variant(
    "local2_recompute",
    source="local.cu",
    family="local",
    stages=(
        Stage(
            "repeated_exponential_sums" + _T,
            reads=(X.row, X.tile),
            writes=(ROW_STATISTICS.row_once, TILE_SUMS.tile),
            scalars=_ROW_WISE,
            shared=SCRATCH,
        ),
        Stage(
            "normalise_row" + _T,
            reads=(X.tile, ROW_STATISTICS.row_each_thread, TILE_SUMS.row_each_warp),
            writes=(Y.tile,),
            scalars=_ROW_WISE,
        ),
    ),
    configurations=_REPEATING_CONFIGURATIONS,
    summary="two kernels; each tile repeats its row's statistics, exponentials computed twice",
)

LOCAL2_MATERIALIZED = Variant(
    "local2_materialized",
    source="local.cu",
    family="local",
    stages=(
        Stage(
            "repeated_exponentials" + _T,
            reads=(X.row, X.tile),
            writes=(EXPONENTIALS.tile, TILE_SUMS.tile),
            scalars=_ROW_WISE,
            shared=SCRATCH,
        ),
        _NORMALISE_WRITTEN,
    ),
    configurations=_REPEATING_CONFIGURATIONS,
    summary="two kernels; each tile repeats its row's statistics, exponentials written and read again",
)

LOCAL1 = Variant(
    "local1",
    source="local.cu",
    family="local",
    stages=(
        Stage(
            "repeated_rows" + _T,
            reads=(X.row, X.row, X.tile),
            writes=(Y.tile,),
            scalars=_ROW_WISE,
            shared=SCRATCH,
        ),
    ),
    configurations=_REPEATING_CONFIGURATIONS,
    summary="one kernel without a barrier; each tile repeats all of its row's work",
)

LOCAL1_ROW = Variant(
    "local1_row",
    source="local.cu",
    family="local",
    stages=(
        Stage(
            "whole_rows" + _T,
            grid="rows",
            reads=(X.row, X.row, X.row),
            writes=(Y.row,),
            scalars=_ROW_WISE,
            shared=SCRATCH,
        ),
    ),
    configurations=(
        Configuration(1024, 8192),
        Configuration(512, 4096),
        Configuration(512, 8192),
        Configuration(1024, 4096),
        Configuration(1024, 16384),
    ),
    summary="one kernel without a barrier; one block streams a whole row, three times",
)

_MEGAKERNEL_READS = (X.tile, TILE_STATISTICS.row_each_warp, TILE_SUMS.row_each_warp)
_MEGAKERNEL_WRITES = (TILE_STATISTICS.tile, TILE_SUMS.tile, Y.tile)
_MEGAKERNEL_CONFIGURATIONS = (
    Configuration(256, 4096),
    Configuration(256, 2048),
    Configuration(256, 8192),
    Configuration(512, 4096),
    Configuration(512, 8192),
    Configuration(512, 16384),
    Configuration(1024, 8192),
    Configuration(1024, 16384),
)

RETAINED = Variant(
    "retained",
    source="retained.cu",
    family="megakernel",
    stages=(
        Stage(
            "retained" + _T,
            reads=_MEGAKERNEL_READS,
            writes=_MEGAKERNEL_WRITES,
            scalars=_ROW_WISE,
            shared=TILE_AND_SCRATCH,
            barrier="grid",
        ),
    ),
    configurations=_MEGAKERNEL_CONFIGURATIONS,
    summary="one cooperative kernel; tile in shared memory across two grid-wide barriers",
)

ROW_RETAINED = Variant(
    "row_retained",
    source="row_retained.cu",
    family="megakernel",
    stages=(
        Stage(
            "row_retained" + _T,
            reads=_MEGAKERNEL_READS,
            writes=_MEGAKERNEL_WRITES,
            scalars=_ROW_WISE,
            shared=TILE_AND_SCRATCH,
            barrier="row",
        ),
    ),
    configurations=_MEGAKERNEL_CONFIGURATIONS,
    summary="one cooperative kernel; tile in shared memory across two row-scoped barriers",
)


def _control(name: str, summary: str, *, reload_input: bool, spill_exponentials: bool) -> Variant:
    """One of four settings of one binary: every launch argument but the two switches is the same."""
    exponentials = EXPONENTIALS.tile if spill_exponentials else EXPONENTIALS.untouched
    return Variant(
        name,
        source="controls.cu",
        family="control",
        stages=(
            Stage(
                "controls" + _T,
                reads=(*_MEGAKERNEL_READS, *((X.tile,) if reload_input else ()), exponentials),
                writes=(TILE_STATISTICS.tile, TILE_SUMS.tile, *((exponentials,) if spill_exponentials else ()), Y.tile),
                scalars=(
                    *_ROW_WISE,
                    Scalar("reload_input", "uint32", reload_input),
                    Scalar("spill_exponentials", "uint32", spill_exponentials),
                ),
                shared=TILE_AND_SCRATCH,
                barrier="grid",
            ),
        ),
        configurations=_MEGAKERNEL_CONFIGURATIONS,
        summary=summary,
    )


CONTROL_RETAIN = _control(
    "control_retain", "retained, with its switches off", reload_input=False, spill_exponentials=False
)
CONTROL_RELOAD = _control(
    "control_reload",
    "the same binary; x is read again before the exponentials",
    reload_input=True,
    spill_exponentials=False,
)
CONTROL_SPILL = _control(
    "control_spill",
    "the same binary; exponentials are written and read again",
    reload_input=False,
    spill_exponentials=True,
)
CONTROL_BOTH = _control(
    "control_both", "the same binary; both are read again", reload_input=True, spill_exponentials=True
)
CONTROLS = (CONTROL_RETAIN, CONTROL_RELOAD, CONTROL_SPILL, CONTROL_BOTH)

RMS_CUDNN = Variant(
    "rms_cudnn",
    source="rms_cudnn.cu",
    family="library",
    stages=(
        Stage(
            "softmax_arguments" + _T,
            reads=(X.row, X.tile),
            writes=(ARGUMENTS.tile,),
            scalars=_ROW_WISE,
            shared=SCRATCH,
        ),
        Stage("cudnnSoftmaxForward", library="cudnn", grid="rows", reads=(ARGUMENTS.row,), writes=(Y.row,), scalars=()),
    ),
    configurations=_REPEATING_CONFIGURATIONS,
    summary="a kernel for what precedes the softmax, then cuDNN's: a diagnostic",
)

CATALOGUE: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        EMPTY,
        COPY,
        UNFUSED,
        LOCAL_RECOMPUTE,
        LOCAL_MATERIALIZED,
        LOCAL_RECOMPUTE_PDL,
        LOCAL2_RECOMPUTE,
        LOCAL2_MATERIALIZED,
        LOCAL1,
        LOCAL1_ROW,
        RETAINED,
        ROW_RETAINED,
        *CONTROLS,
        RMS_CUDNN,
    )
}
FLOORS = (EMPTY, COPY)


def find(name: str) -> Variant:
    """The variant of that name, or ``FILE.py:NAME`` for a declaration of the user's own.

    Raises:
        UsageError: nothing has that name.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    path, colon, attribute = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), attribute)
    raise UsageError(f"unknown variant {name!r}: choose from {', '.join(CATALOGUE)}, or name your own as FILE.py:NAME")


def _from_file(path: Path, attribute: str) -> Variant:
    require_file(path)
    module = ModuleType(f"megakernel_user_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look for the module that they are made in
    try:
        # No bytecode beside the file: an edit of the same size in the same second would go unseen.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = f":{frames[-1].lineno}" if frames else ""
        raise UsageError(f"{path}{line}: {type(error).__name__}: {error}") from error
    if not hasattr(module, attribute):
        raise UsageError(f"{path} has no {attribute!r}: name a Variant that it defines")
    variant = getattr(module, attribute)
    if not isinstance(variant, Variant):
        raise UsageError(f"{path}: {attribute!r} is not a Variant")
    if variant.name in CATALOGUE:
        raise UsageError(f"{path}: the name {variant.name!r} belongs to a shipped variant")
    return variant
