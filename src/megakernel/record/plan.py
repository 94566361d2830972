"""A plan: every launch of a variant for one problem on one device, with nothing left to decide."""

from dataclasses import dataclass
from typing import Literal

from megakernel.operator.contract import Problem
from megakernel.record.facts import KernelResources
from megakernel.variants.declaration import Configuration, ScalarType

Submission = Literal["direct", "graph"]
SUBMISSIONS: tuple[Submission, ...] = ("direct", "graph")


@dataclass(frozen=True)
class Pointer:
    """An address argument: ``offset_bytes`` into the allocation of a quantity."""

    quantity: str
    offset_bytes: int


@dataclass(frozen=True)
class Value:
    """A scalar argument. A float32 is given as the float that it is, whatever Python type came in."""

    name: str
    dtype: ScalarType
    value: float


Argument = Pointer | Value


@dataclass(frozen=True)
class Transfer:
    """Bytes that a launch asks of global memory, or writes to it, before any cache."""

    quantity: str
    nbytes: int


@dataclass(frozen=True)
class Launch:
    """One kernel launch, or one call of a library.

    Attributes:
        kernel: name expression, or the library's function.
        grid: blocks.
        block: threads in a block.
        shared_bytes: dynamic shared memory of a block.
        cooperative: launched so that all blocks are resident at once.
        first_row: the first row of the row group.
        rows: rows in the row group.
        barrier_members: blocks that meet at a row-scoped barrier; 0 where there is none.
        programmatic: may start while the launch before still runs; its kernel waits for that itself.
        library: which library launches it; empty for a kernel of ours.
        reads, writes: what it moves, as declared.
    """

    kernel: str
    grid: int
    block: int
    shared_bytes: int
    cooperative: bool
    arguments: tuple[Argument, ...]
    first_row: int
    rows: int
    barrier_members: int = 0
    programmatic: bool = False
    library: str = ""
    reads: tuple[Transfer, ...] = ()
    writes: tuple[Transfer, ...] = ()


@dataclass(frozen=True)
class Allocation:
    """Global memory for one quantity. Words that hold barrier state start as zero."""

    quantity: str
    nbytes: int
    holds_state: bool


@dataclass(frozen=True)
class Residency:
    """How many blocks of one stage's kernel the device holds at once.

    Attributes:
        cap: ``blocks_per_sm * sm_count``.
        rows_per_launch: whole rows within the cap; 0 where not even one fits, and -1 where no cap applies
            because the blocks never wait for each other.
    """

    resources: KernelResources
    threads: int
    shared_bytes: int
    blocks_per_sm: int
    sm_count: int
    rows_per_launch: int

    @property
    def cap(self) -> int:
        return self.blocks_per_sm * self.sm_count


@dataclass(frozen=True)
class Plan:
    """See the module. ``residencies`` has one entry for each stage of the variant that has a kernel of ours."""

    variant: str
    problem: Problem
    configuration: Configuration
    launches: tuple[Launch, ...]
    allocations: tuple[Allocation, ...]
    residencies: tuple[Residency, ...]

    @property
    def moved_bytes(self) -> int:
        """What one invocation reads and writes of global memory, before any cache."""
        return sum(transfer.nbytes for launch in self.launches for transfer in (*launch.reads, *launch.writes))


CHILD_GRAPH = "(child graph)"


@dataclass(frozen=True)
class Node:
    """A kernel node of a graph, as read back from the driver; of a child graph, no more than that it is one.

    Attributes:
        symbol: the kernel's mangled name, or ``CHILD_GRAPH``.
        arguments: the raw bits of each argument, as unsigned integers.
    """

    symbol: str
    grid: int
    block: int
    shared_bytes: int
    cooperative: bool
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Topology:
    """Nodes in the order they were added, and edges as pairs of positions in it.

    Attributes:
        programmatic: those edges at which the later node may start while the earlier one runs.
    """

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]
    programmatic: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class GraphTimings:
    """What it cost to have the graph, each measured once, in nanoseconds."""

    build_ns: int
    instantiate_ns: int
    upload_ns: int
    first_replay_ns: int
