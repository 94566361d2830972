"""Reads an archive in a process of its own: a damaged file can make HDF5 spin or crash, which no exception shows."""

import pickle
import subprocess
import sys
from pathlib import Path

from megakernel.errors import MegakernelError, RecordError
from megakernel.record.tree import Tree, read_archive

# The largest session file takes a few seconds.
LIMIT_S = 60.0


def read_archive_apart(path: Path, limit_s: float = LIMIT_S) -> Tree:
    """As ``read_archive``.

    Raises:
        MissingError, RecordError: as there, or HDF5 did not come back.
    """
    package = Path(__file__).resolve().parents[2]
    code = f"import sys; sys.path.insert(0, {str(package)!r}); from megakernel.record import apart; apart.answer()"
    try:
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise RecordError(f"{path} is damaged: HDF5 had not read it after {limit_s:g} s") from None
    if done.returncode:
        raise RecordError(f"{path} is damaged: reading it ended with code {done.returncode}")
    answer = pickle.loads(done.stdout)  # of our own making
    if isinstance(answer, MegakernelError):
        raise answer
    assert isinstance(answer, Tree)
    return answer


def answer() -> None:
    """What the process does: writes the tree, or the error, to standard output."""
    result: Tree | MegakernelError
    try:
        result = read_archive(Path(sys.argv[1]))
    except MegakernelError as error:
        result = error
    sys.stdout.buffer.write(pickle.dumps(result))
