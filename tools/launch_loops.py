"""Compares the toolkit's timing loop with its C++ twin: nine empty kernels as a graph and as direct launches.

    python tools/launch_loops.py OUT.json

Both take turns in one run on the same GPU. Needs a GPU and nvcc or a C++ compiler with the CUDA headers.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from megakernel.device.choose import open_device
from megakernel.device.cubins import cubin_for
from megakernel.device.sources import kernel_folder
from megakernel.operator.contract import Problem
from megakernel.record.plan import SUBMISSIONS
from megakernel.run.measure import garbage_collection_off, time_singles
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.variants.catalogue import EMPTY
from megakernel.variants.declaration import Variant

KERNELS = 9
TURNS = 7
REPEATS = 2000
WARMUPS = 100
ALLOWED_GRAPH_DIFFERENCE_NS = 500

NINE_EMPTY = Variant("nine_empty", EMPTY.source, EMPTY.stages * KERNELS, EMPTY.configurations, computes="nothing")


def build(folder: Path) -> Path:
    """Builds the C++ loop."""
    source = Path(__file__).with_name("launch_loop.cpp")
    program = folder / "launch_loop"
    compiler = [shutil.which("nvcc") or "c++", "-O2", "-std=c++17"]
    subprocess.run([*compiler, str(source), "-o", str(program), "-lcuda"], check=True)
    return program


def main(out: Path) -> int:
    median_ns: dict[str, list[float]] = {f"{lang}_{s}": [] for lang in ("cpp", "python") for s in SUBMISSIONS}
    with tempfile.TemporaryDirectory() as name, open_device() as device, KernelStore(device) as store:
        program = build(Path(name))
        cubin = cubin_for(kernel_folder() / EMPTY.source, ("empty",), device.facts.arch)
        (Path(name) / "empty.cubin").write_bytes(cubin.image)
        symbol = cubin.resources["empty"].symbol
        with Operands(device, Problem(1)) as operands, prepare(device, store, NINE_EMPTY, operands) as prepared:
            for _ in range(TURNS):
                command = [str(program), f"{name}/empty.cubin", symbol, str(KERNELS), str(REPEATS)]
                lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
                for submission, line in zip(("graph", "direct"), lines, strict=True):
                    median_ns[f"cpp_{submission}"].append(float(np.median(np.array(line.split(), np.int64))))
                for submission in SUBMISSIONS:
                    with prepared.executable(submission) as executable, garbage_collection_off():
                        executable.prepare()
                        time_singles(executable, WARMUPS)
                        singles = time_singles(executable, REPEATS)
                    median_ns[f"python_{submission}"].append(float(np.median(singles)))
        facts = device.facts
    medians = {key: float(np.median(values)) for key, values in median_ns.items()}
    graph_difference = medians["python_graph"] - medians["cpp_graph"]
    result = {
        "device": facts.name,
        "uuid": facts.uuid,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernels": KERNELS,
        "turns": TURNS,
        "repeats": REPEATS,
        "turn_medians_ns": median_ns,
        "median_ns": medians,
        "python_graph_minus_cpp_ns": graph_difference,
        "python_direct_minus_cpp_ns": medians["python_direct"] - medians["cpp_direct"],
        "allowed_graph_difference_ns": ALLOWED_GRAPH_DIFFERENCE_NS,
    }
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: result[key] for key in ("median_ns", "python_graph_minus_cpp_ns")}, indent=2))
    return 0 if abs(graph_difference) <= ALLOWED_GRAPH_DIFFERENCE_NS else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT.json", type=Path)
    sys.exit(main(parser.parse_args().out))
