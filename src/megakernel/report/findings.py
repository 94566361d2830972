"""What an audit finds, collected while it goes through a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from megakernel.record.tree import Damaged

Kind = Literal["repeated", "read only", "not stored", "note", "fault"]


@dataclass(frozen=True)
class Finding:
    """Attributes:
    check: what was looked at, in a word or two; the same word names the fault in every file.
    place: where in the file; empty for the whole of it.
    """

    kind: Kind
    check: str
    detail: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.check}: {self.place + ': ' if self.place else ''}{self.detail}"


@dataclass
class Findings:
    """Grows while a file is audited. What is repeated many times is said once, with how often."""

    found: list[Finding] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def repeated(self, check: str, what: str, times: int = 1) -> None:
        """Counts something that the audit worked out again, whatever the outcome."""
        self.counts[check, what] = self.counts.get((check, what), 0) + times

    def read_only(self, check: str, detail: str) -> None:
        self._once(Finding("read only", check, detail))

    def not_stored(self, check: str, detail: str) -> None:
        self._once(Finding("not stored", check, detail))

    def note(self, check: str, detail: str, place: str = "") -> None:
        self._once(Finding("note", check, detail, place))

    def fault(self, check: str, detail: str, place: str = "") -> None:
        self._once(Finding("fault", check, " ".join(detail.split()), place))

    def _once(self, finding: Finding) -> None:
        if finding not in self.found:
            self.found.append(finding)

    @contextmanager
    def guarded(self, check: str, place: str = "") -> Iterator[None]:
        """A part that is missing or makes no sense is a fault, and does not stop what follows."""
        try:
            yield
        except Damaged as damaged:
            self.fault(check, str(damaged))
        except Exception as error:  # damaged values can make numpy and json fail in any way
            self.fault(check, f"cannot be checked: {type(error).__name__}: {error}", place)

    def all(self) -> tuple[Finding, ...]:
        repeated = [
            Finding("repeated", check, f"{what}, {times} times" if times > 1 else what)
            for (check, what), times in self.counts.items()
        ]
        return (*repeated, *self.found)


@dataclass(frozen=True)
class Audit:
    """Of one file. ``contents_sha256`` is of what was read now: compare it with one that was published."""

    path: str
    contents_sha256: str
    findings: tuple[Finding, ...]

    def of_kind(self, kind: Kind) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.kind == kind)

    @property
    def passed(self) -> bool:
        return not self.of_kind("fault")
