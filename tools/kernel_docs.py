"""Prints the table of docs/kernels.md: what each implementation moves, launches and waits for, from its declaration.

python tools/kernel_docs.py
"""

from megakernel.operator.contract import Problem
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Variant

PROBLEM = Problem(16)
HEADER = (
    "| implementation | launches | barriers inside | reads, bytes an element | writes, bytes an element |",
    "|---|---|---|---|---|",
)


def table() -> list[str]:
    """Of the benchmark's shape at 16 rows, each implementation in its default configuration."""
    return [*HEADER, *(_row(variant) for variant in CATALOGUE.values() if variant.computes != "nothing")]


def _row(variant: Variant) -> str:
    configuration = variant.default_configuration(PROBLEM.rows)
    read, written = (
        sum(moved(PROBLEM, configuration) for moved in of_stages) / PROBLEM.elements
        for of_stages in ([s.bytes_read for s in variant.stages], [s.bytes_written for s in variant.stages])
    )
    barriers = [f"2, {stage.barrier}-wide" for stage in variant.stages if stage.barrier != "none"]
    return (
        f"| `{variant.name}` | {len(variant.stages)} | {', '.join(barriers) or 'none'} | {read:.2f} | {written:.2f} |"
    )


if __name__ == "__main__":
    print("\n".join(table()))
