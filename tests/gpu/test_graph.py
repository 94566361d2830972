"""A graph is what its declaration says, and the audit notices whatever is not."""

from collections.abc import Callable
from typing import Any

import pytest
from cuda.bindings import driver

from megakernel.device.driver import add_dependencies, call, get_edges, remove_dependencies
from megakernel.device.face import Device
from megakernel.operator.contract import Problem
from megakernel.run.graph import audit, expected_topology
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.variants.catalogue import CATALOGUE

pytestmark = pytest.mark.gpu

_COOPERATIVE = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE


def _faults(gpu: Device, store: KernelStore, name: str, damage: Callable[[Any], None]) -> list[str]:
    with (
        Operands(gpu, Problem(64)) as operands,
        prepare(gpu, store, CATALOGUE[name], operands) as prepared,
        prepared.executable("graph") as graph,
    ):
        damage(graph)
        topology = graph.topology()
        assert topology is not None
        return audit(topology, expected_topology(prepared.plan, prepared.kernels, prepared.addresses))


@pytest.mark.parametrize("name", [name for name, variant in CATALOGUE.items() if not variant.libraries])
def test_as_declared(gpu: Device, store: KernelStore, name: str) -> None:
    assert _faults(gpu, store, name, lambda graph: None) == []


def _drop_cooperative(graph: Any) -> None:
    value = driver.CUkernelNodeAttrValue()
    value.cooperative = 0
    call(driver.cuGraphKernelNodeSetAttribute, graph._nodes[1], _COOPERATIVE, value)


def _edge(graph: Any, first: int, second: int) -> list[Any]:
    """The edge between two nodes, as the functions that change edges take it."""
    sources, targets, data, *_ = call(get_edges, graph._graph, len(graph._nodes) - 1)
    a, b = graph._nodes[first], graph._nodes[second]
    found = {(int(s), int(t)): edge for s, t, edge in zip(sources, targets, data, strict=True)}
    return [[a], [b], [found[int(a), int(b)]]]


def _drop_edge(graph: Any) -> None:
    call(remove_dependencies, graph._graph, *_edge(graph, 0, 1), 1)


def _drop_node(graph: Any) -> None:
    call(driver.cuGraphDestroyNode, graph._nodes[0])


def _other_argument(graph: Any) -> None:
    parameters = call(driver.cuGraphKernelNodeGetParams, graph._nodes[0])
    parameters.kernelParams = graph._packed[1].pointers_address
    call(driver.cuGraphKernelNodeSetParams, graph._nodes[0], parameters)


def _plain_edge(graph: Any) -> None:
    """The first programmatic edge becomes an ordinary one."""
    edge = _edge(graph, 0, 1)
    call(remove_dependencies, graph._graph, *edge, 1)
    call(add_dependencies, graph._graph, *edge[:2], [driver.CUgraphEdgeData()], 1)


def test_a_programmatic_edge_that_is_none_is_found(gpu: Device, store: KernelStore) -> None:
    assert _faults(gpu, store, "local_recompute_pdl", _plain_edge) == ["edge 0 -> 1 is not programmatic"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_drop_cooperative, "cooperative is False instead of True"),
        (_drop_edge, "edge 0 -> 1 is missing"),
        (_drop_node, "1 nodes instead of 2"),
        (_other_argument, "arguments is"),
    ],
)
def test_damage_is_found(gpu: Device, store: KernelStore, damage: Callable[[Any], None], message: str) -> None:
    faults = _faults(gpu, store, "row_retained", damage)
    assert any(message in fault for fault in faults), faults


def test_setting_parameters_again_keeps_the_cooperative_attribute(gpu: Device, store: KernelStore) -> None:
    def set_again(graph: Any) -> None:
        for node in graph._nodes:
            call(driver.cuGraphKernelNodeSetParams, node, call(driver.cuGraphKernelNodeGetParams, node))

    assert _faults(gpu, store, "retained", set_again) == []
