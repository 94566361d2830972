"""Files that a command leaves behind: always new ones, whole or not at all."""

from pathlib import Path

from megakernel.errors import RecordError


def write_new(path: Path, data: bytes) -> None:
    """Writes a file that did not exist.

    Raises:
        RecordError: something is in the way, or it cannot be written; nothing is left of it then.
    """
    try:
        file = path.open("xb")
    except FileExistsError:
        raise RecordError(f"{path} exists already: name another file, or move it away") from None
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with file:
            file.write(data)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
        raise
