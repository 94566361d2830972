"""What the shipped kernels take on each architecture, as compiled when the table was made.

For planning where NVRTC is not installed. ``tools/resource_table.py`` makes the table.
"""

import functools
import hashlib
import json
from importlib import resources as package_files
from pathlib import Path
from typing import Any

from megakernel.device.cache import headers_in
from megakernel.errors import MissingError
from megakernel.record.facts import KernelResources


@functools.cache
def _table() -> dict[str, Any]:
    text = package_files.files("megakernel.device").joinpath("resources.json").read_text()
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def source_digests(source: Path) -> dict[str, str]:
    """SHA-256 of a kernel source and of the headers beside it, by file name."""
    files = (source, *headers_in((source.parent,)))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def recorded_resources(source: Path, kernel_names: tuple[str, ...], arch: str) -> dict[str, KernelResources]:
    """The resources of shipped kernels, by name expression.

    Raises:
        MissingError: a kernel, configuration or architecture is not in the table.
    """
    known = _table()["sources"]
    if any(known.get(name) != digest for name, digest in source_digests(source).items()):
        raise MissingError(
            f"{source} has changed since resources were recorded: install nvidia-cuda-nvrtc to compile it"
        )
    rows = _table().get(arch, {})
    found = {}
    for name in kernel_names:
        values = rows.get(f"{source.name}:{name}")
        if values is None:
            raise MissingError(
                f"{name} for {arch} is not among the recorded resources: install nvidia-cuda-nvrtc to compile it"
            )
        found[name] = KernelResources(name, *values)
    return found
