"""The pilot on a fake device, whose times are made up: it finds the fastest, and tells how far it is ahead."""

import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from tests.unit.fakes import FakeDevice, FakeExecutable

from megakernel.errors import DeviceError, PlanError
from megakernel.operator.contract import Problem
from megakernel.record.plan import Plan
from megakernel.record.protocol import Protocol
from megakernel.run.pilot import Effort, Tuned, tune, tuned_variants, with_controls
from megakernel.run.prepare import KernelStore
from megakernel.variants.catalogue import CATALOGUE, CONTROLS
from megakernel.variants.declaration import Configuration
from megakernel.variants.frozen import Entry

PROTOCOL = Protocol(warmups=0, batch=2, evicted_singles=2, evicted_bytes=2**19, evicted_l2s=0)
EFFORT = Effort(screening=1, repeats=3, batches=2, protocol=PROTOCOL)
NAMES = ("local_recompute", "local1", "retained", "row_retained")


def tuned(device: FakeDevice, names: tuple[str, ...] = NAMES, effort: Effort = EFFORT) -> Tuned:
    with KernelStore(device) as store:
        return tune(device, store, [CATALOGUE[n] for n in names], Problem(2, 3000), "a test", effort)


def costs(fast: dict[str, Configuration], variants: dict[str, int]) -> Callable[[Plan], int]:
    return lambda plan: variants.get(plan.variant, 1000) * (1 if plan.configuration == fast.get(plan.variant) else 2)


def test_the_fastest_configuration_of_each_variant_and_variant_of_each_family_is_found() -> None:
    device = FakeDevice()
    fast = {name: CATALOGUE[name].configurations[position] for position, name in enumerate(NAMES, 2)}
    device.cost_ns = costs(fast, {"local1": 900, "row_retained": 1100})
    outcome = tuned(device)
    assert outcome.entry.configurations == fast
    assert (outcome.entry.local, outcome.entry.megakernel) == ("local1", "retained")
    assert (outcome.entry.device, outcome.entry.sm_count, outcome.entry.rows) == ("Fake GPU", 132, 2)
    assert outcome.failures == outcome.refused == ()
    figures = outcome.entry.figures["local1"]
    assert (figures["event_ns"], figures["runner_up_event_ns"]) == (900, 1800)
    assert (figures["won"], figures["repeats"], figures["candidates"]) == (
        3,
        3,
        len(CATALOGUE["local1"].configurations),
    )
    assert figures["evicted"] == str(fast["local1"])
    assert figures["evicted_event_ns"] == 900
    assert all(buffer.closed for buffer in device.buffers)
    assert all(module.closed for module in device.modules)


def test_a_wrong_configuration_is_never_timed_and_named() -> None:
    device = FakeDevice()
    wrong = CATALOGUE["retained"].configurations[1]
    seen: dict[Configuration, int] = {}
    device.cost_ns = lambda plan: 1 if plan.configuration == wrong else 1000

    def count(executable: FakeExecutable) -> None:
        if executable.plan.variant == "retained":
            configuration = executable.plan.configuration
            seen[configuration] = seen.get(configuration, 0) + 1
            spoilt["now"] = configuration == wrong

    spoilt = {"now": False}

    def spoil(variant: str, name: str, values: np.ndarray) -> None:
        if variant == "retained" and name == "y" and spoilt["now"]:
            values[0, 0] = 0

    device.before_submit, device.tamper = count, spoil
    outcome = tuned(device, ("local_recompute", "retained"))
    (failure,) = outcome.failures
    assert failure.startswith(f"retained {wrong}, 2 rows: y.")
    assert outcome.entry.configurations["retained"] != wrong
    assert outcome.entry.figures["retained"]["candidates"] == 7
    assert seen[wrong] == 2  # its upload and its verification
    assert min(n for c, n in seen.items() if c != wrong) > 2


def test_what_does_not_fit_is_left_out_with_its_reason() -> None:
    device = FakeDevice(blocks_per_sm=lambda name, threads, shared: 0 if "<1024" in name else 4)
    outcome = tuned(device)
    assert len(outcome.refused) == sum(c.threads == 1024 for name in NAMES for c in CATALOGUE[name].configurations) > 0
    assert all("not one block of" in line for line in outcome.refused)
    assert all(configuration.threads < 1024 for configuration in outcome.entry.configurations.values())


@pytest.mark.parametrize(("names", "family"), [(("retained",), "local"), (("local1",), "megakernel")])
def test_without_a_family_nothing_stands_for_the_shape(names: tuple[str, ...], family: str) -> None:
    with pytest.raises(PlanError, match=f"no variant of the family {family} is left at 2 x 3000"):
        tuned(FakeDevice(), names)


def test_halving_spends_least_on_what_is_slowest() -> None:
    device = FakeDevice()
    order = list(CATALOGUE["retained"].configurations)
    device.cost_ns = lambda plan: 1000 + (100 * order.index(plan.configuration) if plan.variant == "retained" else 0)
    counts: dict[Configuration, int] = {}

    def count(executable: FakeExecutable) -> None:
        if executable.plan.variant == "retained":
            counts[executable.plan.configuration] = counts.get(executable.plan.configuration, 0) + 1

    device.before_submit = count
    tuned(device, ("local1", "retained"))
    spent = [counts[configuration] for configuration in order]
    # Verified by two runs; a batch of two in the first stage, two more in the second; the rest in the final.
    assert spent[4:] == [2 + 2] * 4
    assert spent[2:4] == [2 + 2 + 4] * 2
    assert spent[0] == spent[1] > 8


def test_equals_share_the_repeats() -> None:
    """Two that are equally fast: neither is said to have won every time."""
    device = FakeDevice()
    noise = random.Random(4)
    device.cost_ns = lambda plan: 1000 + noise.randrange(100)
    outcome = tuned(device, effort=Effort(screening=1, repeats=20, batches=1, protocol=PROTOCOL))
    won = [figures["won"] for figures in outcome.entry.figures.values()]
    assert all(isinstance(n, int) and 3 <= n <= 17 for n in won), won


def test_the_evicted_winner_may_be_another() -> None:
    device = FakeDevice()
    swept = {"just": False}
    warm, cold = CATALOGUE["retained"].configurations[:2]

    def note(executable: FakeExecutable) -> None:
        swept["just"] = swept["next"]
        swept["next"] = executable.plan.variant == "sweep"

    swept["next"] = False
    device.before_submit = note
    device.cost_ns = lambda plan: (
        1000
        if plan.configuration == (cold if swept["just"] else warm)
        else 1100
        if plan.configuration == cold
        else 1200
    )
    figures = tuned(device, ("local1", "retained")).entry.figures["retained"]
    assert (figures["runner_up"], figures["evicted"]) == (str(cold), str(cold))
    assert figures["evicted_event_ns"] == 1000


def test_batches_are_interleaved_and_shuffled_by_the_seed() -> None:
    def order(seed: int) -> list[str]:
        device = FakeDevice()
        names: list[str] = []
        device.before_submit = lambda executable: names.append(
            f"{executable.plan.variant} {executable.plan.configuration}"
        )
        tuned(device, effort=Effort(screening=1, repeats=1, batches=1, seed=seed, protocol=PROTOCOL))
        return names

    first = order(1)
    assert first == order(1) != order(2)
    every = sum(len(CATALOGUE[name].configurations) for name in NAMES)
    screening = first[2 * every :][: 2 * every : 2]  # after two runs of each to verify it, a batch of two of each
    assert len(set(screening)) == every
    assert sum(a.split()[0] != b.split()[0] for a, b in pairwise(screening)) > every // 2


def test_a_lost_device_ends_the_pilot() -> None:
    device = FakeDevice()

    def fail(executable: FakeExecutable) -> None:
        if len(device.submissions) == 100:
            raise DeviceError("lost")

    device.before_submit = fail
    with pytest.raises(DeviceError, match="lost"):
        tuned(device)
    assert all(buffer.closed for buffer in device.buffers)


def test_floors_and_controls_are_not_tuned() -> None:
    chosen = {variant.name for variant in tuned_variants(CATALOGUE.values())}
    assert chosen == {name for name in CATALOGUE if name not in {"empty", "copy", *(c.name for c in CONTROLS)}}


def test_controls_share_one_configuration_at_all_row_counts() -> None:
    def entry(rows: int, chosen: Configuration) -> Entry:
        return Entry("GPU", 1, rows, 8, "a test", {"retained": chosen}, "local1", "retained")

    one, two = Configuration(256, 2048), Configuration(512, 8192)
    for entries in ([entry(1, one), entry(16, two), entry(64, one)], [entry(1, one), entry(12, two)]):
        found = with_controls(entries, CONTROLS)
        assert all(e.configurations[c.name] == two for e in found for c in CONTROLS)
        assert [e.configurations["retained"] for e in found] == [e.configurations["retained"] for e in entries]
    assert with_controls([], CONTROLS) == []
