"""Of an audit: was the order of each round shuffled, as the stored seed shuffles it?"""

import math
import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from megakernel.record.tree import Group
from megakernel.report.audit_structure import cache_of, planned_rounds
from megakernel.report.findings import Findings

# How far from chance an order must be to be named: one honest session in a million has it.
_SIGMAS = 5.0
_LEAST_PROBABILITY = 1e-6


def audit(root: Group, findings: Findings) -> None:
    series = root.group("series").groups()
    caches = [cache for cache in ("warm", "evicted") if any(cache_of(s) == cache for s in series)]
    for shape in root.group("shapes").groups():
        for cache in caches:
            mine = [s for s in series if s.attributes.get("shape") == int(shape.path[-4:]) and cache_of(s) == cache]
            place = shape.path + (", evicted" if cache == "evicted" else "")
            if mine:
                with findings.guarded("order", place):
                    _permutations(mine, place, findings)
                with findings.guarded("order", place):
                    _statistics(mine, place, findings)
    with findings.guarded("order"):
        _from_the_seed(root, findings, caches)


def _positions(series: Sequence[Group]) -> NDArray[np.int64]:
    """``(rounds, series)``: the place of each in each round that all of them finished."""
    columns = [s.array("position") for s in series]
    finished = min(len(column) for column in columns)
    return np.stack([column[:finished].astype(np.int64) for column in columns], axis=1)


def _permutations(series: Sequence[Group], place: str, findings: Findings) -> None:
    positions = _positions(series)
    wanted = list(range(len(series)))
    for number, row in enumerate(positions.tolist()):
        if sorted(row) != wanted:
            twice = sorted({p for p in row if row.count(p) > 1})
            what = f"position {twice[0]} is there twice" if twice else f"the positions are {sorted(row)}"
            findings.fault("order", f"round {number}: {what}, for {len(series)} series", place)
    findings.repeated("order", "the positions of a round are a permutation", len(positions))


def _statistics(series: Sequence[Group], place: str, findings: Findings) -> None:
    """Independent of the seed: how alike successive rounds are, and whether a subject has a favourite place."""
    positions = _positions(series).astype(np.float64)
    rounds, subjects = positions.shape
    if subjects < 2 or rounds < 2:
        findings.note("order", "too few series or rounds to tell a shuffled order from another", place)
        return
    if (positions == positions[0]).all() and (rounds - 1) * math.lgamma(subjects + 1) > -math.log(_LEAST_PROBABILITY):
        findings.fault("order", f"all {rounds} rounds have the same order: it was not shuffled", place)
        return
    centred = positions - (subjects - 1) / 2
    variance = (subjects**2 - 1) / 12
    correlations = (centred[1:] * centred[:-1]).sum(axis=1) / (subjects * variance)
    correlation_sigmas = float(correlations.mean()) * math.sqrt((subjects - 1) * (rounds - 1))
    # Friedman's statistic of the mean positions, about chi-squared with ``freedom`` degrees.
    friedman = float((centred.mean(axis=0) ** 2).sum()) * rounds / variance * (subjects - 1) / subjects
    # Its cube root is nearly normal (Wilson and Hilferty, 1931); itself it is not, and honest orders would be named.
    freedom = subjects - 1
    spread = 2 / (9 * freedom)
    friedman_sigmas = ((friedman / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    findings.repeated("order", "rank correlation of successive rounds, and mean position of each series, of a shape")
    for what, sigmas in (
        (f"successive rounds have a mean rank correlation of {correlations.mean():.2f}", correlation_sigmas),
        ("some series are mostly early and others mostly late", friedman_sigmas),
    ):
        if abs(sigmas) > _SIGMAS and not (what.startswith("some") and sigmas < 0):
            findings.fault("order", f"{what}, {sigmas:.1f} standard deviations from a shuffled order", place)


def _from_the_seed(root: Group, findings: Findings, caches: Sequence[str]) -> None:
    """One generator, seeded once, shuffles the list of a shape's series before each round, as run/session.py does."""
    seed = root.group("protocol").integer("order_seed")
    shuffler = random.Random(seed)
    compared = 0
    for shape in root.group("shapes").groups():
        for cache in caches:
            every = root.group("series").groups()
            mine = [s for s in every if s.attributes.get("shape") == int(shape.path[-4:]) and cache_of(s) == cache]
            if not mine:
                continue
            rounds = planned_rounds(root, cache)
            columns = [s.array("position").tolist() for s in mine]
            for number in range(rounds):
                order = list(range(len(mine)))
                shuffler.shuffle(order)
                if not any(number < len(column) for column in columns):
                    continue
                compared += 1
                stored = {c: column[number] for c, column in enumerate(columns) if number < len(column)}
                if any(order.index(c) != position for c, position in stored.items()):
                    findings.fault("order", f"round {number} is not in the order that seed {seed} gives", shape.path)
                    return
    findings.repeated("order", f"{compared} rounds reproduced from the seed {seed}")
