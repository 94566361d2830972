"""Bindings before 12.9.10 have no NVML: clocks are missing then, and nothing fails."""

import pytest

from megakernel.device import telemetry
from megakernel.record.facts import DeviceState


def test_without_nvml_everything_is_missing_and_the_reason_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "nvml", None)
    reader = telemetry.Telemetry("GPU-1")
    assert reader.read() == DeviceState()
    assert "no NVML" in reader.unavailable
    assert telemetry.driver_release() == ""
