"""Of an audit: are there times that no GPU can have given?"""

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from megakernel.record.seal import METRIC_DATASETS
from megakernel.record.tree import Group
from megakernel.report.audit_structure import cache_of, label
from megakernel.report.findings import Findings

# More than any GPU's caches deliver: an H200 reads its L2 at about a quarter of this.
IMPOSSIBLE_BYTES_PER_NS = 40_000.0

# Timers of nanoseconds never agree so often.
_LEAST_VALUES_TO_VARY = 10

# So much faster than the floor that noise, or a better configuration than the floors', does not explain it.
_BELOW_FLOOR = 0.8

# Two clocks took the same work's time: so far apart, one of them is in another unit.
_CLOCKS_APART = 100.0

_NOTE_OUTLIER = 30.0


def audit(root: Group, findings: Findings) -> None:
    if root.group("device").attribute("kind") == "emulator":
        findings.note("impossible value", "emulated: the times say nothing, only their signs are looked at")
    series = root.group("series").groups()
    for one in series:
        for check in (_signs, _impossible, _metrics):
            if check is _signs or root.group("device").attribute("kind") == "gpu":
                with findings.guarded("impossible value", label(one)):
                    check(one, findings)
    if root.group("device").attribute("kind") == "gpu":
        with findings.guarded("impossible value"):
            _floors(series, findings)
        with findings.guarded("impossible value"):
            _event_grid(series, findings)
    for shape in root.group("shapes").groups():
        with findings.guarded("pilot", shape.path):
            _pilot(root, shape, findings)


def _values(series: Group, name: str) -> NDArray[np.float64]:
    """Samples in nanoseconds per invocation."""
    return series.array(name).astype(np.float64) / int(series.attributes_of(name)["invocations"])


def _metrics_of(series: Group) -> list[str]:
    return [name for name in METRIC_DATASETS if series.has(name) and series.array(name).size]


def _signs(series: Group, findings: Findings) -> None:
    for name in _metrics_of(series):
        values = series.array(name)
        findings.repeated("impossible value", "the samples of a metric of a series are positive and finite")
        wrong = ~(np.isfinite(values) & (values > 0))
        if wrong.any():
            findings.fault("impossible value", f"{name} holds {values[wrong][0]} ns", label(series))
    if series.has("graph_timings"):
        for name, value in series.group("graph_timings").attributes.items():
            if name != "units" and (isinstance(value, str) or value < 0):
                findings.fault("impossible value", f"{name} of the graph is {value}", label(series))


def _impossible(series: Group, findings: Findings) -> None:
    """Faster than the traffic that cannot be left out, or without any variation."""
    touched = 0 if series.attribute("computes") == "nothing" else 8  # bytes: each element of x read, of y written
    least_ns = touched * series.integer("rows") * series.integer("width") / IMPOSSIBLE_BYTES_PER_NS
    for name in _metrics_of(series):
        values = _values(series, name)
        if name != "host_enqueue":
            findings.repeated("impossible value", "no sample of a metric of a series is below its traffic at 40 TB/s")
            if values.min() < least_ns:
                findings.fault(
                    "impossible value",
                    f"{name} takes {values.min():.0f} ns, less than x and y need at 40 TB/s ({least_ns:.0f} ns)",
                    label(series),
                )
        if values.size >= _LEAST_VALUES_TO_VARY and (values == values.flat[0]).all():
            findings.fault("impossible value", f"all {values.size} samples of {name} are equal", label(series))
        centre = float(np.median(values))
        far = int(np.count_nonzero((values > _NOTE_OUTLIER * centre) | (values < centre / _NOTE_OUTLIER)))
        if far:
            findings.note("outlier", f"{far} of {name} are {_NOTE_OUTLIER:.0f} times from the median", label(series))


def _metrics(series: Group, findings: Findings) -> None:
    """What holds between the metrics of one round, and between the host's clock and the device's."""
    if not all(series.has(name) for name in ("host_enqueue", "host_batch_completion", "event_interval")):
        return
    enqueue, batch = series.array("host_enqueue"), series.array("host_batch_completion")
    finished = min(len(enqueue), len(batch))
    findings.repeated("impossible value", "submitting a batch took no longer than completing it", finished)
    late = enqueue[:finished] > batch[:finished]
    if late.any():
        number = int(np.argmax(late))
        findings.fault(
            "impossible value",
            f"round {number}: submitting took {enqueue[number]} ns, submitting and waiting {batch[number]} ns",
            label(series),
        )
    if not finished:
        return  # interrupted before the first round
    medians = {
        name: float(np.median(_values(series, name)))
        for name in ("host_completion", "host_batch_completion", "event_interval")
    }
    for name in ("host_completion", "event_interval"):
        ratio = medians[name] / medians["host_batch_completion"]
        if not 1 / _CLOCKS_APART < ratio < _CLOCKS_APART:
            findings.fault(
                "units", f"{name} is {ratio:.4g} times the host's batch completion: another unit?", label(series)
            )
    if medians["event_interval"] > 2 * medians["host_batch_completion"]:
        findings.fault(
            "impossible value",
            f"the device took {medians['event_interval']:.0f} ns an invocation while the host waited only "
            f"{medians['host_batch_completion']:.0f}",
            label(series),
        )


def _floors(series: list[Group], findings: Findings) -> None:
    """Nothing is much faster than an empty launch, nor the operator much faster than a copy."""
    floors: dict[tuple[Any, ...], Group] = {}
    subjects: dict[tuple[Any, ...], list[Group]] = defaultdict(list)
    for one in series:
        key = (one.attributes.get("shape"), one.attributes.get("submission"), cache_of(one))
        computes = one.attributes.get("computes")
        if computes in ("nothing", "copy"):
            floors[*key, computes] = one
        subjects[key].append(one)
    for key, of_key in subjects.items():
        for computes, floor_name in (("nothing", "an empty launch"), ("copy", "the copy")):
            floor = floors.get((*key, computes))
            for one in of_key:
                faster_than = one.attributes.get("computes") == "softmax" or computes == "nothing"
                if floor is not None and one is not floor and faster_than:
                    _compare(one, floor, floor_name, findings)


def _compare(series: Group, floor: Group, floor_name: str, findings: Findings) -> None:
    for name in ("host_completion", "event_interval", "single_event_interval"):
        if not all(s.has(name) and s.array(name).size for s in (series, floor)):
            continue
        values, floors = _values(series, name), _values(floor, name)
        median, of_floor = float(np.median(values)), float(np.median(floors))
        findings.repeated("floors", "a metric of a series is not much faster than the floor of its run")
        beyond_noise = float(np.percentile(values, 90)) < float(np.percentile(floors, 10))
        if beyond_noise and median < _BELOW_FLOOR * of_floor:
            findings.fault(
                "impossible value",
                f"{name} is {median:.0f} ns, faster than {floor_name} in the same run ({of_floor:.0f} ns)",
                label(series),
            )
        elif beyond_noise:
            findings.note(
                "floors", f"{name} is {median:.0f} ns, {floor_name} in the same run {of_floor:.0f}", label(series)
            )


def _event_grid(series: list[Group], findings: Findings) -> None:
    """The driver gives intervals as float32 milliseconds. Where nearly all samples are such numbers, so are all."""
    odd: list[tuple[str, str, float]] = []
    count = 0
    for one in series:
        for name in ("event_interval", "single_event_interval"):
            if one.has(name):
                values = one.array(name).astype(np.float64).ravel()
                with np.errstate(over="ignore", invalid="ignore"):
                    off = values != (values / 1e6).astype(np.float32).astype(np.float64) * 1e6
                odd += [(label(one), name, float(value)) for value in values[off]]
                count += values.size
    if count and len(odd) < count / 2:
        findings.repeated("event grid", f"{count} event intervals are float32 milliseconds, as a driver gives them")
        for place, name, value in odd[:10]:
            findings.fault("event grid", f"{name} {value!r} ns is no float32 number of milliseconds", place)


def _pilot(root: Group, shape: Group, findings: Findings) -> None:
    """The floor's configuration is the one that its pilot found fastest."""
    if not shape.has("pilot"):
        return
    pilot = shape.group("pilot")
    batches, names = pilot.array("event_interval"), pilot.texts("configuration")
    fastest = names[int(np.argmin(np.median(batches, axis=0)))]
    for one in root.group("series").groups():
        same = one.attributes.get("shape") == int(shape.path[-4:])
        if same and one.attributes.get("variant") == pilot.attribute("variant"):
            findings.repeated("pilot", "a floor's configuration, from its pilot's batches")
            taken = f"{one.integer('threads')}x{one.integer('tile')}"
            if taken != fastest:
                findings.fault("pilot", f"its configuration is {taken}, but the fastest was {fastest}", label(one))
