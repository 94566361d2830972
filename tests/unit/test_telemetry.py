"""NVML: of the right GPU, and never a reason to stop."""

from collections.abc import Callable

import pytest

from megakernel.device.telemetry import Telemetry, driver_release
from megakernel.record.facts import DeviceState

nvml = pytest.importorskip("cuda.bindings.nvml", reason="cuda-bindings before 12.9.10 has no NVML")


# As on a MIG slice, or without permission. Made by a call: the class to derive from is known at run time alone.
Refused: type[Exception] = type(
    "Refused",
    (nvml.NvmlError,),
    {"__init__": lambda self: None, "__str__": lambda self: "Insufficient Permissions"},
)


def refuse(*_: object) -> int:
    raise Refused


def answer(value: int) -> Callable[..., int]:
    return lambda *_: value


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An NVML that answers; the UUIDs it was asked for."""
    uuids: list[str] = []

    def handle(uuid: str) -> int:
        uuids.append(uuid)
        return 17

    monkeypatch.setattr(nvml, "init_v2", lambda: None)
    monkeypatch.setattr(nvml, "device_get_handle_by_uuid", handle)
    monkeypatch.setattr(nvml, "device_get_clock_info", lambda gpu, kind: {1: 1980, 2: 2619}[kind])
    monkeypatch.setattr(nvml, "device_get_temperature_v", answer(41))
    monkeypatch.setattr(nvml, "device_get_power_usage", answer(123_000))
    monkeypatch.setattr(nvml, "device_get_current_clocks_event_reasons", answer(4))
    return uuids


def test_a_gpu_is_found_by_its_uuid_not_by_its_number(asked: list[str]) -> None:
    # NVML numbers all GPUs, CUDA only those that CUDA_VISIBLE_DEVICES leaves.
    telemetry = Telemetry("GPU-1234")
    assert asked == ["GPU-1234"]
    state = telemetry.read()
    assert state == DeviceState(1980, 2619, 41, 123_000, 4)
    assert state.throttled
    assert telemetry.unavailable == ""


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("device_get_clock_info", "sm_clock_mhz"),
        ("device_get_temperature_v", "temperature_c"),
        ("device_get_power_usage", "power_mw"),
        ("device_get_current_clocks_event_reasons", "throttle_reasons"),
    ],
)
@pytest.mark.usefixtures("asked")
def test_what_is_refused_is_missing_and_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch, function: str, field: str
) -> None:
    monkeypatch.setattr(nvml, function, refuse)
    state = Telemetry("GPU-1234").read()
    assert getattr(state, field) is None
    assert sum(value is not None for value in (state.temperature_c, state.power_mw, state.throttle_reasons)) >= 2


@pytest.mark.parametrize("function", ["init_v2", "device_get_handle_by_uuid"])
@pytest.mark.usefixtures("asked")
def test_without_nvml_everything_is_missing_and_the_reason_is_kept(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setattr(nvml, function, refuse)
    telemetry = Telemetry("GPU-1234")
    assert telemetry.read() == DeviceState()
    assert telemetry.unavailable == "Refused: Insufficient Permissions"


def test_a_slice_of_a_gpu_is_found_by_the_name_that_nvml_gives_it(
    monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    found = nvml.device_get_handle_by_uuid

    def handle(uuid: str) -> int:
        number = int(found(uuid))
        if uuid.startswith("GPU-"):
            raise Refused
        return number

    monkeypatch.setattr(nvml, "device_get_handle_by_uuid", handle)
    telemetry = Telemetry("GPU-1234")
    assert asked == ["GPU-1234", "MIG-1234"]
    assert telemetry.unavailable == ""
    assert telemetry.read().sm_clock_mhz == 1980


@pytest.mark.usefixtures("asked")
def test_what_nvml_refuses_of_a_slice_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in ("device_get_temperature_v", "device_get_power_usage", "device_get_clock_info"):
        monkeypatch.setattr(nvml, function, refuse)
    assert Telemetry("GPU-1234").read() == DeviceState(None, None, None, None, 4)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("answer_of_another_kind", [AttributeError("no such symbol"), TypeError("3 arguments")])
def test_bindings_that_do_not_fit_the_library_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, answer_of_another_kind: Exception
) -> None:
    def fail(*_: object) -> int:
        raise answer_of_another_kind

    for function in ("device_get_temperature_v", "device_get_power_usage"):
        monkeypatch.setattr(nvml, function, fail)
    assert Telemetry("GPU-1234").read() == DeviceState(1980, 2619, None, None, 4)
    monkeypatch.setattr(nvml, "device_get_handle_by_uuid", fail)
    assert Telemetry("GPU-1234").read() == DeviceState()


@pytest.mark.parametrize("error", [Refused(), RuntimeError("no library\nat all")])
def test_without_a_driver_there_is_no_release(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(nvml, "init_v2", fail)
    assert driver_release() == ""
