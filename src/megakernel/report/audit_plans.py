"""Of an audit: are plans what the catalogue declares, and graphs what the plans say?

Worked out here on its own path: ``run`` makes the plans, and a slip there must not be repeated here.
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from megakernel.operator.contract import Problem
from megakernel.record.plan import CHILD_GRAPH
from megakernel.record.tree import Damaged, Group
from megakernel.report.audit_structure import label, stored_sources
from megakernel.report.findings import Findings
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration, Stage, Variant

Json = dict[str, Any]

_FIELDS = ("kernel", "grid", "block", "shared_bytes", "cooperative", "barrier_members", "programmatic", "library")


def audit(root: Group, findings: Findings, sources: Mapping[str, str]) -> None:
    same = {path for path, digest in stored_sources(root).items() if sources.get(path) == digest}
    headers = {path for path in stored_sources(root) if path.endswith(".cuh")}
    for series in root.group("series").groups():
        place = label(series)
        with findings.guarded("plan", place):
            plan = json.loads(series.text("plan"))
            with findings.guarded("plan", place):
                _plan(root, series, plan, findings)
            variant = CATALOGUE.get(series.attribute("variant"))
            if variant is None:
                name = series.attribute("variant")
                findings.read_only("declaration", f"{name} is not in this program's catalogue: its plan and kernels")
            else:
                with findings.guarded("declaration", place):
                    _declaration(series, plan, variant, same, headers <= same, findings)
            with findings.guarded("graph", place):
                _graph(root, series, plan, findings)


def _plan(root: Group, series: Group, plan: Json, findings: Findings) -> None:
    """What must hold of any plan."""
    findings.repeated("plan", "row groups, allocations, offsets, residency and resources of a series' plan")
    place = label(series)
    problem = {name: series.attribute(name) for name in ("rows", "width", "eps")}
    configuration = {name: series.attribute(name) for name in ("threads", "tile")}
    for what, found, wanted in (
        ("variant", plan["variant"], series.attribute("variant")),
        ("problem", plan["problem"], problem),
        ("configuration", plan["configuration"], configuration),
        ("number of launches", len(plan["launches"]), series.attribute("launches")),
    ):
        if found != wanted:
            findings.fault("plan", f"its {what} is {found}, the series' {wanted}", place)
    groups = sorted({(launch["first_row"], launch["rows"]) for launch in plan["launches"]})
    ends = [0, *(first + rows for first, rows in groups)]
    if [first for first, _ in groups] != ends[:-1] or ends[-1] != problem["rows"]:
        findings.fault("plan", f"its row groups {groups} do not cover {problem['rows']} rows once", place)
    sizes = {allocation["quantity"]: allocation["nbytes"] for allocation in plan["allocations"]}
    for launch in plan["launches"]:
        for argument in launch["arguments"]:
            if "quantity" in argument and not 0 <= argument["offset_bytes"] < sizes.get(argument["quantity"], 0):
                findings.fault("plan", f"{launch['kernel']}: {argument} lies outside of its allocation", place)
    rooms = {room["resources"]["name"]: room for room in plan["residencies"]}
    for launch in plan["launches"]:
        room = rooms.get(launch["kernel"])
        if launch.get("library"):
            continue  # its kernels are its own
        if room is None:
            findings.fault("plan", f"the resources of {launch['kernel']} are missing", place)
        elif launch["cooperative"] and launch["grid"] > room["blocks_per_sm"] * room["sm_count"]:
            cap = room["blocks_per_sm"] * room["sm_count"]
            findings.fault("plan", f"{launch['kernel']}: {launch['grid']} blocks meet, {cap} are resident", place)
    _resources(root, series, plan["residencies"], findings)


def _resources(root: Group, series: Group, rooms: list[Json], findings: Findings) -> None:
    """The same resources are stored twice: with the plan, and as attributes."""
    entries = [entry.attributes for entry in series.group("resources").groups()]
    if len(entries) != len(rooms):
        findings.fault("plan", f"{len(entries)} resources are stored for {len(rooms)} stages", label(series))
    for number, (entry, room) in enumerate(zip(entries, rooms, strict=False)):
        wanted = {**room["resources"], "threads": room["threads"], "dynamic_shared_bytes": room["shared_bytes"]}
        wanted |= {name: room[name] for name in ("blocks_per_sm", "sm_count")}
        wanted["cap"] = room["blocks_per_sm"] * room["sm_count"]
        for name, value in wanted.items():
            if name in entry and entry[name] != value:
                findings.fault("plan", f"stage {number}: {name} is {entry[name]}, in the plan {value}", label(series))
        if room["sm_count"] != root.group("device").attribute("sm_count"):
            findings.fault(
                "plan", f"stage {number} counts {room['sm_count']} SMs, the device has others", label(series)
            )


def _declaration(
    series: Group, plan: Json, variant: Variant, same: set[str], headers_same: bool, findings: Findings
) -> None:
    """Launch by launch. Where the kernel's source was another, its declaration may have been, too."""
    problem = Problem(series.integer("rows"), series.integer("width"), float(series.attribute("eps")))
    configuration = Configuration(series.integer("threads"), series.integer("tile"))
    place = label(series)
    if series.attribute("computes") != variant.computes:
        findings.fault("declaration", f"it computes {series.attribute('computes')}, not {variant.computes}", place)
    differences: list[tuple[bool, str]] = []
    launches, stages = plan["launches"], variant.stages
    if len(launches) % len(stages):
        differences.append((True, f"{len(launches)} launches for {len(stages)} stages"))
    for number, launch in enumerate(launches):
        stage = stages[number % len(stages)]
        for name, wanted in _declared(stage, launch, problem, configuration).items():
            if name in launch and launch[name] != wanted:
                said = f"launch {number} ({launch['kernel']}): {name} is {launch[name]}, declared {wanted}"
                differences.append((name != "shared_bytes", said))
    for quantity in variant.quantities:
        wanted_bytes = problem.rows * quantity.row_bytes(problem, configuration.tile)
        found = [a["nbytes"] for a in plan["allocations"] if a["quantity"] == quantity.name]
        if found != [wanted_bytes]:
            differences.append((True, f"{quantity.name} has {found} bytes, declared {wanted_bytes}"))
    if not differences:
        findings.repeated("declaration", "every launch of a series, from this program's catalogue")
    for of_source, difference in differences:
        if variant.source in same and (of_source or headers_same):
            findings.fault("declaration", difference, place)
        else:
            findings.note("declaration", f"{difference}; the kernel sources were others", place)


def _declared(stage: Stage, launch: Json, problem: Problem, configuration: Configuration) -> Json:
    scalars = {
        "width": problem.width,
        "tiles": problem.tiles(configuration.tile),
        "inverse_width": 1 / problem.width,
        "eps": problem.eps,
    }
    first_row = launch["first_row"]
    arguments: list[Json] = [
        {"quantity": q.name, "offset_bytes": first_row * q.row_bytes(problem, configuration.tile)}
        for q in stage.quantities
    ]
    arguments += [
        {"name": s.name, "dtype": s.dtype, "value": scalars[s.name] if s.value is None else s.value}
        for s in stage.scalars
    ]
    values = (
        stage.kernel_name(problem, configuration),
        stage.blocks(launch["rows"], problem, configuration),
        stage.block_threads(configuration),
        stage.shared_bytes(configuration),
        stage.cooperative,
        stage.blocks_per_row(problem, configuration) if stage.barrier == "row" else 0,
        stage.programmatic,
        stage.library,
    )
    return dict(zip(_FIELDS, values, strict=True)) | {"arguments": arguments}


def _graph(root: Group, series: Group, plan: Json, findings: Findings) -> None:
    if series.attribute("submission") != "graph":
        return
    if not series.has("graph"):
        if root.group("device").attribute("kind") == "gpu":
            raise Damaged(f"{label(series)}: the graph's record is missing")
        findings.not_stored("graph", "graphs: an emulator has none to read back")
        return
    graph = json.loads(series.text("graph"))
    place = label(series)
    nodes, launches = graph["nodes"], plan["launches"]
    findings.repeated("graph", "nodes, edges, attributes and arguments of a series' graph, from its plan")
    if len(nodes) != len(launches):
        findings.fault("graph", f"{len(nodes)} nodes for {len(launches)} launches", place)
    _edges(graph, launches, place, findings)
    symbols = {room["resources"]["name"]: room["resources"]["symbol"] for room in plan["residencies"]}
    bases: dict[str, int] = {}
    for number, (node, launch) in enumerate(zip(nodes, launches, strict=False)):
        if launch.get("library"):
            findings.read_only("graph", f"the kernels of {launch['library']}, in a graph of its own")
            if node["symbol"] != CHILD_GRAPH:
                findings.fault("graph", f"node {number}: {node['symbol']} is no child graph", place)
            continue
        for name in ("grid", "block", "shared_bytes", "cooperative"):
            if node[name] != launch[name]:
                findings.fault("graph", f"node {number}: {name} is {node[name]}, planned {launch[name]}", place)
        if node["symbol"] != symbols.get(launch["kernel"]):
            findings.fault("graph", f"node {number}: {node['symbol']} is not the kernel {launch['kernel']}", place)
        _arguments(number, node["arguments"], launch["arguments"], bases, place, findings)
    sizes = {allocation["quantity"]: allocation["nbytes"] for allocation in plan["allocations"]}
    spans = sorted((base, base + sizes.get(name, 1), name) for name, base in bases.items())
    for (_, end, before), (begin, _, after) in pairwise(spans):
        if begin < end:
            findings.fault("graph", f"the memory of {before} reaches into that of {after}", place)


def _edges(graph: Json, launches: list[Json], place: str, findings: Findings) -> None:
    """A chain, and as many of its edges programmatic as the plan says."""
    edges = [tuple(edge) for edge in graph["edges"]]
    chain = [(i, i + 1) for i in range(len(launches) - 1)]
    for a, b in chain:
        if (a, b) not in edges:
            findings.fault("graph", f"edge {a} -> {b} is missing", place)
    for edge in edges:
        if edge not in chain or edges.count(edge) > 1:
            findings.fault("graph", f"edge {edge[0]} -> {edge[1]} was not planned", place)
    planned = {(i - 1, i) for i, launch in enumerate(launches) if launch.get("programmatic")}
    found = {tuple(edge) for edge in graph.get("programmatic", ())}
    for a, b in sorted(planned ^ found):
        what = "is not programmatic, as planned" if (a, b) in planned else "is programmatic, which was not planned"
        findings.fault("graph", f"edge {a} -> {b} {what}", place)


def _arguments(
    number: int, bits: list[int], arguments: list[Json], bases: dict[str, int], place: str, findings: Findings
) -> None:
    """Scalars to the bit; addresses against each other: a quantity begins at one address in every launch."""
    if len(bits) != len(arguments):
        findings.fault("graph", f"node {number}: {len(bits)} arguments, planned {len(arguments)}", place)
    for position, (found, argument) in enumerate(zip(bits, arguments, strict=False)):
        if "quantity" in argument:
            base = found - argument["offset_bytes"]
            if bases.setdefault(argument["quantity"], base) != base:
                name = argument["quantity"]
                findings.fault("graph", f"node {number}: argument {position} points elsewhere into {name}", place)
        elif found != (wanted := _bits(argument)):
            name = argument["name"]
            findings.fault("graph", f"node {number}: {name} has the bits {found:#x}, planned {wanted:#x}", place)


def _bits(argument: Json) -> int:
    """As a kernel gets a scalar: see ``TileCount`` of cuda/tile.cuh for a divisor."""
    if argument["dtype"] == "float32":
        return int(np.float32(argument["value"]).view(np.uint32))
    value = int(argument["value"])
    return value | (2**32 - 1) // value << 32 if argument["dtype"] == "divisor" else value
