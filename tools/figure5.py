"""Host completion by row count, as the article's figure 5: from session files, with h5py and Matplotlib alone.

    python tools/figure5.py OUT.svg SESSION.h5 [SESSION.h5]

Bars average the session medians, whiskers span them, and percentages are against local fusion.
"""

import argparse
from io import BytesIO

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


def steps(rows: int) -> list[tuple[str, str]]:
    megakernel = "retained" if rows == 1 else "row_retained"  # as the article chose
    return [("unfused", "direct"), ("unfused", "graph"), ("local_recompute", "graph"), (megakernel, "graph")]


def main(out: str, *paths: str) -> None:
    sessions = [medians_us(path) for path in paths]
    counts = sorted({rows for session in sessions for rows, _, _ in session})
    whole = [n for n in counts if all((n, *step) in session for step in steps(n) for session in sessions)]
    if not whole:
        raise ValueError("at no row count are all steps, from unfused to the megakernel, in each")
    figure = Figure(figsize=(3.4 * len(whole), 3.2), layout="constrained")
    for panel, rows in zip(figure.subplots(1, len(whole), squeeze=False)[0], whole, strict=True):
        values = [[session[rows, *step] for session in sessions] for step in steps(rows)]
        means = [float(np.mean(value)) for value in values]
        panel.bar(range(4), means, color=["#F3CF8B", "#E69F00", "#56B4E9", "#005A8C"], edgecolor="#222222")
        for place, (mean, value) in enumerate(zip(means, values, strict=True)):
            whisker = [[mean - min(value)], [max(value) - mean]]
            panel.errorbar(place, mean, yerr=whisker, color="#222222", capsize=4)
            percent = f"\n{100 * (mean / means[2] - 1):+.1f} %" if place == 3 else ""
            panel.text(place, max(value), f"{mean:.1f}{percent}", ha="center", va="bottom", fontsize=8)
        names = [variant.replace("_", "_\n") + ("\ndirect" if how == "direct" else "") for variant, how in steps(rows)]
        panel.set_xticks(range(4), names, fontsize=8)
        panel.set_title(f"{rows} row{'s' if rows > 1 else ''}")
        panel.set_ylabel("host completion, µs")
        panel.margins(y=0.2)
    drawn = BytesIO()
    figure.savefig(drawn, format=out.rpartition(".")[2])
    with open(out, "xb") as file:  # never over a file that exists
        file.write(drawn.getvalue())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT.svg", help="must not exist")
    parser.add_argument("sessions", metavar="SESSION.h5", nargs="+")
    given = parser.parse_args()
    try:
        main(given.out, *given.sessions)
    except (OSError, KeyError, ValueError) as error:
        parser.error(f"{' '.join(given.sessions)}: {error}")
