"""The errors that a user can meet. Each message is one line: what, where, and what to do.

The command line turns ``exit_code`` into the process's exit code; nothing else decides one.
"""

import re


class MegakernelError(Exception):
    """It could not be done."""

    exit_code = 2


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text with control codes written out, so that what a file or a path holds cannot steer a terminal."""
    return _CONTROLS.sub(lambda control: f"\\x{ord(control[0]):02x}", text)


class UsageError(MegakernelError):
    """The request makes no sense: an unknown name, or a value out of range."""


class MissingError(MegakernelError):
    """A device, driver, package or file is not there."""


class CompileError(MegakernelError):
    """A kernel source did not compile. The message carries the compiler's log."""


class PlanError(MegakernelError):
    """The device cannot run the launch as declared. Nothing was shrunk to fit."""


class DeviceError(MegakernelError):
    """A driver call failed. The message names the call and its result."""


class RecordError(MegakernelError):
    """A result file is damaged, of another schema, or would be overwritten."""


class VerdictError(MegakernelError):
    """The work was done and the verdict is bad: a wrong result or a failed audit."""

    exit_code = 1


class AmbiguousError(MegakernelError):
    """The work was done, and what was measured decides nothing."""

    exit_code = 3


class KernelFault(VerdictError):
    """A kernel did something wrong while it ran, and ``detector`` names what noticed. The device stays usable."""

    def __init__(self, message: str, detector: str) -> None:
        super().__init__(message)
        self.detector = detector
