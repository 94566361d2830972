"""Bytes per second: what the launches ask of global memory, and what the operator could not do without."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from megakernel.record.details import SeriesDetails
from megakernel.record.session import Series
from megakernel.report.summary import Row
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration

# Peak bandwidth of device memory in GB/s, from the vendor's data sheets, by a part of the name; the first that fits.
_PEAKS_GB_S = (
    ("H200", 4800.0),
    ("H100 PCIe", 2000.0),
    ("H100 NVL", 3900.0),
    ("H100", 3350.0),
    ("B200", 8000.0),
    ("A100-PCIE-40GB", 1555.0),
    ("A100-SXM4-40GB", 1555.0),
    ("A100 80GB PCIe", 1935.0),
    ("A100-SXM4-80GB", 2039.0),
    ("L40S", 864.0),
    ("RTX 4090", 1008.0),
)


@dataclass(frozen=True)
class Rate:
    """Of graph replays of one series; ``event_ns`` is the mean of the session medians.

    Attributes:
        declared_bytes: read and written as the launches declare, before any cache; None where nothing declares it.
        compulsory_gb_s: x read once and y written once, over the event interval.
        above_peak: whether the declared rate exceeds the device memory's peak, so that a cache must have served
            part of it. Below the peak nothing is known. None where a side of the comparison is.
    """

    variant: str
    rows: int
    width: int
    event_ns: float
    declared_bytes: int | None
    declared_gb_s: float | None
    compulsory_gb_s: float
    above_peak: bool | None


def peak_gb_s(device: str) -> float | None:
    """The device memory's peak by its data sheet; None for a device that the table lacks.

    The product's name is a whole word or several: a GH200 is no H200, and the laptop's GPU of a name is another.
    """
    if "Laptop" in device:
        return None
    return next(
        (peak for part, peak in _PEAKS_GB_S if re.search(rf"(?<![\w-]){re.escape(part)}(?![\w])", device)), None
    )


def declared_bytes(series: Series, details: SeriesDetails) -> int | None:
    """What the file says its launches read and write; for older files what the catalogue declares."""
    if details.moved_bytes is not None:
        return details.moved_bytes
    variant = CATALOGUE.get(series.variant)
    if variant is None:
        return None
    threads, _, tile = series.configuration.partition("x")
    chosen = Configuration(int(threads), int(tile))
    return sum(
        stage.bytes_read(series.problem, chosen) + stage.bytes_written(series.problem, chosen)
        for stage in variant.stages
    )


def rates(rows: Sequence[Row], bytes_of: dict[tuple[str, int, int], int | None], peak: float | None) -> list[Rate]:
    """A rate for each variant that moves data, from its warm graph replays."""
    found = []
    for row in rows:
        if (row.submission, row.cache, row.metric) != ("graph", "warm", "event_interval") or not row.mean_ns > 0:
            continue
        declared = bytes_of.get((row.variant, row.rows, row.width))
        if declared == 0:
            continue  # a launch of nothing
        declared_gb_s = None if declared is None else declared / row.mean_ns
        found.append(
            Rate(
                variant=row.variant,
                rows=row.rows,
                width=row.width,
                event_ns=row.mean_ns,
                declared_bytes=declared,
                declared_gb_s=declared_gb_s,
                compulsory_gb_s=2 * 4 * row.rows * row.width / row.mean_ns,
                above_peak=None if peak is None or declared_gb_s is None else declared_gb_s > peak,
            )
        )
    return found
