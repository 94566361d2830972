"""Runs the GPU tests and writes what each of them said, with the device and the sources that they saw.

python tools/gpu_report.py REPORT.json           run on a GPU and write the report
python tools/gpu_report.py REPORT.json TEST…     run these tests alone, and put their outcomes into the report, which
                                                 must be of the same kernel sources
python tools/gpu_report.py --check REPORT.json   say which kernel sources have changed since
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from megakernel.device.sources import kernel_folder, source_hashes

ROOT = Path(__file__).resolve().parents[1]
GPU_TESTS = ("tests/gpu", "tests/wrong")


def run(report: Path, tests: list[str]) -> int:
    from megakernel.device.gpu import list_gpus
    from megakernel.run.environment import environment

    earlier = json.loads(report.read_text()) if tests else None
    changed = _changed(earlier) if earlier else []
    if changed:
        print(f"{report} is of other sources: {', '.join(changed)} differ; run all tests", file=sys.stderr)
        return 2
    device = list_gpus()[0]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "gpu",
            *(tests or (path for path in GPU_TESTS if (ROOT / path).exists())),
            f"--junitxml={results}",
            "--durations=5",
        ]
        status = subprocess.run(command, cwd=ROOT).returncode
        cases = list(ElementTree.parse(results).iter("testcase"))
    outcomes = {f"{case.get('classname')}.{case.get('name')}": _outcome(case) for case in cases}
    found = environment()
    repeated = {}
    if earlier:
        # Of files that ran again as a whole, a test that has no outcome no longer exists.
        whole = set() if any("::" in test for test in tests) else {name.rpartition(".")[0] for name in outcomes}
        kept = {
            name: outcome
            for name, outcome in earlier["outcomes"].items()
            if name not in outcomes and name.rpartition(".")[0] not in whole
        }
        repeated = {"date": earlier["date"], "device_uuid": earlier["device"]["uuid"], "outcomes": len(kept)}
        outcomes = {**kept, **outcomes}
    report.write_text(
        json.dumps(
            {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "device": asdict(device),
                "environment": {k: v for k, v in found.items() if k not in ("command", "platform")},
                "kernel_sources": source_hashes(kernel_folder()),
                "kept_from_an_earlier_run": repeated,
                "passed": sum(outcome == "passed" for outcome in outcomes.values()),
                "not_passed": sum(outcome != "passed" for outcome in outcomes.values()),
                "outcomes": outcomes,
            },
            indent=2,
        )
        + "\n"
    )
    return status


def _outcome(case: ElementTree.Element) -> str:
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            return f"{child.tag}: {(child.get('message') or '').splitlines()[0] if child.get('message') else ''}"
    return "passed"


def check(report: Path) -> int:
    """Warns, and never fails: a machine without a GPU cannot mend it."""
    if not report.is_file():
        print(f"warning: {report} is missing: no GPU has verified these kernels; run make test-gpu on one")
        return 0
    recorded = json.loads(report.read_text())
    changed = _changed(recorded)
    if changed:
        print(f"warning: changed since the GPU last verified them ({recorded['date']}): {', '.join(changed)}")
    if recorded["not_passed"]:
        print(f"warning: {recorded['not_passed']} GPU tests did not pass on {recorded['date']}")
    return 0


def _changed(recorded: dict[str, dict[str, str]]) -> list[str]:
    current = source_hashes(kernel_folder())
    return sorted(p for p in current | recorded["kernel_sources"] if _differs(p, current, recorded))


def _differs(path: str, current: dict[str, str], recorded: dict[str, dict[str, str]]) -> bool:
    on_gpu = not path.startswith("emulator/")
    return on_gpu and current.get(path) != recorded["kernel_sources"].get(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="say which kernel sources have changed since")
    parser.add_argument("report", metavar="REPORT.json", type=Path)
    parser.add_argument("tests", metavar="TEST", nargs="*", help="run these alone")
    given = parser.parse_args()
    sys.exit(check(given.report) if given.check else run(given.report, given.tests))
