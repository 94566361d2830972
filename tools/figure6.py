"""Retention penalties, as the article's figure 6: from session files, with h5py and Matplotlib alone.

    python tools/figure6.py OUT.svg SESSION.h5 [SESSION.h5]

A session's penalty is the median over rounds of a control's host completion less that of control_retain in the same
round. Reloaded values are staged through shared memory with a block synchronisation: the penalties include that.
"""

import argparse
from io import BytesIO

import h5py
import numpy as np
from matplotlib.figure import Figure

ROWS = 16
CONTROLS = ("control_reload", "control_spill", "control_both")


def penalties_us(path: str) -> dict[str, float]:
    """By control, the median of its round-paired differences."""
    rounds: dict[str, dict[int, float]] = {}
    with h5py.File(path) as file:
        for series in file["series"].values():
            attrs = series.attrs
            warm = attrs.get("cache", "warm") == "warm"
            if warm and attrs["rows"] == ROWS and attrs["submission"] == "graph":
                numbers = series["round"][()]
                singles_ns = series["host_completion"][: len(numbers)]
                rounds[attrs["variant"]] = dict(zip(numbers, np.median(singles_ns, axis=1) / 1e3, strict=True))
    base = rounds.get("control_retain", {})
    found = {}
    for control in CONTROLS:
        pairs = [us - base[number] for number, us in rounds.get(control, {}).items() if number in base]
        if pairs:
            found[control] = float(np.median(pairs))
    return found


def main(out: str, *paths: str) -> None:
    sessions = [penalties_us(path) for path in paths]
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    panel = figure.subplots()
    measured = [control for control in CONTROLS if any(control in session for session in sessions)]
    if not measured:
        raise ValueError(f"no controls at {ROWS} rows in {', '.join(paths)}")
    for place, control in enumerate(measured):
        values = [session[control] for session in sessions if control in session]
        mean = float(np.mean(values))
        panel.errorbar(
            mean, place, xerr=[[mean - min(values)], [max(values) - mean]], fmt="o", color="#005A8C", capsize=4
        )
        panel.annotate(f"{mean:+.2f}", (mean, place), (0, 8), textcoords="offset points", ha="center")
        print(f"{control}: {mean:+.2f} us, sessions {', '.join(f'{value:+.2f}' for value in values)}")
    panel.set_yticks(range(len(measured)), measured)
    panel.set_ylim(len(measured) - 0.4, -0.6)
    panel.set_xlabel(f"extra host completion over control_retain, µs ({ROWS} rows, graph replay)")
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
