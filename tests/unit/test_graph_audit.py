"""The audit of a graph reports the loss or change of any single thing in it."""

import gc
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.fakes import FakeDevice

from megakernel.operator.contract import Problem
from megakernel.record.plan import Node, Topology
from megakernel.run.graph import audit, describe, expected_topology, to_dot
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration


def topology_of(name: str, rows: int = 3) -> Topology:
    device = FakeDevice(sm_count=16, blocks_per_sm=1)  # 16 blocks: a row of 10 a launch
    with (
        KernelStore(device) as store,
        Operands(device, Problem(rows, 10_000)) as operands,
        prepare(device, store, CATALOGUE[name], operands, Configuration(256, 1024)) as prepared,
    ):
        return expected_topology(prepared.plan, prepared.kernels, prepared.addresses)


def altered_nodes(node: Node) -> Iterator[tuple[str, Node]]:
    yield "symbol", replace(node, symbol=node.symbol + "x")
    yield "grid", replace(node, grid=node.grid + 1)
    yield "block", replace(node, block=node.block * 2 + 32)
    yield "shared_bytes", replace(node, shared_bytes=node.shared_bytes + 4)
    yield "cooperative", replace(node, cooperative=not node.cooperative)
    for i in range(len(node.arguments)):
        yield "arguments", replace(node, arguments=node.arguments[:i] + node.arguments[i + 1 :])
        yield (
            "arguments",
            replace(node, arguments=(*node.arguments[:i], node.arguments[i] ^ 1, *node.arguments[i + 1 :])),
        )


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_graph_as_declared_passes(name: str) -> None:
    expected = topology_of(name)
    assert audit(expected, expected) == []
    assert audit(replace(expected, edges=expected.edges[::-1]), expected) == []


@pytest.mark.parametrize("name", CATALOGUE)
def test_any_change_of_a_node_is_reported_by_node_and_field(name: str) -> None:
    # A node that lost its cooperative attribute runs unprotected, and its hang comes later.
    expected = topology_of(name)
    for position, node in enumerate(expected.nodes):
        for field, altered in altered_nodes(node):
            nodes = (*expected.nodes[:position], altered, *expected.nodes[position + 1 :])
            (fault,) = audit(replace(expected, nodes=nodes), expected)
            assert fault.startswith(f"node {position} ({node.symbol}): {field} is ")


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_missing_or_added_node_is_reported(name: str) -> None:
    expected = topology_of(name)
    for position in range(len(expected.nodes)):
        fewer = replace(expected, nodes=expected.nodes[:position] + expected.nodes[position + 1 :])
        assert f"{len(expected.nodes) - 1} nodes instead of {len(expected.nodes)}" in audit(fewer, expected)
    more = replace(expected, nodes=(*expected.nodes, expected.nodes[-1]))
    assert audit(more, expected) == [f"{len(expected.nodes) + 1} nodes instead of {len(expected.nodes)}"]


@pytest.mark.parametrize("name", ["unfused", "local_recompute", "row_retained"])
def test_any_change_of_an_edge_is_reported(name: str) -> None:
    expected = topology_of(name)
    assert expected.edges
    for position, (a, b) in enumerate(expected.edges):
        rest = expected.edges[:position] + expected.edges[position + 1 :]
        assert audit(replace(expected, edges=rest), expected) == [f"edge {a} -> {b} is missing"]
        turned = audit(replace(expected, edges=(*rest, (b, a))), expected)
        assert turned == [f"edge {a} -> {b} is missing", f"edge {b} -> {a} was not declared"]
    extra = replace(expected, edges=(*expected.edges, (0, 2)))
    assert audit(extra, expected) == ["edge 0 -> 2 was not declared"]


def test_an_edge_that_became_programmatic_or_no_longer_is_one_is_reported() -> None:
    # A programmatic edge in front of a kernel that does not wait is a race.
    expected = topology_of("local_recompute_pdl")
    assert expected.edges == expected.programmatic == ((0, 1), (1, 2))
    lost = replace(expected, programmatic=expected.programmatic[:1])
    assert audit(lost, expected) == ["edge 1 -> 2 is not programmatic"]
    assert audit(expected, lost) == ["edge 1 -> 2 is programmatic"]
    assert topology_of("local_recompute").programmatic == ()


def test_row_groups_follow_one_another_in_one_chain() -> None:
    expected = topology_of("row_retained", rows=3)
    assert len(expected.nodes) == 3
    assert expected.edges == ((0, 1), (1, 2))
    assert all(node.cooperative for node in expected.nodes)
    assert len({node.arguments for node in expected.nodes}) == 3


def test_arguments_of_the_topology_are_values_not_views_of_freed_memory() -> None:
    first = topology_of("unfused")
    gc.collect()
    assert audit(topology_of("unfused"), first) == []


def test_a_description_has_a_line_for_each_node_and_names_what_it_waits_for() -> None:
    lines = describe(topology_of("row_retained"), {})
    assert len(lines) == 3
    assert lines[0].endswith(" cooperative")
    assert lines[2].startswith("2: _Zrow_retained<256, 1024, Shape::aligned> grid 10 block 256 shared 4192 B")
    assert lines[2].endswith(" cooperative after 1")


def test_dot_names_every_node_and_edge() -> None:
    dot = to_dot(topology_of("local_recompute"), "local_recompute", {"_Zunknown": "x"})
    assert dot.startswith('digraph "local_recompute" {')
    assert dot.endswith("}")
    assert dot.count("[label=") == 3
    assert "  n0 -> n1;" in dot
    assert "  n1 -> n2;" in dot


def test_programmatic_edges_are_described_and_drawn_dashed() -> None:
    topology = topology_of("local_recompute_pdl")
    first, second, third = describe(topology, {})
    assert "programmatic" not in first
    assert second.endswith(" after 0 (programmatic)")
    assert third.endswith(" after 1 (programmatic)")
    dot = to_dot(topology, "pdl", {})
    assert "  n0 -> n1 [style=dashed, label=programmatic];" in dot
    assert "  n1 -> n2 [style=dashed, label=programmatic];" in dot
    one = replace(topology, programmatic=((1, 2),))
    assert "  n0 -> n1;" in to_dot(one, "pdl", {})
    assert describe(one, {})[1].endswith(" after 0")
    assert "programmatic" not in "".join(describe(topology_of("local_recompute"), {}))
