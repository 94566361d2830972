"""Where compiled kernels are kept between runs, and the headers that they depend on."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path


def default_cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "megakernel"


def writable(folder: Path) -> Path:
    """The folder, made where it is missing; one of this user's among the temporary files where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    other = Path(tempfile.gettempdir()) / f"megakernel-{os.getuid()}"
    other.mkdir(mode=0o700, exist_ok=True)
    return other


def headers_in(folders: Sequence[Path]) -> list[Path]:
    """All of them, whether included or not: simpler than the exact closure, and never too few."""
    patterns = ("*.h", "*.hpp", "*.cuh")
    found = {path for folder in folders for pattern in patterns for path in folder.glob(pattern)}
    return sorted(found, key=lambda path: (path.name, str(path)))
