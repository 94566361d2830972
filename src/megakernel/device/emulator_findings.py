"""What a launch on the emulator can find wrong with a kernel."""

from dataclasses import dataclass

from megakernel.errors import KernelFault

DETECTORS = {
    "deadlock": "every resident thread waits, and no block can start or finish to change that",
    "divergent_barrier": "threads of a block wait at different __syncthreads, or misuse the cluster barrier",
    "divergent_warp": "a lane is missing from the collective whose mask names it, or another's value is read",
    "early_exit": "a thread has exited that others still wait for",
    "out_of_bounds_global": "an access outside every buffer",
    "out_of_bounds_shared": "an access outside the block's shared memory",
    "misaligned": "an access at an address that its type does not divide",
    "early_access": "a programmatic launch uses what launches before it still use, without waiting for them",
    "cluster_lifetime": "shared memory of a peer that has not started or has left, or that does not exist",
    "shared_size": "block_shared<T>() with a launch that does not give exactly sizeof(T) bytes",
    "grid_sync_without_cooperative": "a grid barrier in a launch that is not cooperative",
    "impure_predicate": "a predicate of spin_until writes memory or waits",
    "trap": "__trap()",
    "endless_loop": "the time limit passed: a loop that waits without spin_until",
    "stack_overflow": "local variables beyond the stack of an emulated thread",
    "arithmetic_fault": "an integer division by zero",
    "undefined_behaviour": "a check of the undefined behaviour sanitizer, where built with it",
}


@dataclass(frozen=True)
class Wait:
    """Threads that wait at one place. The blocks lie between ``first_block`` and ``last_block``."""

    what: str
    file: str | None
    line: int | None
    threads: int
    blocks: int
    first_block: int
    last_block: int

    def __str__(self) -> str:
        return (
            f"{self.threads} threads of {self.blocks} blocks ({self.first_block} to {self.last_block}) "
            f"wait in {self.what} at {_place(self.file, self.line)}"
        )


@dataclass(frozen=True)
class Finding:
    """What is wrong with a kernel, and where. ``seed`` repeats it.

    Attributes:
        detector: a key of ``DETECTORS``.
        file, line: exact, or with ``approximate`` the last access or wait of the thread before the fault.
        blocks_resident: this and the counts beside it are of a deadlock, and 0 otherwise.
    """

    detector: str
    message: str
    kernel: str
    seed: int
    block: int | None
    thread: int | None
    file: str | None
    line: int | None
    approximate: bool = False
    blocks_finished: int = 0
    blocks_resident: int = 0
    blocks_never_started: int = 0
    waits: tuple[Wait, ...] = ()

    def __str__(self) -> str:
        who = "" if self.block is None else f" by block {self.block}"
        who += "" if self.thread is None else f" thread {self.thread}"
        preposition = "after" if self.approximate else "at"
        place = f" {preposition} {_place(self.file, self.line)}" if self.file else ""
        first = f"{self.kernel}: {self.detector}{who}{place}: {self.message} (seed {self.seed})"
        return "\n  ".join((first, *(str(wait) for wait in self.waits)))


class EmulatedFault(KernelFault):
    """A kernel did something wrong. The launch ended there; the process and its buffers stay usable."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding), finding.detector)
        self.finding = finding


def _place(file: str | None, line: int | None) -> str:
    return f"{file}:{line}" if file else "the start of the kernel"
