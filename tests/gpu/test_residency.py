"""Caps come from the driver for the kernel that is launched, and what is beyond them ends in an error."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.planted import SOURCE

from megakernel.device.face import Device
from megakernel.device.limits import NAMED_GPUS, blocks_by_resource
from megakernel.errors import DeviceError, PlanError
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS, Plan, Submission
from megakernel.run.plan import residency
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.variants.catalogue import CATALOGUE, ROW_RETAINED
from megakernel.variants.declaration import Configuration, Scalar, SharedMemory, Stage, Variant, Y

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("variant", CATALOGUE.values(), ids=lambda v: v.name)
def test_the_formula_equals_the_driver(gpu: Device, store: KernelStore, variant: Variant) -> None:
    """Occupancy computed without a GPU is what the driver says, for every kernel and configuration."""
    for configuration in variant.configurations:
        for width in (131_072, 131_076, 131_073):
            problem = Problem(1, width)
            kernels = store.module(variant, problem, configuration).kernels
            for stage in variant.kernel_stages:
                kernel = kernels[stage.kernel_name(problem, configuration)]
                room = residency(gpu, kernel, stage, problem, configuration)
                computed = blocks_by_resource(gpu.facts, kernel.resources, room.threads, room.shared_bytes)
                assert min(computed.values()) == room.blocks_per_sm, (kernel.resources.name, computed)


def test_each_kernel_has_its_own_cap(gpu: Device, store: KernelStore) -> None:
    caps = set()
    for configuration in (Configuration(256, 4096), Configuration(1024, 16384)):
        problem = Problem(1)
        kernels = store.module(ROW_RETAINED, problem, configuration).kernels
        stage = ROW_RETAINED.stages[0]
        kernel = kernels[stage.kernel_name(problem, configuration)]
        room = residency(gpu, kernel, stage, problem, configuration)
        assert room.cap == gpu.blocks_per_sm(kernel, room.threads, room.shared_bytes) * gpu.facts.sm_count
        caps.add(room.cap)
    assert len(caps) == 2


@pytest.mark.parametrize("submission", SUBMISSIONS)
@pytest.mark.parametrize("name", ["retained", "row_retained"])
def test_one_block_over_the_cap_is_an_error(gpu: Device, store: KernelStore, name: str, submission: Submission) -> None:
    def over(plan: Plan) -> Plan:
        return replace(plan, launches=(replace(plan.launches[0], grid=plan.residencies[0].cap + 1),))

    def run() -> None:
        with (
            Operands(gpu, Problem(64)) as operands,
            prepare(gpu, store, CATALOGUE[name], operands, plan_filter=over) as prepared,
            prepared.executable(submission) as executable,
        ):
            executable.run()

    with pytest.raises(DeviceError, match="COOPERATIVE_LAUNCH_TOO_LARGE"):
        run()


def _fill_shared(nbytes: int) -> Variant:
    scalar = Scalar("shared_bytes", "uint32", nbytes)
    shared = SharedMemory(bytes_per_warp=nbytes, alignment=1)
    stage = Stage("fill_shared", grid="one", writes=(Y.tile,), scalars=(scalar,), threads=32, shared=shared)
    return Variant(f"fill_shared_{nbytes}", SOURCE, (stage,), (Configuration(32, 128),), computes="nothing")


def test_dynamic_shared_memory_up_to_the_limit(gpu: Device, store: KernelStore) -> None:
    """Around 48 KiB nothing special happens, up to the opt-in maximum; beyond, the limit is named."""
    largest = gpu.facts.shared_bytes_per_block
    for nbytes in (49_151, 49_152, 49_153, largest):
        with (
            Operands(gpu, Problem(1, 128)) as operands,
            prepare(gpu, store, _fill_shared(nbytes), operands) as prepared,
            prepared.executable("direct") as executable,
        ):
            executable.run()
    with Operands(gpu, Problem(1, 128)) as operands, pytest.raises(PlanError, match=f"at most {largest}"):
        prepare(gpu, store, _fill_shared(largest + 1), operands)


def test_the_committed_table_equals_the_driver(gpu: Device, store: KernelStore) -> None:
    """The table made on a machine without a GPU, where it has this one."""
    table = json.loads((Path(__file__).parents[2] / "data" / "occupancy.json").read_text())
    known = {named.name: key for key, named in NAMED_GPUS.items()}
    if gpu.facts.name not in known:
        pytest.skip(f"the table has no {gpu.facts.name}")
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table[known[gpu.facts.name]]]
    assert len(rows) > 100
    wrong = []
    for row in rows:
        variant = CATALOGUE[row["variant"]]
        problem = Problem(1, row["width"])
        configuration = next(c for c in variant.configurations if c.tile == row["tile"] and _uses(variant, c, row))
        kernel = store.module(variant, problem, configuration).kernels[row["kernel"]]
        answer = gpu.blocks_per_sm(kernel, row["threads"], row["dynamic_shared_bytes"])
        if answer != row["blocks_per_sm"]:
            wrong.append((row, answer, kernel.resources.registers))
    assert not wrong


def _uses(variant: Variant, configuration: Configuration, row: dict[str, Any]) -> bool:
    problem = Problem(1, row["width"])
    return row["kernel"] in variant.kernel_names(problem, configuration)
