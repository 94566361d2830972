"""Verification as the tests here use it: small configurations, and everything must pass."""

from collections.abc import Sequence
from dataclasses import replace

from megakernel.device.emulator import Emulator
from megakernel.device.face import Module
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS, Submission
from megakernel.run.prepare import KernelStore
from megakernel.run.verify import verify_all
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration, Variant

# Several tiles in a short row, several warps in a block.
SMALL = Configuration(128, 512)

# How a width meets tiles of SMALL.
EXACT, ALIGNED, UNALIGNED = 2048, 1540, 1541

# Longer rows: 128 and 129 tiles, about what the lanes of a warp read ahead.
MEDIUM = Configuration(256, 1024)

# What the emulator runs. A library's calls need a GPU: here the variant's own kernels run alone.
EMULATED = {name: replace(variant, stages=variant.kernel_stages) for name, variant in CATALOGUE.items()}
SOFTMAXES = tuple(name for name, variant in EMULATED.items() if variant.computes == "softmax")
MEGAKERNELS = ("retained", "row_retained", "control_both")


class StoreBySource(KernelStore):
    """Builds each source once, with the kernels of every variant that is in it: far quicker than one by one."""

    def module(self, variant: Variant, problem: Problem, configuration: Configuration) -> Module:
        same = [other for other in EMULATED.values() if other.source == variant.source] or [variant]
        names = dict.fromkeys(name for other in same for name in other.kernel_names(problem, configuration))
        key = (variant.source_path(self._folder), tuple(names))
        if key not in self._modules:
            self._modules[key] = self._device.build(*key)
        return self._modules[key]


def device_with_room_for(blocks: int, *, seed: int = 0) -> Emulator:
    """A GPU on which exactly so many blocks are resident at once: one on each SM."""
    device = Emulator(seed=seed)
    device.facts = replace(device.facts, name=f"GPU with room for {blocks} blocks", blocks_per_sm=1, sm_count=blocks)
    return device


def assert_verified(
    device: Emulator,
    store: KernelStore,
    variant: str,
    problem: Problem,
    *,
    fixtures: Sequence[str] = ("timing",),
    submissions: Sequence[Submission] = SUBMISSIONS,
    configuration: Configuration = SMALL,
) -> None:
    results = list(verify_all(device, store, [EMULATED[variant]], [problem], fixtures, submissions, configuration))
    assert len(results) == len(fixtures) * len(submissions)
    failures = [
        f"{result.submission}, {result.verification.fixture}: {check}"
        for result in results
        for check in result.verification.failures
    ]
    assert not failures
