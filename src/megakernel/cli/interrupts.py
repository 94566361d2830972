"""Ctrl-C and SIGTERM that are never lost.

Python raises an exception wherever it happens to be, and drops it inside the finalisers that extension modules
run all the time. So the request is also remembered, and looked at between the rounds of a measurement.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec

_Arguments = ParamSpec("_Arguments")
_requested = 0  # the signal's number


class Terminated(KeyboardInterrupt):
    """SIGTERM: what ends on Ctrl-C ends the same way."""


def install() -> None:
    """Remembers the signals besides raising them, where nobody else handles them."""
    global _requested
    _requested = 0
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is default:
            signal.signal(number, _remember)


def name() -> str:
    """What has happened, in a word."""
    return "terminated" if _requested == signal.SIGTERM else "interrupted"


def exit_code() -> int:
    """As a shell gives it for the signal: 130 on Ctrl-C, 143 on SIGTERM."""
    return 128 + (_requested or signal.SIGINT)


def _remember(number: int, frame: FrameType | None) -> None:
    global _requested
    _requested = number
    _raise()


def _raise() -> None:
    if _requested == signal.SIGTERM:
        raise Terminated(name())
    raise KeyboardInterrupt


def checked(report: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """The report, raising a request that was lost before."""

    def report_or_raise(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> None:
        if _requested:
            _raise()
        report(*arguments, **keywords)

    return report_or_raise
