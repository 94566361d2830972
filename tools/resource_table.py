"""Compiles every shipped kernel and configuration, and writes what each takes on each architecture.

    python -m tools.resource_table src/megakernel/device/resources.json

The emulator plans with this table where NVRTC is not installed. Run again when a kernel or configuration changes.
"""

import argparse
import json
from dataclasses import astuple, fields
from pathlib import Path

from tools.occupancy_table import every_kernel

from megakernel.device.cubins import cubin_for
from megakernel.device.limits import ARCHITECTURES
from megakernel.device.nvrtc import nvrtc_version
from megakernel.device.resource_table import source_digests
from megakernel.device.sources import kernel_folder
from megakernel.record.facts import KernelResources


def main(out: Path) -> None:
    table: dict[str, dict[str, list[object]]] = {}
    for capability in ARCHITECTURES:
        arch = "sm_" + capability.replace(".", "")
        rows = table.setdefault(arch, {})
        for source, names in every_kernel().items():
            cubin = cubin_for(kernel_folder() / source, names, arch)
            for name, resources in cubin.resources.items():
                rows[f"{source}:{name}"] = list(astuple(resources)[1:])
    columns = [field.name for field in fields(KernelResources)][1:]
    digests: dict[str, str] = {}
    for source in every_kernel():
        digests |= source_digests(kernel_folder() / source)
    lines = [f'  "nvrtc": {json.dumps(nvrtc_version())}', f'  "sources": {json.dumps(digests)}']
    lines += [f'  "columns": {json.dumps(columns)}']
    for arch, rows in table.items():
        body = ",\n".join(f"    {json.dumps(key)}: {json.dumps(values)}" for key, values in rows.items())
        lines.append(f'  "{arch}": {{\n{body}\n  }}')
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT.json", type=Path)
    main(parser.parse_args().out)
