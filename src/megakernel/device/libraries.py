"""The libraries that a stage may call, and which of their functions."""

from collections.abc import Callable, Mapping
from typing import Protocol

from megakernel.device import cudnn
from megakernel.errors import PlanError
from megakernel.record.plan import Launch, Pointer


class LibraryCall(Protocol):
    """A bound call that queues work into one stream; it raises what goes wrong, and returns a status like the driver's
    calls do.
    """

    def __call__(self) -> tuple[int]: ...

    def close(self) -> None: ...


# Of each library: how to make sure that it is there (its version comes back), and its functions.
# A function takes the addresses of what it reads and writes, rows, width and the stream.
_Function = Callable[[int, int, int, int, int], LibraryCall]
_LIBRARIES: Mapping[str, tuple[Callable[[], str], Mapping[str, _Function]]] = {
    "cudnn": (cudnn.version, {"cudnnSoftmaxForward": cudnn.RowSoftmax}),
}


def require_library(library: str) -> str:
    """Loads a library and returns its version.

    Raises:
        PlanError: it is not known, not installed, or cannot be loaded.
    """
    if library not in _LIBRARIES:
        raise PlanError(f"no library is called {library!r}; there is {', '.join(_LIBRARIES)}")
    return _LIBRARIES[library][0]()


def library_call(launch: Launch, width: int, addresses: Mapping[str, int], stream: int) -> LibraryCall:
    """Binds a launch of a library to its memory and stream.

    Raises:
        PlanError: the library has no such function here, or the function refuses the shape.
    """
    require_library(launch.library)
    functions = _LIBRARIES[launch.library][1]
    if launch.kernel not in functions:
        raise PlanError(f"{launch.library} has no function {launch.kernel!r} here; there is {', '.join(functions)}")
    source, target = (
        addresses[pointer.quantity] + pointer.offset_bytes
        for pointer in launch.arguments
        if isinstance(pointer, Pointer)
    )
    return functions[launch.kernel](source, target, launch.rows, width, stream)
