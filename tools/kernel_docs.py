"""Prints the tables of docs/kernels.md and docs/performance.md: what each implementation moves, launches and waits for,
from its declaration; and what the pilot found of it.

python tools/kernel_docs.py
"""

from megakernel.operator.contract import Problem
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Variant
from megakernel.variants.frozen import shipped

PROBLEM = Problem(16)
HEADER = (
    "| implementation | launches | barriers inside | reads, bytes an element | writes, bytes an element |",
    "|---|---|---|---|---|",
)


def table() -> list[str]:
    """Of the benchmark's shape at 16 rows, each implementation in the configuration of the shipped table."""
    return [*HEADER, *(_row(variant) for variant in CATALOGUE.values() if variant.computes != "nothing")]


def _row(variant: Variant) -> str:
    configuration = shipped().suggestion(variant, "NVIDIA H200", 132, PROBLEM.rows)
    read, written = (
        sum(moved(PROBLEM, configuration) for moved in of_stages) / PROBLEM.elements
        for of_stages in ([s.bytes_read for s in variant.stages], [s.bytes_written for s in variant.stages])
    )
    barriers = [f"2, {stage.barrier}-wide" for stage in variant.stages if stage.barrier != "none"]
    return (
        f"| `{variant.name}` | {len(variant.stages)} | {', '.join(barriers) or 'none'} | {read:.2f} | {written:.2f} |"
    )


def pilot_table(device: str = "NVIDIA H200", sm_count: int = 132) -> list[str]:
    """Event interval of graph replay by row count, each variant in its frozen configuration; at 16 rows also the rate
    of what its launches ask of global memory. Without libraries, whose traffic is their own.
    """
    entries = [e for e in shipped().entries if (e.device, e.sm_count) == (device, sm_count)]
    lines = [
        f"| rows | {' | '.join(str(entry.rows) for entry in entries)} | GB/s at {PROBLEM.rows} rows |",
        "|---" * (len(entries) + 2) + "|",
    ]
    for variant in CATALOGUE.values():
        if variant.libraries or any(variant.name not in entry.figures for entry in entries):
            continue
        cells = [f"{float(entry.figures[variant.name]['event_ns']) / 1e3:.2f}" for entry in entries]
        (at,) = (entry for entry in entries if entry.rows == PROBLEM.rows)
        chosen = at.configurations[variant.name]
        moved = sum(s.bytes_read(PROBLEM, chosen) + s.bytes_written(PROBLEM, chosen) for s in variant.stages)
        rate = moved / float(at.figures[variant.name]["event_ns"])
        lines.append(f"| `{variant.name}` | {' | '.join(cells)} | {rate:.0f} |")
    return lines


if __name__ == "__main__":
    print("\n".join([*table(), "", *pilot_table()]))
