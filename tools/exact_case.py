"""What width, rows and eps as arguments cost, and what the template for ragged rows would cost an exact one.

mk bench --rows 16 --variant row_retained --variant tools/exact_case.py:BAKED_ROW_RETAINED \\
         --variant tools/exact_case.py:CHECKED_ROW_RETAINED

``BAKED_…`` has the benchmark's width built in and is wrong for any other. ``CHECKED_…`` is the shipped kernel as
compiled for rows with a ragged last tile, run on rows without one. Compare at one configuration.
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
        family="own",
    )


_RETAINED = Configuration(256, 8192)

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
