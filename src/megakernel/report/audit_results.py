"""Of an audit: are the stored results right, and do the stored verdicts follow from them?"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from megakernel.operator.checks import Check, check_quantity
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import ALL_FIXTURES, TIMING_SEED, hashed, make
from megakernel.operator.reference import Reference
from megakernel.operator.tolerances import LIBRARY_OUTPUT, OF_A_LIBRARY, Tolerance, acceptance_rules, parse_rule
from megakernel.record.tree import Damaged, Group
from megakernel.report.audit_structure import label
from megakernel.report.findings import Findings
from megakernel.variants.catalogue import CATALOGUE

# A reference takes about fifty bytes for each element.
_LARGEST_REFERENCE_ELEMENTS = 2**24

# A measured value comes out the same up to how a library adds float64 values.
_MEASURED_RELATIVE, _MEASURED_ABSOLUTE = 1e-3, 1e-6

_ROW_QUANTITIES = ("row_square_sums", "row_inverse_rms", "row_maxima", "row_exponential_sums")
_TILE_QUANTITIES = ("tile_square_sums", "tile_maxima", "tile_exponential_sums")


def audit(root: Group, findings: Findings) -> None:
    series = root.group("series").groups()
    for one in series:
        for when in ("verified_before", "verified_after"):
            if one.has(when):
                with findings.guarded("verdict", label(one)):
                    _verdicts(one, one.group(when), when, findings)
    for shape in root.group("shapes").groups():
        mine = [s for s in series if s.attributes.get("shape") == int(shape.path[-4:])]
        with findings.guarded("reference", shape.path):
            _shape(root, shape, mine, findings)
        with findings.guarded("output digest", shape.path):
            _same_bits(mine, findings)
    findings.read_only("output", "the outputs besides the stored row, and every check of them")
    findings.read_only("verdict", "what was verified before timing: its outputs are not stored")


def _checks(group: Group) -> dict[str, tuple[bool, float, float]]:
    """Each check's verdict, what was measured and what is allowed, by name."""
    names = group.texts("check")
    columns = [group.array(name).tolist() for name in ("check_passed", "measured", "allowed")]
    if any(len(column) != len(names) for column in columns):
        raise Damaged(f"{group.path} has {len(names)} checks and {[len(c) for c in columns]} values of them")
    return dict(zip(names, zip(*columns, strict=True), strict=True))


def _verdicts(series: Group, group: Group, when: str, findings: Findings) -> None:
    words = when.replace("_", " ")
    checks = _checks(group)
    findings.repeated("verdict", "that each check's verdict follows from what was measured", len(checks))
    for name, (passed, measured, allowed) in checks.items():
        if bool(passed) != (measured <= allowed) and not math.isnan(allowed):
            findings.fault(
                "verdict",
                f"{words}: {name} is marked {'passed' if passed else 'failed'}, measured {measured:.4g}, "
                f"allowed {allowed:.4g}",
                label(series),
            )
    every = bool(checks) and all(bool(passed) for passed, _, _ in checks.values())
    if bool(group.attribute("passed")) != every:
        findings.fault(
            "verdict", f"{words}: marked {'failed' if every else 'passed'}, but its checks say otherwise", label(series)
        )
    elif not every:
        failed = next((name for name, (passed, _, _) in checks.items() if not passed), "there is no check")
        findings.fault("verdict", f"{words}: the result was wrong ({failed})", label(series))
    missing = [name for name in _wanted_checks(series, when) if name not in checks]
    if missing:
        findings.fault("verdict", f"{words}: {missing[0]} was not checked", label(series))


def _wanted_checks(series: Group, when: str) -> list[str]:
    """What a variant of the catalogue is checked for; of others no more than the output."""
    computes = series.attribute("computes")
    if computes == "nothing":
        return ["launch.completes"]
    if computes == "copy":
        return ["y.copied"]
    variant = CATALOGUE.get(series.attribute("variant"))
    quantities = [c for q in variant.written for c in q.components] if variant else ["y"]
    names = [f"{quantity}.{check}" for quantity in quantities for check in ("written", "nan_rows", "accuracy")]
    names += ["y.row_maximum_error", "y.row_sums", "y.non_negative"]
    if when == "verified_after":
        return names
    graph = ["graph.audit"] if series.has("graph") else []
    return [*graph, *names, *(f"changed_input_{replay}.{name}" for replay in (1, 2) for name in names)]


def _shape(root: Group, shape: Group, series: list[Group], findings: Findings) -> None:
    problem = Problem(shape.integer("rows"), shape.integer("width"), float(shape.attribute("eps")))
    fixture = str(root.attribute("fixture"))
    for one in series:
        for when in ("verified_before", "verified_after"):
            if one.has(when) and one.group(when).attribute("fixture") != fixture:
                found = one.group(when).attribute("fixture")
                findings.fault("fixture", f"{when} is of {found!r}, the session of {fixture!r}", label(one))
    if fixture not in ALL_FIXTURES:
        raise Damaged(f"{shape.path}: no fixture is called {fixture!r}")
    if problem.elements > _LARGEST_REFERENCE_ELEMENTS:
        findings.read_only("reference", f"shapes of more than {_LARGEST_REFERENCE_ELEMENTS} elements: {shape.path}")
        return
    seed = root.attributes.get("fixture_seed", TIMING_SEED)
    timing = fixture == "timing"
    x = hashed(problem.rows, problem.width, seed=int(seed)) if timing else make(fixture, problem)
    findings.repeated("input", f"x made again from fixture {fixture!r}, and its digest compared, for a shape")
    x_sha256 = hashlib.sha256(x.tobytes()).hexdigest()
    if shape.attribute("x_sha256") != x_sha256:
        findings.fault(
            "input", f"x_sha256 is not that of fixture {fixture!r}, {problem.rows} x {problem.width}", shape.path
        )
    reference = Reference(x, problem)
    rules = _rules(root)
    for one in series:
        if one.has("verified_after") and one.attribute("computes") != "nothing":
            with findings.guarded("reference", label(one)):
                _output(root, one, reference, rules, x_sha256, findings)
            if one.attribute("computes") == "softmax":
                with findings.guarded("intermediate", label(one)):
                    _intermediates(one, reference, rules, findings)


def _rules(root: Group) -> dict[str, Tolerance]:
    """The tolerances to check by instead of this program's: those in the file, where they are stricter, and for a
    library's output its own.
    """
    group = root.group("tolerances")
    rules = {OF_A_LIBRARY: LIBRARY_OUTPUT}
    for name, text in acceptance_rules().items():
        mine, program = parse_rule(group.text(name)) if name in group.names() else None, parse_rule(text)
        if mine and program and mine.within(program) and not program.within(mine):
            rules[name] = mine
    return rules


def _intermediates(series: Group, reference: Reference, rules: Mapping[str, Tolerance], findings: Findings) -> None:
    after = series.group("verified_after")
    stored = after.group("intermediates")
    checks = _checks(after)
    tile = series.integer("tile")
    rows = reference.problem.rows
    variant = CATALOGUE.get(series.attribute("variant"))
    for name in [c for q in variant.intermediates for c in q.components] if variant else ():
        if name in (*_TILE_QUANTITIES, *_ROW_QUANTITIES) and not stored.has(name):
            findings.fault("intermediate", f"{name} is missing", label(series))
    for name in stored.names():
        if name not in (*_TILE_QUANTITIES, *_ROW_QUANTITIES):
            findings.read_only("intermediate", f"{name}: the reference has no such quantity")
            continue
        values = stored.array(name)
        wanted = (rows, reference.problem.tiles(tile)) if name in _TILE_QUANTITIES else (rows,)
        if values.shape != wanted or values.dtype != np.float32:
            found = f"{values.dtype} {values.shape}"
            findings.fault("intermediate", f"{name} is {found}, not float32 {wanted}", label(series))
            continue
        findings.repeated("intermediate", "a quantity in full, against the reference made again")
        for check in check_quantity(name, values, reference, tile, rules.get(name)):
            _hold(check, checks, series, "intermediate", findings, in_full=True)


def _hold(
    check: Check,
    stored: dict[str, tuple[bool, float, float]],
    series: Group,
    kind: str,
    findings: Findings,
    *,
    in_full: bool,
) -> None:
    """A check made again: it passes, and where all values are there measures what it measured then."""
    if not check.passed:
        findings.fault(kind, str(check), label(series))
        return
    if check.name not in stored:
        return
    measured = stored[check.name][1]
    slack = _MEASURED_ABSOLUTE + _MEASURED_RELATIVE * abs(measured)
    if check.measured > measured + slack or (in_full and check.measured < measured - slack):
        findings.fault(
            kind, f"{check.name} measures {check.measured:.4g} now, and {measured:.4g} in the file", label(series)
        )


def _output(
    root: Group, series: Group, reference: Reference, rules: Mapping[str, Tolerance], x_sha256: str, findings: Findings
) -> None:
    after = series.group("verified_after")
    digest = after.attribute("output_sha256")
    if series.attribute("computes") == "copy":
        findings.repeated("output digest", "a copy's digest is its input's")
        for when in ("verified_before", "verified_after"):
            if series.group(when).attribute("output_sha256") != x_sha256:
                findings.fault("output digest", f"{when}: a copy's output has another digest than x", label(series))
    holder = root.group("series").group(f"{after.integer('output_row_series'):04d}")
    held = holder.group("verified_after")
    if holder.path != series.path:
        if held.attribute("output_sha256") != digest or holder.attribute("shape") != series.attribute("shape"):
            findings.fault("output digest", f"its row is that of {holder.path}, of another output", label(series))
        elif series.attribute("computes") == holder.attribute("computes"):
            return  # the same row of the same output: looked at there
    row, index = held.array("output_row"), after.integer("output_row_index")
    if row.shape != (reference.problem.width,) or row.dtype != np.float32 or not 0 <= index < reference.problem.rows:
        findings.fault("output row", f"it is {row.dtype} {row.shape}, row {index}", label(series))
        return
    if reference.problem.rows == 1:
        findings.repeated("output digest", "the digest of an output of one row, which is stored in full")
        if hashlib.sha256(row.tobytes()).hexdigest() != digest:
            findings.fault("output digest", "the stored row has another digest than the output", label(series))
    findings.repeated("output row", "the stored row of an output, against the reference made again")
    x = reference.x[index : index + 1]
    if series.attribute("computes") == "copy":
        if not np.array_equal(row.view(np.uint32), x[0].view(np.uint32)):
            findings.fault("output row", "a copy's row is not that of x", label(series))
        return
    of_row = Reference(x, Problem(1, reference.problem.width, reference.problem.eps))
    variant = CATALOGUE.get(series.attribute("variant"))
    tolerance = rules.get(OF_A_LIBRARY if variant and variant.libraries else "y")
    checks = _checks(after)
    for check in check_quantity("y", row[None].copy(), of_row, series.integer("tile"), tolerance):
        _hold(check, checks, series, "output row", findings, in_full=reference.problem.rows == 1)


def _same_bits(series: list[Group], findings: Findings) -> None:
    """The shipped kernels add in a fixed order: the same input gives the same bits, however often and submitted how."""
    outputs: dict[tuple[Any, ...], list[tuple[str, str]]] = defaultdict(list)
    for one in series:
        variant = CATALOGUE.get(str(one.attributes.get("variant")))
        if variant is not None and not variant.libraries:
            names = ("variant", "threads", "tile")
            key = tuple(one.attribute(name) for name in names)
            outputs[key] += [
                (f"{label(one)}, {when.replace('_', ' ')}", one.group(when).attribute("output_sha256"))
                for when in ("verified_before", "verified_after")
                if one.has(when)
            ]
    for found in outputs.values():
        digests = [digest for _, digest in found]
        usual = max(set(digests), key=digests.count)
        findings.repeated("output digest", "one variant's outputs, before and after, direct and graph, have one digest")
        for place, digest in found:
            if digest != usual:
                findings.fault("output digest", f"{digest[:16]}… differs from the others' {usual[:16]}…", place)
