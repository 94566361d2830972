"""Kernel folders with edits in them."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from megakernel.device.face import Device
from megakernel.device.sources import kernel_folder
from megakernel.run.prepare import KernelStore
from tests.wrong.fault import Edit, Line


def edited(text: str, edit: Edit) -> str:
    """The text with one replacement.

    Raises:
        ValueError: the fragment does not occur, or occurs several times and the edit does not say which it means.
    """
    parts = text.split(edit.old)
    count = len(parts) - 1
    if edit.occurrence is None and count != 1:
        raise ValueError(f"{edit.file}: {edit.old!r} occurs {count} times, not once")
    position = edit.occurrence or 0
    if position >= count:
        raise ValueError(f"{edit.file}: {edit.old!r} occurs {count} times, and number {position} was meant")
    return edit.old.join(parts[: position + 1]) + edit.new + edit.old.join(parts[position + 1 :])


def edited_folder(edits: Sequence[Edit], folder: Path) -> Path:
    """Copies the shipped kernels and headers to ``folder`` and edits them there.

    The emulator itself stays where it is: only what a kernel may get wrong is copied. A source finds the headers
    beside it before the shipped ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(kernel_folder().iterdir()):
        if path.suffix in {".cu", ".cuh"}:
            shutil.copy(path, folder / path.name)
    for edit in edits:
        path = folder / edit.file
        path.write_text(edited(path.read_text(), edit))
    return folder


def edited_store(device: Device, edits: Sequence[Edit], folder: Path) -> KernelStore:
    return KernelStore(device, edited_folder(edits, folder))


def line_numbers(folder: Path, line: Line) -> list[int]:
    """Where the fragment stands in the edited file."""
    lines = (folder / line.file).read_text().splitlines()
    return [number for number, text in enumerate(lines, start=1) if line.text in text]
