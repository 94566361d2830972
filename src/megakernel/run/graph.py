"""Audits a graph: what the device holds, against what the plan declares."""

from collections.abc import Mapping
from dataclasses import fields

from megakernel.device.arguments import PackedArguments
from megakernel.device.face import Kernel
from megakernel.record.plan import CHILD_GRAPH, Node, Plan, Topology


def expected_topology(plan: Plan, kernels: Mapping[str, Kernel], addresses: Mapping[str, int]) -> Topology:
    """A chain of one node per launch, in order."""
    nodes = tuple(
        Node(
            symbol=kernels[launch.kernel].resources.symbol,
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared_bytes,
            cooperative=launch.cooperative,
            arguments=PackedArguments(launch, addresses).bits,
        )
        if not launch.library
        else Node(CHILD_GRAPH, 0, 0, 0, False, ())
        for launch in plan.launches
    )
    edges = tuple((i, i + 1) for i in range(len(nodes) - 1))
    return Topology(nodes, edges, tuple((a, b) for a, b in edges if plan.launches[b].programmatic))


def audit(actual: Topology, expected: Topology) -> list[str]:
    """Every difference, in words; empty when the graph is as declared."""
    faults = []
    if len(actual.nodes) != len(expected.nodes):
        faults.append(f"{len(actual.nodes)} nodes instead of {len(expected.nodes)}")
    for position, (node, declared) in enumerate(zip(actual.nodes, expected.nodes, strict=False)):
        for field in fields(Node):  # all of them: what is read back is audited
            found, wanted = getattr(node, field.name), getattr(declared, field.name)
            if found != wanted:
                faults.append(f"node {position} ({declared.symbol}): {field.name} is {found} instead of {wanted}")
    faults += [f"edge {a} -> {b} is missing" for a, b in expected.edges if (a, b) not in actual.edges]
    faults += [f"edge {a} -> {b} was not declared" for a, b in actual.edges if (a, b) not in expected.edges]
    for a, b in sorted({*actual.programmatic} ^ {*expected.programmatic}):
        faults.append(f"edge {a} -> {b} is {'not ' if (a, b) in expected.programmatic else ''}programmatic")
    return faults


def describe(topology: Topology, names: Mapping[str, str]) -> list[str]:
    """One line for each node, with the nodes it waits for. ``names`` gives readable names for symbols."""
    lines = []
    for position, node in enumerate(topology.nodes):
        waits = [str(a) for a, b in topology.edges if b == position]
        lines.append(
            f"{position}: {names.get(node.symbol, node.symbol)} grid {node.grid} block {node.block} "
            f"shared {node.shared_bytes} B"
            f"{' cooperative' if node.cooperative else ''}{' after ' + ', '.join(waits) if waits else ''}"
            f"{' (programmatic)' if any(b == position for _, b in topology.programmatic) else ''}"
        )
    return lines


def to_dot(topology: Topology, name: str, names: Mapping[str, str]) -> str:
    """The graph in Graphviz' language."""
    lines = [f'digraph "{name}" {{', "  node [shape=box];"]
    for position, node in enumerate(topology.nodes):
        kind = "cooperative, " if node.cooperative else ""
        label = f"{names.get(node.symbol, node.symbol)}\\n{kind}{node.grid} x {node.block}, {node.shared_bytes} B"
        lines.append(f'  n{position} [label="{label}"];')
    lines += [
        f"  n{a} -> n{b}{' [style=dashed, label=programmatic]' if (a, b) in topology.programmatic else ''};"
        for a, b in topology.edges
    ]
    return "\n".join([*lines, "}"])
