"""Prints the tables of docs/kernels.md and docs/performance.md: what each implementation moves, launches and waits for,
from its declaration; and what the committed sessions say of it.

python tools/kernel_docs.py
"""

from pathlib import Path

from megakernel.operator.contract import Problem
from megakernel.report.analysis import Analysis, analyse
from megakernel.report.content import Table, penalty_table, way_table
from megakernel.report.summary import Row
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Variant
from megakernel.variants.frozen import shipped

PROBLEM = Problem(16)
SESSIONS = [Path(__file__).resolve().parents[1] / "data" / "h200" / f"session-{n}.h5" for n in (1, 2)]
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


def session_table(analysis: Analysis, metric: str) -> list[str]:
    """Graph replays by row count in microseconds, and the ratio to ``copy``; of event intervals, at 16 rows also the
    rate of what the launches ask of global memory.
    """
    event = metric == "event_interval"
    rates = {rate.variant: rate.declared_gb_s for rate in analysis.rates if rate.rows == PROBLEM.rows}
    rate_heading = f" GB/s at {PROBLEM.rows} rows |" if event else ""
    lines = [
        f"| rows | {' | '.join(str(rows) for rows in analysis.row_counts)} |{rate_heading}",
        "|---" * (len(analysis.row_counts) + 1 + event) + "|",
    ]
    for variant in analysis.variants():
        found = [analysis.find(variant, rows, "graph", metric) for rows in analysis.row_counts]
        cells = [_cell(row, ratio=variant not in analysis.floors and not event) for row in found]
        rate = rates.get(variant)
        cells += [f"{rate:.0f}" if rate else "-"] if event else []
        lines.append(f"| `{variant}` | {' | '.join(cells)} |")
    return lines


def _cell(row: Row | None, *, ratio: bool) -> str:
    assert row is not None
    return f"{row.mean_ns / 1e3:.2f}" + (f" ({row.over_copy:.2f})" if ratio else "")


def markdown(shown: Table | None, *columns: str) -> list[str]:
    """Some columns of a report's table."""
    assert shown is not None
    headings = [heading for heading, _ in shown.columns]
    kept = [headings.index(column) for column in columns]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return lines + [f"| {' | '.join(row[i] for i in kept)} |" for row in shown.rows]


def performance_tables(analysis: Analysis) -> list[list[str]]:
    """Those of docs/performance.md, in their order there."""
    return [
        session_table(analysis, "host_completion"),
        markdown(way_table(analysis), "rows", "adds", "to", "from us", "to us", "change", "interval", "verdict"),
        session_table(analysis, "event_interval"),
        markdown(
            penalty_table(analysis.penalties, analysis.published), "gives up", "penalty", "sessions", "published, H100"
        ),
    ]


if __name__ == "__main__":
    print("\n\n".join("\n".join(lines) for lines in [table(), *performance_tables(analyse(SESSIONS))]))
