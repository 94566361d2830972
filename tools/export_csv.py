"""Every round of every series as CSV on standard output, with h5py and NumPy alone.

python tools/export_csv.py SESSION.h5 [SESSION.h5] > rounds.csv
"""

import argparse
import csv
import signal
import sys

import h5py
import numpy as np

COLUMNS = ("file", "device", "variant", "rows", "width", "submission", "cache", "round", "position")
BATCHES = ("host_enqueue", "host_batch_completion", "event_interval")


def main(*paths: str) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow((*COLUMNS, "host_completion_ns", *(f"{name}_ns" for name in BATCHES)))
    for path in paths:
        with h5py.File(path) as file:
            device = file["device"].attrs["name"]
            for series in file["series"].values():
                attrs = series.attrs
                what = (
                    attrs["variant"],
                    attrs["rows"],
                    attrs["width"],
                    attrs["submission"],
                    attrs.get("cache", "warm"),
                )
                for i, number in enumerate(series["round"][()]):
                    times = [np.median(series["host_completion"][i])]
                    for name in BATCHES:  # an evicted series has none
                        held = name in series
                        times.append(series[name][i] / series[name].attrs["invocations"] if held else "")
                    out.writerow((path, device, *what, number, series["position"][i], *times))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that leaves early is no error
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sessions", metavar="SESSION.h5", nargs="+")
    given = parser.parse_args()
    try:
        main(*given.sessions)
    except (OSError, KeyError, ValueError) as error:
        parser.error(f"{' '.join(given.sessions)}: {error}")
