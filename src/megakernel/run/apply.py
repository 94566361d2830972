"""The operator on numpy arrays, for those who want its result and not its time."""

import numpy as np
from numpy.typing import NDArray

from megakernel.device.choose import open_device
from megakernel.device.face import Device
from megakernel.errors import UsageError, VerdictError
from megakernel.operator.contract import DEFAULT_EPS, Problem
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.variants.catalogue import find

Float32 = NDArray[np.float32]


def rms_softmax(
    x: Float32,
    *,
    variant: str = "row_retained",
    eps: float = DEFAULT_EPS,
    device: Device | str = "auto",
    check: bool = False,
) -> Float32:
    """``softmax(x / sqrt(mean(x * x) + eps))`` for each row, computed by one of the implementations.

    Args:
        x: float32 of shape ``(rows, width)``; ``rows`` may be 0.
        variant: which implementation, as for ``mk``.
        device: where, as for ``mk``, or a device that is open.
        check: raise where a row of ``x`` lies outside the operator's contract, instead of returning NaN for it.

    Returns:
        float32 of the shape of ``x``.

    Raises:
        UsageError: ``x`` is not such an array, or the variant does not compute the operator.
        VerdictError: with ``check``, a row is not finite or its sum of squares overflows.
        MegakernelError: see ``prepare``.
    """
    x = np.asarray(x)
    if x.ndim != 2 or x.dtype != np.float32:
        raise UsageError(f"x is {x.dtype} of shape {x.shape}: give float32 of shape (rows, width)")
    chosen = find(variant)
    if chosen.computes != "softmax":
        raise UsageError(f"{variant} does not compute the operator")
    if x.shape[0] == 0:
        return np.empty(x.shape, np.float32)
    if isinstance(device, str):
        with open_device(device) as opened:
            return rms_softmax(x, variant=variant, eps=eps, device=opened, check=check)
    problem = Problem(x.shape[0], x.shape[1], eps)
    with (
        KernelStore(device) as store,
        Operands(device, problem) as operands,
        prepare(device, store, chosen, operands) as prepared,
        prepared.executable("direct") as executable,
    ):
        operands.x.write(x)
        executable.run()
        y = np.asarray(operands.y.read(np.float32, x.shape), np.float32)
    if check and (broken := np.isnan(y).any(axis=1)).any():
        row = int(np.argmax(broken))
        raise VerdictError(
            f"row {row} of x is outside the contract: it holds NaN or infinity, or its sum of squares overflows "
            f"({int(broken.sum())} of {x.shape[0]} rows)"
        )
    return y
