"""Opens the device that a user names."""

from dataclasses import replace
from typing import Any

from megakernel.device.face import Device, Planner
from megakernel.device.limits import DEFAULT_GPU, NAMED_GPUS, named_facts
from megakernel.device.offline import OfflineGpu
from megakernel.errors import MissingError, UsageError


def open_device(name: str = "auto", *, sms: int | None = None, seed: int = 0, weak_stores: bool = False) -> Device:
    """A GPU by index or UUID, ``emulator`` or ``emulator:NAME``, or ``auto``: the first GPU, else the emulator.

    Args:
        sms, seed, weak_stores: of the emulator alone.

    Raises:
        MissingError: there is no driver, GPU or C++ compiler where one is needed.
        UsageError: no device has that name, or a GPU was given what only the emulator takes.
    """
    kind, _, gpu = name.partition(":")
    if kind == "emulator":
        return _emulator(gpu, sms, seed, weak_stores)
    for_emulator = sms is not None or seed != 0 or weak_stores
    if name == "auto" and for_emulator:
        return _emulator("", sms, seed, weak_stores)
    if for_emulator:
        raise UsageError(f"SMs, seeds and weak stores can be chosen for the emulator alone, not for device {name!r}")
    if not (name == "auto" or name.isdecimal() or name.startswith(("GPU-", "MIG-"))):
        hint = f"; to emulate that GPU, emulator:{name.lower()}" if name.lower() in NAMED_GPUS else ""
        raise UsageError(f"no device {name!r}: give auto, a GPU's index or UUID, emulator or emulator:GPU{hint}")
    try:
        return _gpu(name)
    except MissingError:
        if name != "auto":
            raise
    return _emulator("", sms, seed, weak_stores)


def open_planner(name: str = "auto", **overrides: int | None) -> Planner:
    """A device as for ``open_device``, or by name (``h100``) a GPU that is not there, to plan for.

    Without a GPU ``auto`` plans for the emulator's default GPU.

    Args:
        overrides: facts of a GPU that is not there to be taken instead of its own, where not None.

    Raises:
        UsageError: no device has that name, or facts of a real GPU were to be overridden.
    """
    name = name.lower() if name.lower() in NAMED_GPUS else name
    given: dict[str, Any] = {fact: value for fact, value in overrides.items() if value is not None}
    if name not in NAMED_GPUS and (name != "auto" or given):
        if given:
            raise UsageError(f"an SM can be changed for a GPU by name alone: --device {' or '.join(NAMED_GPUS)}")
        return open_device(name)
    if name == "auto":
        try:
            return _gpu(name)
        except MissingError:
            name = DEFAULT_GPU
    return OfflineGpu(replace(named_facts(name), **given))


def _emulator(gpu: str, sms: int | None, seed: int, weak_stores: bool) -> Device:
    try:
        from megakernel.device.emulator import Emulator
    except ImportError as error:
        raise MissingError(f"the emulator needs the package cffi: install megakernel[emulator] ({error})") from error
    return Emulator(gpu or DEFAULT_GPU, sms=sms, seed=seed, weak_stores=weak_stores)


def _gpu(name: str) -> Device:
    try:
        from megakernel.device.gpu import Gpu, list_gpus

        gpus = list_gpus()
    except (ImportError, MissingError) as error:
        raise MissingError(f"{str(error).rstrip('.')}; without one, use --device emulator") from error
    if name == "auto":
        return Gpu(0)
    for ordinal, facts in enumerate(gpus):
        if name in (str(ordinal), facts.uuid):
            return Gpu(ordinal)
    known = ", ".join(f"{ordinal} ({facts.name}, {facts.uuid})" for ordinal, facts in enumerate(gpus))
    raise UsageError(f"no device {name!r}: choose from {known}, or emulator")
