"""Kernels built for the emulator: loading them, launching them, and what a launch found wrong."""

import shutil
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import MappingProxyType, TracebackType
from typing import Any, Self

import cffi

from megakernel.device.emulator_findings import EmulatedFault, Finding, Wait
from megakernel.device.guarded_memory import PAGE_BYTES, GuardedMemory, map_memory, unmap_memory
from megakernel.device.host_compiler import SharedObject
from megakernel.errors import UsageError

# 704 bytes more than a power of two: frames of neighbouring threads then fall into different cache sets.
STACK_BYTES = 16384 + 704
MAX_BLOCK_THREADS = 1024


@dataclass(frozen=True)
class LaunchStats:
    """What a launch did.

    Attributes:
        switches: from one thread's stack to another's.
        polls: evaluations of a predicate that a thread spins on.
        bytes_read, bytes_written: of global memory, through load and observe, store and publish.
    """

    switches: int
    polls: int
    blocks: int
    block_barriers: int
    grid_barriers: int
    bytes_read: int
    bytes_written: int
    atomic_operations: int


_ffi: Any = cffi.FFI()
_ffi.cdef("""
typedef struct {
  const char* name;
  char* begin;
  uint64_t bytes;
  char* mapping;
  uint64_t mapping_bytes;
  unsigned earlier_launches;
} Buffer;
typedef struct {
  unsigned kernel, grid_blocks, block_threads, cluster_blocks, resident_blocks, shared_bytes, stack_bytes;
  unsigned cooperative, weak_stores, shuffled_dispatch;
  uint64_t seed;
  double time_limit_s;
  void** parameters;
  const Buffer* buffers;
  uint64_t buffer_count;
  char* workspace;
  uint64_t workspace_bytes;
} LaunchRequest;
typedef struct {
  uint64_t switches, polls, blocks, block_barriers, grid_barriers;
  uint64_t bytes_read, bytes_written, atomic_operations;
} LaunchStatistics;
typedef struct {
  const char* what;
  const char* file;
  int line;
  unsigned threads, blocks, first_block, last_block;
} Wait;
typedef struct {
  const char* detector;
  const char* file;
  int line, from_signal;
  int64_t block, thread;
  uint64_t code_offset;
  unsigned blocks_finished, blocks_resident, blocks_never_started, wait_count;
  Wait waits[16];
  char message[1024];
} Finding;
unsigned emulator_parameter_count(unsigned kernel);
unsigned emulator_parameter_bytes(unsigned kernel, unsigned position);
uint64_t emulator_workspace_bytes(const LaunchRequest*);
int emulator_launch(const LaunchRequest*, LaunchStatistics*, Finding*);
""")
EARLIER_READS, EARLIER_WRITES = 1, 2  # as in cuda/emulator/state.hpp
_LAUNCH_FAILED, _WORKSPACE_REFUSED = 1, 2

NO_EARLIER_LAUNCHES: Mapping[int, int] = MappingProxyType({})

# The signal handlers and the workspace belong to the process, and during a call other Python threads run.
_launch_lock = threading.Lock()


class _Workspace:
    """Stacks and shared memory of the running launch; kept, because fresh pages cost more than the launch."""

    def __init__(self) -> None:
        self.address = 0
        self.nbytes = 0

    def ensure(self, nbytes: int) -> None:
        if nbytes <= self.nbytes:
            return
        self.release()
        rounded = -(-nbytes // PAGE_BYTES) * PAGE_BYTES
        self.address = map_memory(rounded, accessible=True)
        self.nbytes = rounded

    def release(self) -> None:
        if self.nbytes:
            unmap_memory(self.address, self.nbytes)
        self.address = self.nbytes = 0


_workspace = _Workspace()


def release_workspace() -> None:
    """Gives the memory that launches share back to the system; the next launch takes it anew."""
    with _launch_lock:
        _workspace.release()


class Library:
    """The kernels of one shared object, with the memory they may touch."""

    def __init__(self, shared_object: SharedObject, memory: GuardedMemory) -> None:
        self.shared_object = shared_object
        self._memory = memory
        self._library: Any = _ffi.dlopen(str(shared_object.path))

    @property
    def kernels(self) -> tuple[str, ...]:
        return self.shared_object.name_expressions

    def parameter_sizes(self, kernel: str) -> tuple[int, ...]:
        """Bytes of each parameter of a kernel, as it was compiled."""
        number = self.kernels.index(kernel)
        count = self._library.emulator_parameter_count(number)
        return tuple(int(self._library.emulator_parameter_bytes(number, i)) for i in range(count))

    def launch(
        self,
        kernel: str,
        *,
        grid: int,
        block: int,
        parameters_address: int,
        shared_bytes: int = 0,
        resident_blocks: int | None = None,
        cooperative: bool = False,
        cluster: int = 1,
        seed: int = 0,
        weak_stores: bool = False,
        shuffled_dispatch: bool = False,
        earlier_launches: Mapping[int, int] = NO_EARLIER_LAUNCHES,
        time_limit_s: float = 60.0,
        stack_bytes: int = STACK_BYTES,
    ) -> LaunchStats:
        """Runs a kernel to its end.

        Args:
            kernel: one of ``kernels``.
            parameters_address: of an array of pointers to the arguments, as cuLaunchKernel takes it.
            resident_blocks: so many blocks are on the device at once (whole clusters); None: all of the grid.
            seed: 0 runs depth first; every other seed is another interleaving. Each repeats exactly.
            weak_stores: other blocks see published values only after a release.
            shuffled_dispatch: blocks start in an order drawn from the seed, as CUDA promises none.
            earlier_launches: for buffers by address, what launches do with them that may still run:
                ``EARLIER_READS``, ``EARLIER_WRITES``. A thread may not interfere before it has waited.
            time_limit_s: of processor time; 0: none.

        Raises:
            UsageError: no such launch is possible on any device.
            EmulatedFault: a detector fired.
        """
        resident = grid if resident_blocks is None else min(resident_blocks, grid)
        resident -= resident % max(cluster, 1)
        if kernel not in self.kernels:
            raise UsageError(f"{self.shared_object.source.name} was built without {kernel}")
        if not (grid > 0 and 0 < block <= MAX_BLOCK_THREADS and cluster > 0 and grid % cluster == 0):
            raise UsageError(f"{kernel}: no {grid} blocks of {block} threads in clusters of {cluster}")
        if resident <= 0:
            raise UsageError(f"{kernel}: room for {resident_blocks} blocks holds no cluster of {cluster}")
        buffers, keep_alive = self._buffer_table(earlier_launches)
        request = _ffi.new(
            "LaunchRequest*",
            {
                "kernel": self.kernels.index(kernel),
                "grid_blocks": grid,
                "block_threads": block,
                "cluster_blocks": cluster,
                "resident_blocks": resident,
                "shared_bytes": shared_bytes,
                "stack_bytes": -(-stack_bytes // 16) * 16,
                "cooperative": cooperative,
                "weak_stores": weak_stores,
                "shuffled_dispatch": shuffled_dispatch,
                "seed": seed,
                "time_limit_s": time_limit_s,
                "parameters": _ffi.cast("void**", parameters_address),
                "buffers": buffers,
                "buffer_count": len(keep_alive),
            },
        )
        statistics, finding = _ffi.new("LaunchStatistics*"), _ffi.new("Finding*")
        with _launch_lock:
            _workspace.ensure(self._library.emulator_workspace_bytes(request))
            request.workspace = _ffi.cast("char*", _workspace.address)
            request.workspace_bytes = _workspace.nbytes
            outcome = self._library.emulator_launch(request, statistics, finding)
        if outcome == _WORKSPACE_REFUSED:
            raise MemoryError(f"{kernel}: the system refuses the mappings of {resident} resident blocks")
        if outcome == _LAUNCH_FAILED:
            raise EmulatedFault(self._finding(kernel, seed, finding))
        return LaunchStats(*(int(getattr(statistics, name)) for name in LaunchStats.__dataclass_fields__))

    def close(self) -> None:
        if self._library is not None:
            _ffi.dlclose(self._library)
            self._library = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _buffer_table(self, earlier_launches: Mapping[int, int]) -> tuple[Any, list[Any]]:
        buffers = self._memory.buffers
        names = [_ffi.new("char[]", buffer.name.encode()) for buffer in buffers]
        table = _ffi.new("Buffer[]", len(buffers))
        for row, name, buffer in zip(table, names, buffers, strict=True):
            row.name = name
            row.begin = _ffi.cast("char*", buffer.address)
            row.bytes = buffer.nbytes
            row.mapping = _ffi.cast("char*", buffer.mapping_address)
            row.mapping_bytes = buffer.mapping_nbytes
            row.earlier_launches = earlier_launches.get(buffer.address, 0)
        return table, names

    def _finding(self, kernel: str, seed: int, raw: Any) -> Finding:
        file, line = _text(raw.file), int(raw.line) or None
        approximate = bool(raw.from_signal)
        if raw.code_offset:
            exact = _kernel_line(self.shared_object.path, int(raw.code_offset))
            if exact:
                (file, line), approximate = exact, False
        return Finding(
            detector=_text(raw.detector) or "",
            message=_text(raw.message) or "",
            kernel=kernel,
            seed=seed,
            block=_optional(raw.block),
            thread=_optional(raw.thread),
            file=file,
            line=line,
            approximate=approximate,
            blocks_finished=int(raw.blocks_finished),
            blocks_resident=int(raw.blocks_resident),
            blocks_never_started=int(raw.blocks_never_started),
            waits=tuple(_wait(raw.waits[i]) for i in range(raw.wait_count)),
        )


def _kernel_line(shared_object: Path, code_offset: int) -> tuple[str, int] | None:
    """The innermost line of the kernel's own source at a machine instruction, where addr2line can tell."""
    program = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if not program:
        return None
    command = [program, "--inlines", "--exe", str(shared_object), hex(code_offset)]
    found = subprocess.run(command, capture_output=True, text=True)
    for frame in found.stdout.splitlines():
        path, _, rest = frame.rpartition(":")
        file, number = PurePath(path), rest.split()[0] if rest else ""
        ours = not file.is_absolute() and file.parts[:1] not in ((), ("emulator",), ("primitives.cuh",))
        if ours and number.isdigit():
            return str(file), int(number)
    return None


def _wait(raw: Any) -> Wait:
    return Wait(
        _text(raw.what) or "",
        _text(raw.file),
        int(raw.line) or None,
        int(raw.threads),
        int(raw.blocks),
        int(raw.first_block),
        int(raw.last_block),
    )


def _text(pointer: Any) -> str | None:
    return None if pointer == _ffi.NULL else _ffi.string(pointer).decode(errors="replace")


def _optional(index: int) -> int | None:
    return None if index < 0 else int(index)
