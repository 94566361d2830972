"""Packs a launch's arguments into memory, as ``cuLaunchKernel`` and a kernel node take them.

The driver wants an array of addresses, each of one argument's bytes. Both live in numpy arrays that the
``PackedArguments`` keeps alive: whoever launches must keep the object.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from megakernel.errors import PlanError
from megakernel.record.plan import Launch, Pointer, Value


def address_of(array: NDArray[np.generic]) -> int:
    """Where the array's data lies in host memory."""
    address: int = array.__array_interface__["data"][0]
    return address


class _HostMemory:
    def __init__(self, address: int, typestr: str, count: int) -> None:
        self.__array_interface__ = {
            "data": (address, True),
            "typestr": typestr,
            "shape": (count,),
            "version": 3,
        }


def host_bits(address: int, nbytes: int) -> int:
    """The bytes of host memory at ``address`` as one unsigned integer."""
    view = np.asarray(_HostMemory(address, "|u1", nbytes))
    return int.from_bytes(view.tobytes(), "little")


def _scalar(argument: Value) -> np.generic:
    if argument.dtype == "float32":
        return np.float32(argument.value)
    value = int(argument.value)
    if argument.dtype == "divisor":
        return np.uint64(value | (2**32 - 1) // value << 32)
    return np.uint32(value)


class PackedArguments:
    """The arguments of one launch, by position.

    Attributes:
        sizes: bytes of each argument, as the declaration types it.
        pointers_address: what ``kernelParams`` is given.
    """

    def __init__(self, launch: Launch, addresses: Mapping[str, int]) -> None:
        values: list[np.generic] = []
        for argument in launch.arguments:
            if isinstance(argument, Pointer):
                values.append(np.uint64(addresses[argument.quantity] + argument.offset_bytes))
            else:
                values.append(_scalar(argument))
        self.sizes = tuple(value.nbytes for value in values)
        self._bytes = np.zeros(8 * max(1, len(values)), np.uint8)
        for position, value in enumerate(values):
            raw = np.frombuffer(value.tobytes(), np.uint8)
            self._bytes[8 * position : 8 * position + raw.size] = raw
        start = address_of(self._bytes)
        self._pointers = np.array([start + 8 * i for i in range(len(values))] or [0], np.uint64)
        self.pointers_address = address_of(self._pointers)

    def require(self, sizes: tuple[int, ...], kernel: str) -> None:
        """Holds the declared types against the compiled kernel's.

        Raises:
            PlanError: the kernel takes other parameters.
        """
        if self.sizes != sizes:
            raise PlanError(
                f"{kernel} takes {len(sizes)} parameters of {list(sizes)} bytes, "
                f"but its declaration gives {len(self.sizes)} of {list(self.sizes)}"
            )

    @property
    def bits(self) -> tuple[int, ...]:
        """The raw bits of each argument."""
        start = address_of(self._bytes)
        return tuple(host_bits(start + 8 * i, size) for i, size in enumerate(self.sizes))
