"""Clocks, throttle reasons, temperature and power of a GPU, from NVML. Nothing here ever stops a run."""

from collections.abc import Callable

try:
    from cuda.bindings import nvml
except ImportError:  # cuda-bindings before 12.9.10
    nvml = None

from megakernel.record.facts import DeviceState

# NVML's own numbers: the names of the enumerations differ between releases of the bindings.
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0


class Telemetry:
    """Reads one GPU, found by its UUID: NVML's own numbering ignores CUDA_VISIBLE_DEVICES."""

    def __init__(self, uuid: str) -> None:
        self._handle: int | None = None
        self.unavailable = ""  # why, where NVML or the GPU cannot be reached
        if nvml is None:
            self.unavailable = "this release of cuda-bindings has no NVML"
            return
        try:
            nvml.init_v2()
            self._handle = _handle(uuid)
        except Exception as error:  # an older library may lack the function, or the bindings fail in ways of their own
            self.unavailable = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"

    def read(self) -> DeviceState:
        handle = self._handle
        if handle is None:
            return DeviceState()
        return DeviceState(
            sm_clock_mhz=_optional(lambda: nvml.device_get_clock_info(handle, _CLOCK_SM)),
            memory_clock_mhz=_optional(lambda: nvml.device_get_clock_info(handle, _CLOCK_MEMORY)),
            temperature_c=_optional(lambda: nvml.device_get_temperature_v(handle, _TEMPERATURE_GPU)),
            power_mw=_optional(lambda: nvml.device_get_power_usage(handle)),
            throttle_reasons=_optional(lambda: nvml.device_get_current_clocks_event_reasons(handle)),
        )


def _optional(read: Callable[[], int]) -> int | None:
    """What ``read`` gives, or None where this GPU does not support it or this user may not see it."""
    try:
        return int(read())
    except Exception:
        return None


def _handle(uuid: str) -> int:
    """CUDA gives a slice of a GPU (MIG) a UUID like any other; NVML wants its kind in front."""
    try:
        return int(nvml.device_get_handle_by_uuid(uuid))
    except Exception:
        if not uuid.startswith("GPU-"):
            raise
        return int(nvml.device_get_handle_by_uuid("MIG-" + uuid.removeprefix("GPU-")))


def driver_release() -> str:
    """The driver's release, such as ``580.65.06``; empty where NVML cannot tell."""
    if nvml is None:
        return ""
    try:
        nvml.init_v2()
        return str(nvml.system_get_driver_version())
    except Exception:
        return ""
