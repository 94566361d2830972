"""Global memory for emulated kernels: each buffer ends where an inaccessible page begins."""

import functools
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import cffi
import numpy as np
from numpy.typing import NDArray

# A multiple of every page size in use.
PAGE_BYTES = 65536
GUARD_BYTES = PAGE_BYTES
# A buffer begins at a multiple of this and so ends up to 15 bytes before its guard page. After each launch
# the emulator checks that those bytes, and MARGIN_BYTES before the buffer, still hold the poison.
ALIGNMENT = 16
MARGIN_BYTES = 256
POISON = 0xFF

_PROTECTION_NONE, _PROTECTION_READ_WRITE = 0, 3
_MAP_PRIVATE_ANONYMOUS_NORESERVE = 0x02 | 0x20 | 0x4000
_ADVICE_NO_HUGE_PAGES = 15

_ffi: Any = cffi.FFI()
_ffi.cdef("""
void* mmap(void* address, size_t bytes, int protection, int flags, int file, long offset);
int mprotect(void* address, size_t bytes, int protection);
int madvise(void* address, size_t bytes, int advice);
int munmap(void* address, size_t bytes);
""")


@functools.cache
def _libc() -> Any:
    return _ffi.dlopen(None)


def map_memory(nbytes: int, *, accessible: bool) -> int:
    """The address of fresh zeroed pages. They take no room until they are written.

    Raises:
        MemoryError: the system has no such room.
    """
    protection = _PROTECTION_READ_WRITE if accessible else _PROTECTION_NONE
    mapped = _libc().mmap(_ffi.NULL, nbytes, protection, _MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0)
    address = int(_ffi.cast("intptr_t", mapped))
    if address == -1:
        raise MemoryError(f"the system refuses to map {nbytes} bytes")
    # Huge pages would make the stacks of an emulated grid resident as a whole: four times the memory.
    _libc().madvise(mapped, nbytes, _ADVICE_NO_HUGE_PAGES)
    return address


def unmap_memory(address: int, nbytes: int) -> None:
    _libc().munmap(_ffi.cast("void*", address), nbytes)


@dataclass(frozen=True)
class GuardedBuffer:
    """Global memory of emulated kernels. ``bytes`` is a view, not to be used after the buffer was freed."""

    name: str
    address: int
    nbytes: int
    bytes: NDArray[np.uint8] = field(repr=False, compare=False)
    mapping_address: int
    mapping_nbytes: int


class GuardedMemory:
    """Allocates buffers between guard pages. Every ``Library`` of a process can use them."""

    def __init__(self) -> None:
        self._buffers: dict[int, GuardedBuffer] = {}

    @property
    def buffers(self) -> tuple[GuardedBuffer, ...]:
        return tuple(self._buffers.values())

    def allocate(self, nbytes: int, name: str) -> GuardedBuffer:
        """A poisoned buffer that findings call ``name``.

        Raises:
            ValueError: nbytes is negative.
            MemoryError: the system has no such room.
        """
        if nbytes < 0:
            raise ValueError(f"a buffer of {nbytes} bytes")
        body_nbytes = -(-max(nbytes, 1) // PAGE_BYTES) * PAGE_BYTES
        if body_nbytes - nbytes < MARGIN_BYTES + ALIGNMENT:
            body_nbytes += PAGE_BYTES  # room for the checked bytes before the buffer
        mapping_nbytes = GUARD_BYTES + body_nbytes + GUARD_BYTES
        mapping = map_memory(mapping_nbytes, accessible=False)
        body = mapping + GUARD_BYTES
        if _libc().mprotect(_ffi.cast("void*", body), body_nbytes, _PROTECTION_READ_WRITE):
            unmap_memory(mapping, mapping_nbytes)
            raise MemoryError("the system refuses so many mappings")
        _view(body, body_nbytes)[:] = POISON
        address = body + body_nbytes - -(-nbytes // ALIGNMENT) * ALIGNMENT
        buffer = GuardedBuffer(name, address, nbytes, _view(address, nbytes), mapping, mapping_nbytes)
        self._buffers[address] = buffer
        return buffer

    def free(self, buffer: GuardedBuffer) -> None:
        del self._buffers[buffer.address]
        unmap_memory(buffer.mapping_address, buffer.mapping_nbytes)

    def close(self) -> None:
        for buffer in self.buffers:
            self.free(buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _view(address: int, nbytes: int) -> NDArray[np.uint8]:
    memory = _ffi.buffer(_ffi.cast("char*", address), nbytes)
    return np.frombuffer(memory, np.uint8)
