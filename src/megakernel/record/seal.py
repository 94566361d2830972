"""What a finished file says of itself, so that a later change shows: for each series a digest and a summary of its
samples, and a digest of everything.

The summary says again, in other words, what the samples say. A sample that is edited disagrees with it, also where
the digests were made anew.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from megakernel.record.digest import (
    CONTENTS_ATTRIBUTE,
    SAMPLE_DATASETS,
    SAMPLES_ATTRIBUTE,
    contents_sha256,
    samples_sha256,
)
from megakernel.record.tree import Group, Tree, read_tree

NO_MARKS: Mapping[str, Any] = MappingProxyType({})
SUMMARY = "summary"
METRIC_DATASETS = tuple(name for name in SAMPLE_DATASETS if name not in ("round", "position"))


def seal(file: h5py.File, marks: Mapping[str, Any] = NO_MARKS) -> None:
    """Writes summaries and digests into an open file, then the marks: the attributes that say that it is finished. The
    digest covers them. Nothing may be written after.
    """
    for series in file["series"].values():
        samples = {name: series[name][()] for name in SAMPLE_DATASETS if name in series}
        summaries = series.create_group(SUMMARY)
        for name in METRIC_DATASETS:
            if name in samples and samples[name].size:
                entry = summaries.create_group(name)
                entry.attrs.update(summary(samples[name], int(series[name].attrs["invocations"])), units="ns")
        series.attrs[SAMPLES_ATTRIBUTE] = samples_sha256(samples)
    tree = read_tree(file)
    root = replace(tree.nodes["/"], attributes={**tree.nodes["/"].attributes, **marks})
    file.attrs[CONTENTS_ATTRIBUTE] = contents_sha256(Tree({**tree.nodes, "/": root}))
    for name, value in marks.items():
        file.attrs[name] = value


def unseal(file: h5py.File) -> None:
    """Takes back what a seal that did not come to its end has written."""
    file.attrs["complete"] = False
    for name in (CONTENTS_ATTRIBUTE, "finished"):
        file.attrs.pop(name, None)
    for series in file["series"].values():
        series.attrs.pop(SAMPLES_ATTRIBUTE, None)
        if SUMMARY in series:
            del series[SUMMARY]


def summary(samples: NDArray[Any], invocations: int) -> dict[str, int | float]:
    """Of all raw samples their count, sum, minimum and maximum; of the round values, per invocation, the quantiles
    (linear interpolation).
    """
    values = np.median(samples, axis=1) if samples.ndim == 2 else samples / invocations
    p10, median, p90 = np.percentile(values, [10, 50, 90])
    whole = samples.dtype.kind in "iu"
    return {
        "count": int(samples.size),
        "sum": sum(samples.ravel().tolist()) if whole else math.fsum(samples.ravel().tolist()),
        "minimum": samples.min().item(),
        "maximum": samples.max().item(),
        "p10": float(p10),
        "median": float(median),
        "p90": float(p90),
    }


def summary_of(series: Group) -> dict[str, dict[str, Any]]:
    """The stored summary of each metric."""
    return {entry.path.rpartition("/")[2]: entry.attributes for entry in series.group(SUMMARY).groups()}
