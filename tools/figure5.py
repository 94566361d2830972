"""Host completion by row count, as the article's figure 5: from session files, with h5py and Matplotlib alone.

    python tools/figure5.py OUT.svg SESSION.h5 [SESSION.h5]

Bars average the session medians, whiskers span them, and percentages are against local fusion.
"""

import sys

import h5py
import numpy as np
from matplotlib.figure import Figure


def medians_us(path: str) -> dict[tuple[int, str, str], float]:
    """By rows, variant and submission: the median over rounds of each round's median single invocation."""
    found = {}
    with h5py.File(path) as file:
        for series in file["series"].values():
            attrs = series.attrs
            rounds = len(series["round"])
            if rounds and attrs.get("cache", "warm") == "warm":
                singles_ns = series["host_completion"][:rounds]
                key = (int(attrs["rows"]), attrs["variant"], attrs["submission"])
                found[key] = float(np.median(np.median(singles_ns, axis=1))) / 1e3
    return found


def main(out: str, *paths: str) -> None:
    sessions = [medians_us(path) for path in paths]
    counts = sorted({rows for session in sessions for rows, _, _ in session})
    figure = Figure(figsize=(3.4 * len(counts), 3.2), layout="constrained")
    for panel, rows in zip(figure.subplots(1, len(counts), squeeze=False)[0], counts, strict=True):
        megakernel = "retained" if rows == 1 else "row_retained"  # as the article chose
        steps = [("unfused", "direct"), ("unfused", "graph"), ("local_recompute", "graph"), (megakernel, "graph")]
        values = [[s[rows, *step] for s in sessions if (rows, *step) in s] for step in steps]
        means = [float(np.mean(value)) if value else 0.0 for value in values]
        panel.bar(range(4), means, color=["#F3CF8B", "#E69F00", "#56B4E9", "#005A8C"], edgecolor="#222222")
        for place, (mean, value) in enumerate(zip(means, values, strict=True)):
            if value:
                whisker = [[mean - min(value)], [max(value) - mean]]
                panel.errorbar(place, mean, yerr=whisker, color="#222222", capsize=4)
                percent = f"\n{100 * (mean / means[2] - 1):+.1f} %" if place == 3 and means[2] else ""
                panel.text(place, max(value), f"{mean:.1f}{percent}", ha="center", va="bottom", fontsize=8)
        panel.set_xticks(range(4), ["unfused", "+ graph", "+ local\nfusion", "+ mega-\nkernel"], fontsize=8)
        panel.set_title(f"{rows} row{'s' if rows > 1 else ''}")
        panel.set_ylabel("host completion, µs")
        panel.margins(y=0.2)
    figure.savefig(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
