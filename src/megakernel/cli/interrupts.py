"""Ctrl-C that is never lost.

Python raises KeyboardInterrupt wherever it happens to be, and drops it inside the finalisers that extension modules
run all the time. So the request is also remembered, and looked at between the rounds of a measurement.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec

_Arguments = ParamSpec("_Arguments")
_requested = False


def install() -> None:
    """Remembers Ctrl-C besides raising it."""
    global _requested
    _requested = False
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _remember)


def _remember(number: int, frame: FrameType | None) -> None:
    global _requested
    _requested = True
    raise KeyboardInterrupt


def checked(report: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """The report, raising a Ctrl-C that was lost before."""

    def report_or_raise(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> None:
        if _requested:
            raise KeyboardInterrupt
        report(*arguments, **keywords)

    return report_or_raise
