"""Computes the occupancy of every shipped kernel and configuration on every named GPU, with no GPU.

    python tools/occupancy_table.py data/occupancy.json

A GPU test holds the rows of its own GPU against what the driver says. Run again when kernels change.
"""

import json
import sys
from pathlib import Path

from megakernel.device.limits import NAMED_GPUS, named_facts
from megakernel.device.nvrtc import nvrtc_version
from megakernel.device.offline import OfflineGpu
from megakernel.run.occupancy import occupancy_of
from megakernel.run.prepare import KernelStore
from megakernel.variants.catalogue import CATALOGUE

# One width for each way in which rows meet tiles: exact for every power of two, aligned, unaligned.
WIDTHS = (131_072, 131_076, 131_073)


def rows_of(gpu: str) -> list[dict[str, object]]:
    planner = OfflineGpu(named_facts(gpu))
    rows = []
    with KernelStore(planner) as store:
        for variant in CATALOGUE.values():
            for configuration in variant.configurations:
                for width in WIDTHS:
                    for found in occupancy_of(planner, store, [variant], [1], width, configuration):
                        record = found.record() | {"width": width}
                        rows.append({key: record[key] for key in COLUMNS})
    return rows


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


def main(out: Path) -> None:
    parts = []
    for gpu in NAMED_GPUS:
        body = ",\n".join("    " + json.dumps(list(row.values())) for row in rows_of(gpu))
        parts.append(f'  "{gpu}": [\n{body}\n  ]')
    head = f'  "nvrtc": {json.dumps(nvrtc_version())},\n  "columns": {json.dumps(list(COLUMNS))}'
    out.write_text("{\n" + ",\n".join([head, *parts]) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
