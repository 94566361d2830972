"""Digests of what a file holds, the same whichever library wrote it and however HDF5 laid it out.

``docs/schema.md`` gives the form, so that others can repeat it. A digest shows that something changed; it does
not keep anybody from changing a value and the digest with it.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from megakernel.record.tree import Tree

SAMPLES_ATTRIBUTE = "samples_sha256"  # of each series
CONTENTS_ATTRIBUTE = "contents_sha256"  # of the file; the one thing that it does not cover

SAMPLE_DATASETS = (
    "host_completion",
    "host_enqueue",
    "host_batch_completion",
    "event_interval",
    "single_event_interval",
    "round",
    "position",
)


def samples_sha256(samples: Mapping[str, NDArray[Any]]) -> str:
    """Of the raw samples of one series: of each dataset that it has its name, a NUL and its bytes."""
    digest = hashlib.sha256()
    for name in SAMPLE_DATASETS:
        if name in samples:
            digest.update(name.encode() + b"\0" + _little_endian(samples[name]))
    return digest.hexdigest()


def contents_sha256(tree: Tree) -> str:
    """Of every group, dataset and attribute, by path and name."""
    digest = hashlib.sha256()
    for path in sorted(tree.nodes):
        node = tree.nodes[path]
        _update(digest, b"group" if node.is_group else b"dataset", path.encode("utf-8", "surrogateescape"))
        if not node.is_group:
            _update(digest, *_canonical(node.value))
        for name in sorted(node.attributes):
            if (path, name) != ("/", CONTENTS_ATTRIBUTE):
                _update(digest, b"attribute", name.encode("utf-8", "surrogateescape"))
                _update(digest, *_canonical(node.attributes[name]))
    return digest.hexdigest()


def _update(digest: Any, *parts: bytes) -> None:
    """Each part behind its length: no two lists of parts look alike."""
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)


def _canonical(value: Any) -> list[bytes]:
    """The kind, the dimensions and the values."""
    if isinstance(value, str | bytes):
        return [b"text", b"", value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value]
    array = np.asarray(value)
    dimensions = ",".join(str(length) for length in array.shape).encode()
    if array.dtype.kind in "OSU":
        texts = [
            text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape") for text in array.flat
        ]
        return [b"text", dimensions, *texts]
    return [array.dtype.newbyteorder("<").str.encode(), dimensions, _little_endian(array)]


def _little_endian(array: Any) -> bytes:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
