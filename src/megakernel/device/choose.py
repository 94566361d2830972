"""Opens the device that a user names."""

from megakernel.device.face import Device
from megakernel.errors import UsageError


def open_device(name: str = "auto") -> Device:
    """The first GPU (``auto``), or a GPU by its index or UUID.

    Raises:
        MissingError: there is no driver or no GPU.
        UsageError: no device has that name.
    """
    from megakernel.device.gpu import Gpu, list_gpus

    gpus = list_gpus()
    if name == "auto":
        return Gpu(0)
    for ordinal, facts in enumerate(gpus):
        if name in (str(ordinal), facts.uuid):
            return Gpu(ordinal)
    known = ", ".join(f"{ordinal} ({facts.name}, {facts.uuid})" for ordinal, facts in enumerate(gpus))
    raise UsageError(f"no device {name!r}: choose from {known}")
