"""Runs NVIDIA's compute-sanitizer over every kernel at small shapes: memcheck, racecheck, synccheck, initcheck.

python tools/sanitize.py SUMMARY.json            all tools; exit status 1 where one finds something
python tools/sanitize.py --run VARIANT…          what runs under a tool: small shapes, direct and as a graph

Each tool must also find a fault planted for it, or its silence would say nothing.
"""

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from megakernel.device.choose import open_device
from megakernel.device.sources import kernel_folder, source_hashes
from megakernel.operator.checks import check_quantity
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import make
from megakernel.operator.reference import Reference
from megakernel.record.plan import SUBMISSIONS
from megakernel.run.prepare import KernelStore, Operands, prepare, read_values
from megakernel.variants.catalogue import CATALOGUE, find
from megakernel.variants.declaration import NO_SHARED, WIDTH, Configuration, SharedMemory, Stage, Variant, X, Y

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
CONFIGURATION = Configuration(128, 512)
# How rows meet tiles: whole tiles, a ragged last one, and rows that are not 16-byte aligned.
SHAPES = (Problem(3, 2048), Problem(3, 1540), Problem(2, 1541))
VARIANTS = tuple(name for name, variant in CATALOGUE.items() if not variant.libraries)
TIME_LIMIT_S = 280


def _planted(name: str, shared: SharedMemory = NO_SHARED) -> Variant:
    source = str(ROOT / "tests" / "gpu" / "kernels" / "sanitizer.cu")
    stage = Stage(name, grid="one", reads=(X.tile,), writes=(Y.tile,), scalars=(WIDTH,), shared=shared, threads=64)
    return Variant(name, source, (stage,), (CONFIGURATION,), computes="nothing")


MEMCHECK = _planted("writes_past_end")
RACECHECK = _planted("reads_neighbour_early", SharedMemory(bytes_per_warp=128))
SYNCCHECK = _planted("half_a_barrier")
INITCHECK = _planted("reads_unwritten")


def run(names: list[str]) -> None:
    """Runs variants without poisoning what they write: initcheck then sees what is read and was never written."""
    with open_device("auto") as device, KernelStore(device) as store:
        for problem in SHAPES:
            reference = Reference(make("timing", problem), problem)
            with Operands(device, problem) as operands:
                operands.x.write(reference.x)
                for variant in (find(name) for name in names):
                    with prepare(device, store, variant, operands, CONFIGURATION) as prepared:
                        for submission in SUBMISSIONS:
                            with prepared.executable(submission) as executable:
                                executable.prepare()
                                executable.run()
                        if variant.computes == "softmax":
                            y = read_values(prepared, "y")["y"]
                            wrong = [c for c in check_quantity("y", y, reference, CONFIGURATION.tile) if not c.passed]
                            assert not wrong, f"{variant.name}: {wrong[0]}"
                print(f"ran {problem.rows} x {problem.width}", flush=True)


def _under(tool: str, names: list[str]) -> tuple[int, str]:
    """How many errors a tool reports, and the last of what it printed."""
    # The driver says "no such parameter" where a kernel's parameters end: that is asked for, and no error.
    tool_options = ["--tool", tool, *(["--report-api-errors", "no"] if tool == "memcheck" else [])]
    command = ["compute-sanitizer", *tool_options, sys.executable, str(Path(__file__)), "--run", *names]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{tool} did not end within {TIME_LIMIT_S} s") from None
    output = done.stdout + done.stderr
    found = re.search(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", output)
    if not found:
        raise SystemExit(f"{tool} printed no summary:\n{output[-2000:]}")
    return int(found.group(1) or found.group(2)), output


def sanitize(summary: Path) -> int:
    if not shutil.which("compute-sanitizer"):
        print("compute-sanitizer is not on the PATH: it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    with open_device("auto") as device:
        facts = device.facts
    if facts.kind != "gpu":
        print("there is no GPU here, and compute-sanitizer needs one", file=sys.stderr)
        return 2
    results = {}
    good = True
    for tool in TOOLS:
        planted, _ = _under(tool, [f"{Path(__file__)}:{tool.upper()}"])
        errors, output = _under(tool, list(VARIANTS))
        ran = len(re.findall(r"^ran \d+ x \d+$", output, re.MULTILINE))
        results[tool] = {"errors": errors, "errors_in_the_planted_fault": planted, "shapes": ran}
        passed = errors == 0 and planted > 0 and ran == len(SHAPES)
        good &= passed
        print(f"{tool}: {errors} errors over {ran} shapes, {planted} in the planted fault", flush=True)
        if not passed:
            print(output[-4000:])
    version = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True).stdout.strip()
    summary.write_text(
        json.dumps(
            {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "device": facts.name,
                "driver": facts.driver_version,
                "sanitizer": version.splitlines()[-1] if version else "",
                "variants": VARIANTS,
                "shapes": [f"{p.rows} x {p.width}" for p in SHAPES],
                "kernel_sources": source_hashes(kernel_folder()),
                "tools": results,
            },
            indent=2,
        )
        + "\n"
    )
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run(sys.argv[2:])
    else:
        sys.exit(sanitize(Path(sys.argv[1])))
