"""Prints the share of the kernel sources' lines that run when every variant is verified on the emulator.

Lines of templates count where some variant instantiates them; the GPU's half of primitives.cuh does not count.

python tools/kernel_coverage.py     needs g++ and its gcov; compiles everything anew in a temporary folder
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from megakernel.device.sources import kernel_folder

# Rows that meet tiles in each of the three ways, and one with more tiles than a warp reads ahead.
WIDTHS = (2048, 1540, 1541, 131_072)

Counts = dict[str, dict[int, int]]  # by file and line


def verify_everything() -> None:
    """Runs in a process of its own: the counters are written when it ends."""
    from megakernel.device.emulator import Emulator
    from megakernel.device.host_compiler import BuildOptions
    from megakernel.operator.contract import Problem
    from megakernel.run.prepare import KernelStore
    from megakernel.run.trace import trace
    from megakernel.run.verify import verify_all
    from megakernel.variants.catalogue import CATALOGUE, COPY
    from megakernel.variants.declaration import Configuration

    options = BuildOptions(coverage=True)
    with Emulator(build_options=options) as device, KernelStore(device) as store:
        for width in WIDTHS:
            problems = [Problem(2, width)]
            variants = [replace(variant, stages=variant.kernel_stages) for variant in CATALOGUE.values()]
            for result in verify_all(
                device, store, variants, problems, ["timing"], ["direct"], Configuration(128, 512), watchdog_s=600
            ):
                assert result.verification.passed, result.verification.failures
        with tempfile.TemporaryDirectory() as folder:  # under another name: instrumented lines are not the shipped ones
            traced = Path(folder) / "traced.cu"
            shutil.copy(kernel_folder() / COPY.source, traced)
            assert trace(device, replace(COPY, source=str(traced)), Problem(2, 1541), Configuration(128, 512))


def counted_lines(folder: Path) -> Counts:
    """The largest count of each line of a kernel source, over all templates and shared objects."""
    counts: Counts = defaultdict(dict)
    ours = {path.name for path in kernel_folder().iterdir() if path.suffix in {".cu", ".cuh"}}
    for data in sorted(folder.rglob("*.gcda")):
        command = ["gcov", "--json-format", "--stdout", str(data)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=data.parent).stdout
        for report in printed.splitlines():
            for file in json.loads(report)["files"]:
                name = Path(file["file"]).name
                if name not in ours:
                    continue
                for line in file["lines"]:
                    number, count = int(line["line_number"]), int(line["count"])
                    counts[name][number] = max(count, counts[name].get(number, 0))
    return counts


def print_shares(counts: Counts) -> None:
    executed = total = 0
    for name, lines in sorted(counts.items()):
        missed = sorted(number for number, count in lines.items() if count == 0)
        executed += len(lines) - len(missed)
        total += len(lines)
        missing = f"   not run: {', '.join(map(str, missed))}" if missed else ""
        print(f"{name:18} {len(lines) - len(missed):4} of {len(lines):4} lines{missing}")
    print(f"{'all':18} {executed:4} of {total:4} lines, {100 * executed / total:.1f} %")


def main() -> int:
    if sys.argv[1:] == ["--verify"]:
        verify_everything()
        return 0
    if not shutil.which("gcov"):
        sys.exit("gcov is missing: it comes with g++")
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, XDG_CACHE_HOME=folder)
        subprocess.run([sys.executable, __file__, "--verify"], check=True, env=environment)
        counts = counted_lines(Path(folder))
    if not counts:
        sys.exit("no counters were written: is the compiler g++, and gcov of the same version?")
    print_shares(counts)
    return 0


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    sys.exit(main())
