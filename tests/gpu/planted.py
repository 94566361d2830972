"""Declarations of the planted kernels, as a user would write variants of his own."""

from dataclasses import replace
from pathlib import Path

from megakernel.variants.catalogue import COPY
from megakernel.variants.declaration import TILES, WIDTH, Configuration, Stage, Variant, X, Y

SOURCE = str(Path(__file__).parent / "kernels" / "planted.cu")
_CONFIGURATIONS = (Configuration(256, 4096),)

HANG = Variant(
    "never_met",
    SOURCE,
    (Stage("never_met", writes=(Y.tile,), scalars=(TILES,), barrier="row"),),
    _CONFIGURATIONS,
)
TEN_MILLISECONDS = Variant(
    "ten_milliseconds",
    SOURCE,
    (Stage("ten_milliseconds", grid="one", scalars=(), threads=32),),
    _CONFIGURATIONS,
    computes="nothing",
)
EARLY_PAIR = Variant(
    "early_pair",
    SOURCE,
    (
        Stage("starts_next_early", grid="one", writes=(Y.tile,), scalars=(), threads=32),
        Stage("follows_early", grid="one", writes=(Y.tile,), scalars=(), threads=32, programmatic=True),
    ),
    _CONFIGURATIONS,
    computes="nothing",
)
ORDERLY_PAIR = replace(
    EARLY_PAIR, name="orderly_pair", stages=tuple(replace(stage, programmatic=False) for stage in EARLY_PAIR.stages)
)
NARROW_COPY = replace(
    COPY,
    name="narrow_copy",
    source=SOURCE,
    stages=(replace(COPY.stages[0], kernel="narrow_copy<{threads}, {tile}, {shape}>"),),
)
FAULT_LATER = Variant(
    "copy_then_fault",
    SOURCE,
    (
        Stage(
            "copy_then_fault<{threads}, {tile}, {shape}>",
            reads=(X.tile,),
            writes=(Y.tile,),
            scalars=(WIDTH, TILES),
            barrier="row",
        ),
    ),
    COPY.configurations[:1],
    computes="copy",
)
