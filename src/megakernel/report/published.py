"""The figures published for an H100, as the article states them (``data/published_h100.toml``)."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from megakernel.errors import MissingError
from megakernel.record.plan import Submission

_PACKAGE = Path(__file__).resolve().parents[1]
_NAME = "published_h100.toml"


@dataclass(frozen=True)
class PublishedTime:
    """A mean of session medians, in nanoseconds per invocation."""

    variant: str
    rows: int
    submission: Submission
    mean_ns: float


@dataclass(frozen=True)
class Published:
    """What was published. What is not stated is absent.

    Attributes:
        metric: of all times.
        penalties_ns: mean retention penalties by control.
        target_met: whether the primary target was, there.
    """

    source: str
    device: str
    metric: str
    times: tuple[PublishedTime, ...]
    penalties_ns: dict[str, float]
    target_met: bool

    def time_ns(self, variant: str, rows: int, submission: str) -> float | None:
        for time in self.times:
            if (time.variant, time.rows, time.submission) == (variant, rows, submission):
                return time.mean_ns
        return None


def load_published() -> Published:
    """Reads the shipped file: inside the installed package, else the source tree's.

    Raises:
        MissingError: the installation lacks it.
    """
    for folder in (_PACKAGE, _PACKAGE.parents[1] / "data"):
        if (folder / _NAME).is_file():
            stored = tomllib.loads((folder / _NAME).read_text("utf-8"))
            break
    else:
        raise MissingError(f"{_NAME} is missing from this installation ({_PACKAGE}): reinstall")
    return Published(
        source=stored["source"],
        device=stored["device"],
        metric=stored["metric"],
        times=tuple(
            PublishedTime(time["variant"], time["rows"], time["submission"], round(time["mean_us"] * 1e3, 6))
            for time in stored["time"]
        ),
        penalties_ns={penalty["control"]: round(penalty["mean_us"] * 1e3, 6) for penalty in stored["penalty"]},
        target_met=stored["target"]["met"],
    )
