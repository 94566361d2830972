"""Kills sessions at random moments and says which of them lost a finished round.

    python tools/kill_sessions.py [KILLS] [SEED]

Each session runs in a process of its own, on the unit tests' fake device: the file is written as ever, and rounds
follow one another so quickly that most kills fall into writing. What a session says that it has finished must be in
its file, with the right values. Exits with 1 where something is missing.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from megakernel.errors import RecordError  # noqa: E402
from megakernel.record.reader import load  # noqa: E402

BATCH = 2
LONGEST_S = 2.0

# Says how many rounds of which cache each shape has finished, when the next step begins.
CHILD = f"""
import sys
from pathlib import Path
from megakernel.record.plan import SUBMISSIONS
from megakernel.record.protocol import Protocol
from megakernel.record.writer import SessionWriter
from megakernel.run.session import Request, run_session
from megakernel.variants.catalogue import CATALOGUE
from tests.unit.fakes import FakeDevice

def say(done, total, what):
    words = what.split()
    if "round" in words:
        cache = "evicted" if "evicted" in words else "warm"
        print(words[0], cache, int(words[words.index("round") + 1]) - 1, flush=True)

variants = tuple(CATALOGUE[name] for name in ("empty", "local_recompute", "row_retained"))
protocol = Protocol(rounds=60, warmups=0, singles=3, batch={BATCH}, evicted_rounds=60, evicted_singles=2,
                    evicted_bytes=2**19, evicted_l2s=0, pilot_repeats=0)
request = Request(variants, (1, 2), 300, 1e-5, SUBMISSIONS, protocol)
run_session(FakeDevice(), request, SessionWriter(Path(sys.argv[1])), say)
"""


def killed_session(folder: Path, after_s: float) -> list[str]:
    """Kills one session so long after its first round, and returns what its file lacks."""
    path = folder / "a.h5"
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        said = [child.stdout.readline()]
        time.sleep(after_s)
        child.kill()
        said += child.stdout.read().splitlines(keepends=True)
    finished = {}
    for line in said:
        if line.endswith("\n"):  # the kill may have cut the last one
            rows, cache, count = line.split()
            finished[int(rows), cache] = int(count)
    try:
        session = load(path.with_name("a.h5.partial"))
    except RecordError as error:
        return [str(error)]
    faults = [] if not session.complete else ["it says that it is complete"]
    for (of_rows, of_cache), finished_rounds in finished.items():
        if not finished_rounds:  # its series need not be on the disk yet
            continue
        mine = [s for s in session.series if (s.problem.rows, s.cache) == (of_rows, of_cache)]
        if len(mine) != 6:
            faults.append(f"{of_rows} rows, {of_cache}: {len(mine)} series instead of 6")
        for series in mine:
            events = series.event_ns / BATCH if of_cache == "warm" else series.single_event_ns[:, 0]
            if (
                series.rounds[:finished_rounds].tolist() != list(range(finished_rounds))
                or (events[:finished_rounds] != 1000).any()
            ):
                faults.append(
                    f"{series.variant}, {of_rows} rows, {of_cache}: one of {finished_rounds} rounds is missing or wrong"
                )
    return faults


def main(kills: int, seed: int) -> int:
    moments = random.Random(seed)
    lost = 0
    for number in range(kills):
        after_s = moments.uniform(0, LONGEST_S)
        with tempfile.TemporaryDirectory(prefix="megakernel-kill-") as folder:
            faults = killed_session(Path(folder), after_s)
        lost += bool(faults)
        print(f"kill {number + 1} of {kills}, after {after_s:.3f} s: {'; '.join(faults) or 'good'}", flush=True)
    print(f"{kills - lost} of {kills} killed sessions lost no finished round")
    return 1 if lost else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kills", nargs="?", type=int, default=50)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    given = parser.parse_args()
    sys.exit(main(given.kills, given.seed))
