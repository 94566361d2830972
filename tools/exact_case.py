"""What width, rows and eps as arguments cost, and what the template for ragged rows would cost an exact one.

mk bench --rows 16 --variant row_retained --variant tools/exact_case.py:BAKED_ROW_RETAINED \\
         --variant tools/exact_case.py:CHECKED_ROW_RETAINED --variant tools/exact_case.py:BAKED_COPY

``BAKED_…`` have the benchmark's width built in and are wrong for any other. ``CHECKED_…`` are the shipped kernels as
compiled for rows with a ragged last tile, run on rows without one.
"""

from dataclasses import replace
from pathlib import Path

from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration, Variant

SOURCE = str(Path(__file__).with_suffix(".cu"))


def _one_kernel(name: str, of: str, kernel: str, source: str, configuration: Configuration) -> Variant:
    shipped = CATALOGUE[of]
    (stage,) = shipped.stages
    return replace(
        shipped,
        name=name,
        source=source,
        stages=(replace(stage, kernel=kernel),),
        configurations=(configuration,),
        for_rows={},
    )


_RETAINED = CATALOGUE["row_retained"].default_configuration(16)
_COPY = Configuration(512, 8192)  # the fastest at 16 rows on an H200

BAKED_ROW_RETAINED = _one_kernel(
    "baked_row_retained", "row_retained", "baked_row_retained<{threads}, {tile}>", SOURCE, _RETAINED
)
CHECKED_ROW_RETAINED = _one_kernel(
    "checked_row_retained",
    "row_retained",
    "row_retained<{threads}, {tile}, Shape::aligned>",
    CATALOGUE["row_retained"].source,
    _RETAINED,
)
BAKED_COPY = _one_kernel("baked_copy", "copy", "baked_copy<{threads}, {tile}>", SOURCE, _COPY)
CHECKED_COPY = _one_kernel(
    "checked_copy", "copy", "copy<{threads}, {tile}, Shape::aligned>", CATALOGUE["copy"].source, _COPY
)
