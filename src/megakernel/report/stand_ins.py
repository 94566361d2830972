"""Which local family and which megakernel stand for each shape: the article's pair, or the pilot's frozen one."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """A local family and a megakernel, by their names."""

    local: str
    megakernel: str

    def __str__(self) -> str:
        return f"{self.local} / {self.megakernel}"


@dataclass(frozen=True)
class StandIns:
    """``frozen`` by row count; at any other the article's pair stands."""

    frozen: Mapping[int, Pair]

    def pair(self, rows: int) -> Pair:
        return self.frozen.get(rows) or article_pair(rows)

    @property
    def source(self) -> str:
        return "the pilot's frozen choice" if self.frozen else "the article's choice"


def article_pair(rows: int) -> Pair:
    """The article: grid-wide barriers at one row, row-scoped ones above; one local family everywhere."""
    return Pair("local_recompute", "retained" if rows == 1 else "row_retained")
