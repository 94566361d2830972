"""Files that are read must be there; files that a command leaves behind are new ones, whole or not at all."""

from pathlib import Path

from megakernel.errors import MissingError, RecordError


def require_file(path: Path, hint: str = "") -> None:
    """Says what is wrong with a path that is to be read; a pipe or a device would be waited for without end.

    Raises:
        MissingError: it is no regular file.
    """
    if path.is_dir():
        raise MissingError(f"{path} is a folder: name a file")
    if path.exists() and not path.is_file():
        raise MissingError(f"{path} is no regular file: name one")
    if not path.is_file():
        raise MissingError(f"{path}: no such file{hint}")


def cannot_write(path: Path, error: OSError) -> RecordError:
    """Why a new file could not be made or written, and what to do."""
    if isinstance(error, FileExistsError):
        return RecordError(f"{path} exists already: name another file, or move it away")
    if not path.parent.is_dir():
        return RecordError(f"cannot write {path}: there is no folder {path.parent}: make it first")
    return RecordError(f"cannot write {path}: {error.strerror or error}")


def write_new(path: Path, data: bytes) -> None:
    """Writes a file that did not exist.

    Raises:
        RecordError: something is in the way, or it cannot be written; nothing is left of it then.
    """
    try:
        file = path.open("xb")
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        with file:
            file.write(data)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise
