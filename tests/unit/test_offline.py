"""What is said of a GPU that is not there."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from megakernel.cli.main import run
from megakernel.device.choose import open_planner
from megakernel.device.limits import NAMED_GPUS, blocks_by_resource, limiting_resources, named_facts
from megakernel.device.offline import compiled_resources, offline_blocks_per_sm
from megakernel.device.sources import kernel_folder
from megakernel.errors import MissingError, PlanError, UsageError
from megakernel.record.facts import KernelResources

KERNEL = KernelResources("k", "_Z1k", 32, 0, 0, 0, 0)


@pytest.mark.parametrize("gpu", NAMED_GPUS)
def test_dynamic_shared_memory_up_to_the_limit(gpu: str) -> None:
    facts = named_facts(gpu)
    largest = facts.shared_bytes_per_block
    for nbytes in (0, 49_151, 49_152, 49_153, largest):
        assert offline_blocks_per_sm(facts, KERNEL, 32, nbytes) >= 1
    with pytest.raises(PlanError, match=f"at most {largest}"):
        offline_blocks_per_sm(facts, KERNEL, 32, largest + 1)
    with pytest.raises(PlanError, match=f"{largest + 1} bytes"):
        offline_blocks_per_sm(facts, replace(KERNEL, static_shared_bytes=1), 32, largest)


@pytest.mark.parametrize(
    ("gpu", "registers", "threads", "shared", "blocks", "limit"),
    [
        # An H200's own answers, from data/occupancy.json.
        ("h200", 40, 256, 96, 6, "registers"),
        ("h200", 32, 256, 32_864, 6, "shared memory"),
        ("h200", 16, 256, 0, 8, "threads"),
        ("h200", 14, 32, 0, 32, "blocks"),
        ("h200", 32, 1024, 65_920, 2, "threads and registers"),
        # Hand-computed from the limits of the architectures.
        ("l40s", 32, 512, 0, 3, "threads"),
        ("a100", 64, 512, 0, 2, "registers"),
        ("rtx4090", 255, 256, 0, 1, "registers"),
    ],
)
def test_occupancy_is_the_least_over_all_resources(
    gpu: str, registers: int, threads: int, shared: int, blocks: int, limit: str
) -> None:
    found = blocks_by_resource(named_facts(gpu), replace(KERNEL, registers=registers), threads, shared)
    assert min(found.values()) == blocks
    assert limiting_resources(found) == limit


def test_facts_can_be_overridden_for_a_named_gpu_alone() -> None:
    planner = open_planner("h100", sm_count=3, shared_bytes_per_sm=100_000, registers_per_sm=None)
    assert (planner.facts.sm_count, planner.facts.shared_bytes_per_sm) == (3, 100_000)
    assert planner.facts.registers_per_sm == named_facts("h100").registers_per_sm
    with pytest.raises(UsageError, match="by name alone"):
        open_planner("0", sm_count=3)
    with pytest.raises(UsageError, match="no device 'h300'"):
        open_planner("h300")


def test_occupancy_without_a_gpu_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["occupancy", "row_retained", "--rows", "64", "--device", "H100"]
    assert run([*arguments, "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["cap"] == record["blocks_per_sm"] * 132
    assert record["launches"] == {"64": 2}
    assert run([*arguments, "--explain"]) == 0
    text = capsys.readouterr().out
    assert "<- the limit" in text
    assert f"{record['blocks_per_sm']} blocks per SM x 132 SMs = {record['cap']} blocks at once" in text
    assert run([*arguments, "--sms", "1", "--explain"]) == 0
    assert "more than fit. Refused." in capsys.readouterr().out


def test_a_missing_source_is_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"nope\.cu: no such kernel source"):
        compiled_resources(tmp_path / "nope.cu", ("k",), "sm_90")


def test_recorded_resources_serve_where_nvrtc_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("copy<256, 1024, Shape::exact>",)
    compiled = compiled_resources(kernel_folder() / "floors.cu", names, "sm_90")
    monkeypatch.setitem(__import__("sys").modules, "megakernel.device.cubins", None)
    recorded = compiled_resources(kernel_folder() / "floors.cu", names, "sm_90")
    assert recorded[names[0]].symbol == compiled[names[0]].symbol
    other = tmp_path / "floors.cu"
    other.write_text("__global__ void empty() {}")
    with pytest.raises(MissingError, match="has changed since"):
        compiled_resources(other, names, "sm_90")
    with pytest.raises(MissingError, match="not among the recorded"):
        compiled_resources(kernel_folder() / "floors.cu", ("copy<96, 384, Shape::exact>",), "sm_90")
