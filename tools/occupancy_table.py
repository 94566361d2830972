"""Computes the occupancy of every shipped kernel and configuration on every named GPU, with no GPU.

    python tools/occupancy_table.py data/occupancy.json

A GPU test holds the rows of its own GPU against what the driver says, for machine code of the same NVRTC. Run again
when kernels change.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from megakernel.device.cubins import cubin_for
from megakernel.device.limits import NAMED_GPUS, named_facts
from megakernel.device.nvrtc import nvrtc_version
from megakernel.device.offline import OfflineGpu, OfflineKernel, OfflineModule
from megakernel.device.sources import kernel_folder
from megakernel.operator.contract import Problem
from megakernel.run.occupancy import occupancy_of
from megakernel.run.prepare import KernelStore
from megakernel.variants.catalogue import CATALOGUE

# One width for each way in which rows meet tiles: exact for every power of two, aligned, unaligned.
WIDTHS = (131_072, 131_076, 131_073)
COLUMNS = (
    "variant",
    "width",
    "kernel",
    "threads",
    "tile",
    "registers",
    "dynamic_shared_bytes",
    "blocks_per_sm",
    "limited_by",
    "cap",
)


def every_kernel() -> dict[str, tuple[str, ...]]:
    """Every kernel of the catalogue, by source."""
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for variant in CATALOGUE.values():
        for configuration in variant.configurations:
            for width in WIDTHS:
                names[variant.source] |= dict.fromkeys(variant.kernel_names(Problem(1, width), configuration))
    return {source: tuple(found) for source, found in names.items()}


@dataclass(frozen=True)
class WholeSources(OfflineGpu):
    """Compiles all kernels of a source at once: parsing it is most of the work."""

    def build(self, source: Path, kernel_names: tuple[str, ...]) -> OfflineModule:
        resources = cubin_for(source, every_kernel()[source.name], self.facts.arch).resources
        return OfflineModule({name: OfflineKernel(resources[name]) for name in kernel_names})


def rows_of(gpu: str) -> list[list[object]]:
    planner = WholeSources(named_facts(gpu))
    with KernelStore(planner, kernel_folder()) as store:
        return [
            [(found.record() | {"width": width})[column] for column in COLUMNS]
            for variant in CATALOGUE.values()
            for configuration in variant.configurations
            for width in WIDTHS
            for found in occupancy_of(planner, store, [variant], [1], width, configuration)
        ]


def main(out: Path) -> None:
    head = f'  "nvrtc": {json.dumps(nvrtc_version())},\n  "columns": {json.dumps(list(COLUMNS))}'
    parts = [f'  "{gpu}": [\n' + ",\n".join(f"    {json.dumps(row)}" for row in rows_of(gpu)) for gpu in NAMED_GPUS]
    out.write_text("{\n" + ",\n".join([head, *(part + "\n  ]" for part in parts)]) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT.json", type=Path)
    main(parser.parse_args().out)
