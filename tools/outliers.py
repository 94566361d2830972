"""Rounds that took much longer than their series' median, with the clocks around them: h5py and NumPy alone.

    python tools/outliers.py SESSION.h5 [PERCENT]

Host completion of graph replays; a round counts from 10 % above the median on unless told otherwise.
"""

import argparse
import signal

import h5py
import numpy as np


def pair(values: np.ndarray) -> str:
    """Before and after the round; what could not be read is a question mark."""
    return "/".join("?" if np.isnan(value) else f"{value:.0f}" for value in values)


def main(path: str, percent: float) -> None:
    found = 0
    with h5py.File(path) as file:
        for series in file["series"].values():
            attrs = series.attrs
            numbers = series["round"][()]
            if not len(numbers) or attrs["submission"] != "graph" or attrs.get("cache", "warm") != "warm":
                continue
            shape = file["shapes"][f"{attrs['shape']:04d}"]
            values_us = np.median(series["host_completion"][: len(numbers)], axis=1) / 1e3
            median_us = np.median(values_us)
            for i in np.flatnonzero(values_us > median_us * (1 + percent / 100)):
                number = int(numbers[i])
                if number >= len(shape["throttled"]):
                    continue  # the last round of an interrupted run, before its clocks were stored
                clocks, celsius = pair(shape["sm_clock_mhz"][number]), pair(shape["temperature_c"][number])
                throttled = ", throttled" if shape["throttled"][number] else ""
                more = 100 * (values_us[i] / median_us - 1)
                print(
                    f"{attrs['variant']}, {attrs['rows']} rows, round {number}: {values_us[i]:.2f} us, {more:+.0f} % "
                    f"(median {median_us:.2f}), SM clock {clocks} MHz, {celsius} C{throttled}"
                )
                found += 1
    print(f"{found} rounds above the median by more than {percent:g} %")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that leaves early is no error
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("session", metavar="SESSION.h5")
    parser.add_argument("percent", metavar="PERCENT", nargs="?", type=float, default=10.0)
    given = parser.parse_args()
    try:
        if not np.isfinite(given.percent):
            raise ValueError(f"PERCENT is {given.percent}: give a number")
        main(given.session, given.percent)
    except (OSError, KeyError, ValueError) as error:
        parser.error(f"{given.session}: {error}")
