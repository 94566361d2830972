"""What the catalogue declares of its kernels is what they do: bytes moved, order of stages, shared memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from megakernel.device.emulator import EmulatedExecutable, Emulator
from megakernel.device.emulator_library import LaunchStats, Library
from megakernel.device.face import Module
from megakernel.operator.checks import POISON
from megakernel.operator.contract import Problem
from megakernel.record.plan import Launch, Plan, Value
from megakernel.run.prepare import KernelStore, Operands, Prepared, prepare
from megakernel.run.verify import Inputs, run_and_check, verify
from megakernel.variants.catalogue import CATALOGUE, CONTROLS
from megakernel.variants.declaration import Configuration, Stage, Variant
from tests.emulated.checking import ALIGNED, EMULATED, EXACT, SMALL, UNALIGNED, StoreBySource, device_with_room_for
from tests.host_only import HostOnly


@contextmanager
def executable(
    device: Emulator,
    store: KernelStore,
    variant: Variant,
    problem: Problem,
    configuration: Configuration = SMALL,
    plan_filter: Callable[[Plan], Plan] | None = None,
) -> Iterator[tuple[Prepared, EmulatedExecutable, Inputs]]:
    inputs = Inputs.of("timing", problem)
    with Operands(device, problem) as operands:
        inputs.load(operands)
        with (
            prepare(device, store, variant, operands, configuration, plan_filter=plan_filter) as prepared,
            prepared.executable("direct") as launches,
        ):
            assert isinstance(launches, EmulatedExecutable)
            yield prepared, launches, inputs


def stats_by_stage(variant: Variant, stats: tuple[LaunchStats, ...]) -> list[tuple[Stage, tuple[LaunchStats, ...]]]:
    """Row groups follow one another, each with all stages."""
    count = len(variant.stages)
    return [(stage, stats[i::count]) for i, stage in enumerate(variant.stages)]


def assert_bytes_as_declared(device: Emulator, store: KernelStore, variant: Variant, problem: Problem) -> None:
    with executable(device, store, variant, problem) as (_, launches, _):
        launches.submit()
        for stage, stats in stats_by_stage(variant, launches.launch_stats):
            read, written = sum(s.bytes_read for s in stats), sum(s.bytes_written for s in stats)
            declared = stage.bytes_read(problem, SMALL), stage.bytes_written(problem, SMALL)
            assert (read, written) == declared, stage.kernel


@pytest.mark.parametrize("width", [EXACT, ALIGNED, UNALIGNED, 31, 50_257])
@pytest.mark.parametrize("variant", EMULATED.values(), ids=lambda variant: variant.name)
def test_bytes_moved(emulator: Emulator, store: KernelStore, variant: Variant, width: int) -> None:
    assert_bytes_as_declared(emulator, store, variant, Problem(2, width))


@pytest.mark.parametrize("variant", EMULATED.values(), ids=lambda variant: variant.name)
def test_bytes_moved_by_a_split(variant: Variant) -> None:
    with device_with_room_for(9) as device, StoreBySource(device) as store:
        assert_bytes_as_declared(device, store, variant, Problem(5, UNALIGNED))


@pytest.mark.parametrize("name", ["row_retained", "retained", *(control.name for control in CONTROLS)])
def test_barriers_met(emulator: Emulator, store: KernelStore, name: str) -> None:
    """Two barriers among all blocks, or two arrivals of every block at its row's."""
    with executable(emulator, store, CATALOGUE[name], Problem(3, UNALIGNED)) as (prepared, launches, _):
        launches.submit()
        (stats,), (launch,) = launches.launch_stats, prepared.plan.launches
    assert stats.grid_barriers == (0 if name == "row_retained" else 2)
    assert stats.atomic_operations == (2 * launch.grid if name == "row_retained" else 0)


# ---- The controls: one binary, and switches among its arguments


@pytest.mark.parametrize("width", [EXACT, ALIGNED, UNALIGNED])
def test_controls_differ_in_their_switches_alone(emulator: Emulator, store: KernelStore, width: int) -> None:
    problem = Problem(2, width)
    launches: dict[str, Launch] = {}
    stats: dict[str, LaunchStats] = {}
    for control in CONTROLS:
        with executable(emulator, store, control, problem) as (prepared, ready, _):
            ready.submit()
            (launches[control.name],), (stats[control.name],) = prepared.plan.launches, ready.launch_stats

    without = [replace(launch, arguments=launch.arguments[:-2], reads=(), writes=()) for launch in launches.values()]
    assert without == without[:1] * 4
    switches = {
        name: [(a.name, a.value) for a in launch.arguments[-2:] if isinstance(a, Value)]
        for name, launch in launches.items()
    }
    assert switches == {
        "control_retain": [("reload_input", 0), ("spill_exponentials", 0)],
        "control_reload": [("reload_input", 1), ("spill_exponentials", 0)],
        "control_spill": [("reload_input", 0), ("spill_exponentials", 1)],
        "control_both": [("reload_input", 1), ("spill_exponentials", 1)],
    }

    def beyond_retain(name: str) -> tuple[int, int]:
        first = stats["control_retain"]
        return stats[name].bytes_read - first.bytes_read, stats[name].bytes_written - first.bytes_written

    tensor = 4 * problem.elements
    assert [beyond_retain(name) for name in stats] == [(0, 0), (tensor, 0), (tensor, tensor), (2 * tensor, tensor)]
    with executable(emulator, store, CATALOGUE["retained"], problem) as (_, ready, _):
        ready.submit()
        (retained,) = ready.launch_stats
    in_common = ("bytes_read", "bytes_written", "blocks", "grid_barriers", "block_barriers")
    assert all(getattr(retained, field) == getattr(stats["control_retain"], field) for field in in_common)


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_what_a_kernel_leaves_alone_stays_as_it_was(emulator: Emulator, store: KernelStore, control: Variant) -> None:
    with executable(emulator, store, control, Problem(2, UNALIGNED)) as (prepared, launches, inputs):
        untouched = prepared.buffers["exponentials"]
        untouched.fill(POISON)
        launches.submit()
        words = untouched.read(np.uint32, (2 * UNALIGNED,))
        assert (words == POISON).all() == (control.name in ("control_retain", "control_reload"))
        assert (words != POISON).all() == (control.name in ("control_spill", "control_both"))
        x = prepared.buffers["x"].read(np.float32, (2, UNALIGNED))
        assert np.array_equal(x, inputs.reference.x)


# ---- Order


def test_stages_run_in_the_declared_order(
    emulator: Emulator, store: KernelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    launch = Library.launch

    def recorded(self: Library, kernel: str, **arguments: Any) -> LaunchStats:
        started.append(kernel.partition("<")[0])
        return launch(self, kernel, **arguments)

    monkeypatch.setattr(Library, "launch", recorded)
    unfused = CATALOGUE["unfused"]
    with executable(emulator, store, unfused, Problem(2, UNALIGNED)) as (_, launches, _):
        launches.submit()

    assert started == [stage.kernel.partition("<")[0] for stage in unfused.stages]
    assert started[0] == "squares"
    assert started[-1] == "normalise"
    assert len(started) == 9


@pytest.mark.parametrize("position", range(8))
def test_two_stages_exchanged_show(emulator: Emulator, store: KernelStore, position: int) -> None:
    """Unless neither needs the other: K2 and K3, K3 and K4, K4 and K5 (but not K1 and K2)."""

    def exchanged(plan: Plan) -> Plan:
        launches = list(plan.launches)
        launches[position : position + 2] = reversed(launches[position : position + 2])
        return replace(plan, launches=tuple(launches))

    shape = Problem(2, UNALIGNED)
    with executable(emulator, store, CATALOGUE["unfused"], shape, plan_filter=exchanged) as (
        prepared,
        launches,
        inputs,
    ):
        assert run_and_check(prepared, launches, inputs).passed == (position in (1, 2, 3))


# ---- Shared memory


class OneModuleForEach(KernelStore):
    """Builds each source once, with the kernels of all its configurations: far quicker than one by one."""

    def module(self, variant: Variant, problem: Problem, configuration: Configuration) -> Module:
        names = [name for chosen in variant.configurations for name in variant.kernel_names(problem, chosen)]
        key = (variant.source_path(self._folder), tuple(dict.fromkeys(names)))
        if key not in self._modules:
            self._modules[key] = self._device.build(*key)
        return self._modules[key]


def with_more_shared_memory(by: int) -> Callable[[Plan], Plan]:
    def changed(launch: Launch) -> Launch:
        return replace(launch, shared_bytes=launch.shared_bytes + by) if launch.shared_bytes else launch

    return lambda plan: replace(plan, launches=tuple(changed(launch) for launch in plan.launches))


@pytest.mark.parametrize("name", ["unfused", "local_recompute", "retained", "row_retained", "control_retain"])
def test_shared_structs_have_the_declared_size(name: str) -> None:
    """In every configuration of the catalogue, to the byte: the emulator refuses any other. Rows are a whole number
    of tiles, since packs of four floats ask most of a struct's alignment.
    """
    variant, problem = CATALOGUE[name], Problem(1, 16_384)
    with HostOnly() as device, OneModuleForEach(device) as store:
        for configuration in variant.configurations:
            with executable(device, store, variant, problem, configuration) as (_, launches, _):
                launches.submit()
            for by in (-4, 4):
                wrong = with_more_shared_memory(by)
                with executable(device, store, variant, problem, configuration, wrong) as subject:
                    (check,) = verify(*subject).failures
                assert check.name == "launch.shared_size", configuration


# ---- After a fault


@pytest.mark.parametrize("name", ["local_recompute", "row_retained"])
def test_fault_is_a_failed_check_and_the_device_stays_usable(emulator: Emulator, store: KernelStore, name: str) -> None:
    variant, problem, wrong = CATALOGUE[name], Problem(2, UNALIGNED), with_more_shared_memory(4)
    with executable(emulator, store, variant, problem, plan_filter=wrong) as subject:
        verification = verify(*subject)
        (check,) = verification.checks
        assert (check.name, verification.passed) == ("launch.shared_size", False)
        assert "shared memory, the launch gives" in check.detail
    with executable(emulator, store, variant, problem) as subject:
        assert verify(*subject).passed
