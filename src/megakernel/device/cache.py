"""Where compiled kernels are kept between runs, and the headers that they depend on."""

import os
from collections.abc import Sequence
from pathlib import Path


def default_cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "megakernel"


def headers_in(folders: Sequence[Path]) -> list[Path]:
    """All of them, whether included or not: simpler than the exact closure, and never too few."""
    patterns = ("*.h", "*.hpp", "*.cuh")
    found = {path for folder in folders for pattern in patterns for path in folder.glob(pattern)}
    return sorted(found, key=lambda path: (path.name, str(path)))
