"""Where the kernel sources are, and what they hash to."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from megakernel.errors import MissingError

_PACKAGE = Path(__file__).resolve().parents[1]


def kernel_folder() -> Path:
    """The folder of the shipped ``.cu`` and ``.cuh`` files: inside the installed package, else the source tree's.

    Raises:
        MissingError: the installation lacks it.
    """
    for folder in (_PACKAGE / "kernels", _PACKAGE.parents[1] / "cuda"):
        if (folder / "primitives.cuh").is_file():
            return folder
    raise MissingError(f"the kernel sources are missing from this installation ({_PACKAGE / 'kernels'}): reinstall")


def source_hashes(folder: Path, others: Iterable[str] = ()) -> dict[str, str]:
    """SHA-256 of every kernel source and header, by its path within ``folder``; of ``others`` by the whole path, those
    that lie within the folder once.

    Raises:
        MissingError: one of the others cannot be read.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix in {".cu", ".cuh", ".hpp", ".h"})
    hashes = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    for other in sorted({str(folder / other) for other in others} - {str(path) for path in files}):
        try:
            hashes[other] = hashlib.sha256(Path(other).read_bytes()).hexdigest()
        except OSError as error:
            raise MissingError(f"{other}: cannot be read: {error.strerror}") from error
    return hashes
