"""Of an audit: is everything there, is the file complete, do its digests hold, does it agree with its manifest?"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from megakernel.operator.tolerances import acceptance_rules, parse_rule
from megakernel.record.digest import (
    CONTENTS_ATTRIBUTE,
    SAMPLE_DATASETS,
    SAMPLES_ATTRIBUTE,
    contents_sha256,
    samples_sha256,
)
from megakernel.record.protocol import Protocol
from megakernel.record.seal import METRIC_DATASETS, SUMMARY, summary, summary_of
from megakernel.record.tree import Damaged, Group
from megakernel.report.findings import Findings

_WARM_METRICS = ("host_completion", "host_enqueue", "host_batch_completion", "event_interval")
_EVICTED_METRICS = ("host_completion", "single_event_interval")
_SINGLES = ("host_completion", "single_event_interval")
_STATES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_mw", "throttle_reasons")
_MOST_ROUNDS = 100_000
_SHA256 = re.compile(r"[0-9a-f]{64}")


def cache_of(series: Group) -> str:
    """``warm`` or ``evicted``; older files know only the first."""
    return str(series.attributes.get("cache", "warm"))


def label(series: Group) -> str:
    """What a series is of, in words, with its place."""
    attributes = series.attributes
    names = [str(attributes.get(name, "?")) for name in ("variant", "rows", "submission")]
    evicted = ", evicted" if cache_of(series) == "evicted" else ""
    return f"{series.path} ({names[0]}, {names[1]} rows, {names[2]}{evicted})"


def planned_rounds(root: Group, cache: str) -> int:
    planned = root.group("protocol").integer("evicted_rounds" if cache == "evicted" else "rounds")
    if not 0 <= planned <= _MOST_ROUNDS:
        raise Damaged(f"/protocol: {planned} rounds were planned")
    return planned


def audit(root: Group, findings: Findings) -> None:
    for line in root.tree.unreadable:
        findings.fault("structure", f"{line}: cannot be read")
    for check in (_schema, _completeness, _manifest, _tolerances, _contents, _surroundings):
        with findings.guarded(check.__name__.strip("_")):
            check(root, findings)
    for series in root.group("series").groups():
        for audit_series in (_samples, _sealed):
            with findings.guarded("structure", label(series)):
                audit_series(root, series, findings)
    for shape in root.group("shapes").groups():
        with findings.guarded("device state", shape.path):
            _states(root, shape, "warm", findings)
            if shape.has("evicted"):
                _states(root, shape.group("evicted"), "evicted", findings)


def _schema(root: Group, findings: Findings) -> None:
    for name in ("device", "protocol", "environment", "kernel_sources", "tolerances", "shapes", "series"):
        root.group(name)
    for name in ("created", "fixture", "complete", "interruption"):
        root.attribute(name)
    stored = root.group("protocol").attributes
    known = {name: stored[name] for name in Protocol.__dataclass_fields__ if name in stored}
    Protocol(**known)  # refuses what no session could have been given
    if not root.group("series").groups():
        raise Damaged("/series is empty: nothing was measured")
    for number, series in enumerate(root.group("series").groups()):
        if series.path != f"/series/{number:04d}":
            findings.fault("structure", f"series {number:04d} is missing: {series.path} is next")
            break
    findings.repeated("structure", "the groups, attributes, dimensions and units of docs/schema.md")


def _completeness(root: Group, findings: Findings) -> None:
    every = root.group("series").groups()
    if root.attribute("complete") is not True:
        why = root.attributes.get("interruption") or "the process ended"
        findings.fault("completeness", f"the file is marked incomplete: {why}")
    else:
        if root.attribute("interruption") != "":
            findings.fault("completeness", f"marked complete, but interrupted: {root.attribute('interruption')}")
        if "finished" not in root.attributes:
            findings.fault("completeness", "marked complete, but without the time at which it finished")
    for series in every:
        with findings.guarded("completeness", label(series)):
            rounds = series.array("round").tolist()
            planned = planned_rounds(root, cache_of(series))
            if rounds != list(range(planned)):
                missing = sorted(set(range(planned)) - set(rounds))
                what = f"round {missing[0]} is missing" if missing else "they are not in order, each once"
                findings.fault("completeness", f"{len(rounds)} of {planned} rounds: {what}", label(series))
            if not series.has("verified_after"):
                findings.fault("completeness", "not verified after timing", label(series))
    findings.repeated("completeness", f"whether each of {len(every)} series has every round and was verified after")


def _samples(root: Group, series: Group, findings: Findings) -> None:
    protocol = root.group("protocol")
    for name in ("variant", "computes", "submission"):
        if not isinstance(series.attribute(name), str):
            raise Damaged(f"{series.path}: attribute {name} is no text")
    for name in ("shape", "rows", "width", "threads", "tile", "launches"):
        series.integer(name)
    shape = root.group("shapes").group(f"{series.integer('shape'):04d}")
    for name in ("rows", "width", "eps"):
        if series.attribute(name) != shape.attribute(name):
            findings.fault(
                "structure",
                f"{name} is {series.attribute(name)}, but that of its shape {shape.attribute(name)}",
                label(series),
            )
    rounds = len(series.array("round"))
    evicted = cache_of(series) == "evicted"
    for name in _EVICTED_METRICS if evicted else _WARM_METRICS:
        attributes = series.attributes_of(name)
        wanted = 1 if name in _SINGLES else protocol.integer("batch")
        if attributes.get("units") != "ns":
            findings.fault("units", f"{name} is in {attributes.get('units')!r}, not 'ns'", label(series))
        if attributes.get("invocations") != wanted:
            found = attributes.get("invocations")
            findings.fault("units", f"{name} is of {found} invocations, not {wanted}", label(series))
        singles = protocol.integer("evicted_singles" if evicted else "singles")
        dimensions = (rounds, singles) if name in _SINGLES else (rounds,)
        shape_found = series.array(name).shape
        if shape_found != dimensions:
            findings.fault("structure", f"{name} has {shape_found} values for {dimensions}", label(series))
        kind = series.array(name).dtype.kind
        if (name.endswith("event_interval") and kind != "f") or (name.startswith("host") and kind not in "iu"):
            findings.fault("structure", f"{name} holds values of type {series.array(name).dtype}", label(series))
    if len(series.array("position")) != rounds:
        findings.fault("structure", f"{len(series.array('position'))} positions for {rounds} rounds", label(series))


def _sealed(root: Group, series: Group, findings: Findings) -> None:
    """What the file says of its own samples."""
    stored = series.attributes.get(SAMPLES_ATTRIBUTE)
    if stored is None:
        findings.not_stored("digest", "digests of the samples: an edited sample shows only where it is implausible")
    else:
        findings.repeated("digest", "the digest of a series' samples")
        samples = {name: series.array(name) for name in SAMPLE_DATASETS if series.has(name)}
        if stored != samples_sha256(samples):
            findings.fault("digest", "its samples are not those that its digest was made of", label(series))
    # A series gets its digest behind its summary: without one, an unfinished file may hold half of it.
    half = stored is None and root.attribute("complete") is not True
    if half or not series.has(SUMMARY):
        findings.not_stored("summary", "summaries of the samples")
        return
    summaries = summary_of(series)
    for name in METRIC_DATASETS:
        if not series.has(name):
            continue
        findings.repeated("summary", "count, sum, extremes and quantiles of one metric of a series")
        for what, found in summary(series.array(name), int(series.attributes_of(name)["invocations"])).items():
            said = summaries.get(name, {}).get(what)
            if not isinstance(said, int | float) or not math.isclose(said, found, rel_tol=1e-12):
                findings.fault("summary", f"{what} of {name} is {found}, but was stored as {said}", label(series))


def _contents(root: Group, findings: Findings) -> None:
    stored = root.attributes.get(CONTENTS_ATTRIBUTE)
    if stored is None:
        findings.not_stored("digest", "a digest of everything in the file")
        return
    findings.repeated("digest", "the digest of everything in the file")
    found = contents_sha256(root.tree)
    if stored != found:
        findings.fault("digest", f"the file holds something else than when it was finished ({found[:16]}… now)")


def _tolerances(root: Group, findings: Findings) -> None:
    """A file is held to its own rules, none of which may be laxer than this program's."""
    group = root.group("tolerances")
    rules = acceptance_rules()
    same = 0
    for name in group.names():
        if name not in rules:
            findings.note("tolerances", f"{name} has a tolerance in the file and none in this program")
            continue
        found, wanted = (text.partition(" (")[0] for text in (group.text(name), rules[name]))
        same += found == wanted
        if found != wanted:
            detail = f"{name} is '{found}', this program's '{wanted}'"
            mine, ours = parse_rule(found), parse_rule(wanted)
            if mine and ours and mine.within(ours):
                findings.note("tolerances", f"{detail}: stricter, and its results are held to it")
            else:
                findings.fault("tolerances", detail, "/tolerances")
    checked = {
        check.rpartition(".")[0]
        for series in root.group("series").groups()
        if series.has("verified_after")
        for check in series.group("verified_after").texts("check")
    }
    unstored = set(rules) - set(group.names())
    missing = sorted(name for name in unstored if name in checked or name.startswith("y.row"))
    for name in sorted(unstored - set(missing)):
        findings.not_stored("tolerances", f"a rule for {name}, of which the file has no check")
    if missing:
        findings.fault("tolerances", f"none for {', '.join(missing)}", "/tolerances")
    findings.repeated("tolerances", f"{same} acceptance rules are this program's")


def _states(root: Group, shape: Group, cache: str, findings: Findings) -> None:
    """The device around each round; ``throttled`` follows from the reasons."""
    benign = 1 | 2 | 16 | 256  # idle, applications' clocks, sync boost, display clocks: see record/facts.py
    rounds = len(shape.array("throttled"))
    for name in _STATES:
        values = shape.array(name)
        if values.shape != (rounds, 2):
            raise Damaged(f"{shape.path}/{name} has {values.shape} values for {rounds} rounds")
        if (values < 0).any():
            findings.fault("impossible value", f"{name} is negative", shape.path)
    reasons = shape.array("throttle_reasons")
    throttled = [any(math.isfinite(r) and int(r) & ~benign for r in row) for row in reasons.tolist()]
    findings.repeated("device state", f"whether each of {rounds} rounds was throttled, from the reasons stored")
    if throttled != [bool(value) for value in shape.array("throttled")]:
        findings.fault("device state", "the rounds marked throttled are not those with such a reason", shape.path)
    planned = planned_rounds(root, cache)
    if root.attributes.get("complete") is True and rounds != planned:
        findings.fault("completeness", f"the device's state is stored for {rounds} of {planned} rounds", shape.path)


def _surroundings(root: Group, findings: Findings) -> None:
    device = root.group("device")
    source = "as the emulator stands for it" if device.attribute("kind") == "emulator" else "as its driver said"
    findings.read_only("device", f"{device.attribute('name')}, {device.attribute('sm_count')} SMs, {source}")
    findings.read_only("environment", f"{len(root.group('environment').names())} versions and the command")
    findings.read_only("clocks", "clocks, temperatures and power around each round")
    findings.read_only("resources", "registers, spills and blocks per SM of each kernel")
    if "revision" not in root.group("environment").names():
        findings.not_stored("environment", "the revision of the source tree")


def audit_sources(root: Group, findings: Findings, sources: Mapping[str, str]) -> None:
    with findings.guarded("kernel sources"):
        stored = stored_sources(root)
        wrong = [path for path, digest in stored.items() if not _SHA256.fullmatch(digest)]
        for path in wrong:
            findings.fault("kernel sources", f"the hash of {path} is {stored[path]!r}, no SHA-256", "/kernel_sources")
        same = [path for path, digest in stored.items() if sources.get(path) == digest]
        if same:
            findings.repeated("kernel sources", f"{len(same)} of {len(stored)} kernel sources hash as stored")
        other = [path for path in stored if path not in same]
        if other:
            findings.note("kernel sources", f"this installation has another {', '.join(other)}: its hash is only read")


def stored_sources(root: Group) -> dict[str, str]:
    group = root.group("kernel_sources")
    paths, digests = group.texts("path"), group.texts("sha256")
    if len(paths) != len(digests):
        raise Damaged(f"/kernel_sources has {len(paths)} paths and {len(digests)} hashes")
    return dict(zip(paths, digests, strict=True))


def _manifest(root: Group, findings: Findings) -> None:
    """What was fixed before the session, against what the session then stored."""
    group = root.group("manifest") if root.has("manifest") else None
    if group is None or not group.text("json"):
        findings.not_stored("manifest", "a manifest: nothing was frozen before the session")
        return
    changes = group.text("changes").splitlines() if "changes" in group.names() else []
    findings.read_only("manifest", f"its state: {group.attributes.get('state', 'unknown')}")
    if changes and group.attributes.get("state") == "as frozen":
        findings.fault("manifest", f"its state is 'as frozen', but {changes[0]}")
    tolerances = root.group("tolerances")
    stored: dict[str, Mapping[str, Any]] = {
        "kernel_sources": stored_sources(root),
        "configurations": {"frozen.toml": hashlib.sha256(root.text("configurations").encode()).hexdigest()},
        "protocol": root.group("protocol").attributes,
        "fixture": {"name": root.attribute("fixture")},
        "tolerances": {name: tolerances.text(name) for name in tolerances.names()},
    }
    frozen = json.loads(group.text("json"))
    for section, found in stored.items():
        promised = frozen.get(section) if isinstance(frozen, dict) else None
        for name, value in promised.items() if isinstance(promised, dict) else ():
            if section == "fixture" and name not in found:
                continue  # how it is made, which the input's own digest shows
            findings.repeated("manifest", f"an entry of its section {section}, against what the file holds")
            if found.get(name) == value:
                continue
            detail = f"{section} {name} is {found.get(name)!r}, but was frozen as {value!r}"
            if changes:
                findings.note("manifest", f"{detail}; the file says that it changed")
            else:
                findings.fault("manifest", detail)


assert set(_WARM_METRICS) | set(_EVICTED_METRICS) | {"round", "position"} == set(SAMPLE_DATASETS)
