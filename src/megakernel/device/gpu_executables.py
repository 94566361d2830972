"""A plan made ready to run on a GPU: as direct launches, or as a graph built node by node.

Both pack the arguments once. The packed memory, the graph and all handles belong to the executable.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cuda.bindings import driver

from megakernel.device.arguments import PackedArguments, host_bits
from megakernel.device.driver import add_dependencies, call, failure, get_edges
from megakernel.device.libraries import LibraryCall, library_call
from megakernel.errors import DeviceError
from megakernel.record.plan import CHILD_GRAPH, GraphTimings, Launch, Node, Plan, Submission, Topology

_COOPERATIVE = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_PROGRAMMATIC_EDGE = driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
_PROGRAMMATIC_PORT = 1  # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC: when every block has let the next launch start

_CAPTURE_MODE = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


def parameter_sizes(function: Any) -> tuple[int, ...]:
    """Bytes of each parameter of a kernel, as it was compiled."""
    sizes: list[int] = []
    while True:
        status, *layout = driver.cuFuncGetParamInfo(function, len(sizes))
        if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:  # there is no such parameter: that was the last
            return tuple(sizes)
        if status:
            raise failure("cuFuncGetParamInfo", status)
        sizes.append(int(layout[1]))


def _packed(launch: Launch, function: Any, addresses: Mapping[str, int]) -> PackedArguments:
    """Packs a launch's arguments and holds the declared types against the compiled kernel's."""
    packed = PackedArguments(launch, addresses)
    packed.require(parameter_sizes(function), launch.kernel)
    return packed


class _Submitter:
    """What both kinds of executable do with the statuses that the driver's calls return."""

    submit: Callable[[], Any]
    wait: Callable[[], Any]
    _submission_name: str

    def check(self, submitted: Any, waited: Any = None) -> None:
        if submitted is not None and submitted[0]:
            raise failure(self._submission_name, submitted[0])
        if waited is not None and waited[0]:
            raise failure("cuStreamSynchronize", waited[0])

    def run(self) -> None:
        submitted = self.submit()
        self.check(submitted, self.wait())

    def counted_bytes(self) -> None:
        """A GPU counts none."""


class DirectLaunches(_Submitter):
    """Each invocation launches every kernel of the plan, in order, into the stream."""

    submission: Submission = "direct"
    graph_timings: GraphTimings | None = None

    def __init__(self, plan: Plan, functions: Mapping[str, Any], addresses: Mapping[str, int], stream: Any) -> None:
        self._packed: list[PackedArguments] = []
        self._library_calls: list[LibraryCall] = []
        calls: list[Callable[[], Any]] = []
        try:
            for launch in plan.launches:
                if launch.library:
                    self._library_calls.append(library_call(launch, plan.problem.width, addresses, int(stream)))
                    calls.append(self._library_calls[-1])
                else:
                    self._packed.append(_packed(launch, functions[launch.kernel], addresses))
                    calls.append(_bound(launch, functions[launch.kernel], self._packed[-1], stream))
        except BaseException:
            self.__exit__()
            raise
        self.submit, self._submission_name = _submit_all(tuple(calls), plan.launches)
        self.wait = partial(driver.cuStreamSynchronize, stream)

    def topology(self) -> Topology | None:
        return None

    def prepare(self) -> None:
        pass

    def __enter__(self) -> "DirectLaunches":
        return self

    def __exit__(self, *_: object) -> None:
        for called in self._library_calls:
            called.close()
        self._library_calls.clear()
        self._packed.clear()


def _bound(launch: Launch, function: Any, packed: PackedArguments, stream: Any) -> Callable[[], Any]:
    """The driver's call for one launch, with nothing left to pass."""
    grid, block = (launch.grid, 1, 1), (launch.block, 1, 1)
    if launch.programmatic:
        overlap = driver.CUlaunchAttribute()
        overlap.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        overlap.value.programmaticStreamSerializationAllowed = 1
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes, config.hStream = launch.shared_bytes, stream
        config.attrs, config.numAttrs = [overlap], 1
        return partial(driver.cuLaunchKernelEx, config, function, packed.pointers_address, 0)
    shape = (*grid, *block, launch.shared_bytes, stream, packed.pointers_address)
    if launch.cooperative:
        return partial(driver.cuLaunchCooperativeKernel, function, *shape)
    return partial(driver.cuLaunchKernel, function, *shape, 0)


def _submit_all(calls: tuple[Callable[[], Any], ...], launches: tuple[Launch, ...]) -> tuple[Callable[[], Any], str]:
    """One callable for all launches, and the name under which its status is reported."""

    def name(position: int) -> str:
        launch, made = launches[position], calls[position]
        called = made.func.__name__ if isinstance(made, partial) else launch.library
        return f"{called} of {launch.kernel} with {launch.grid} blocks"

    if len(calls) == 1:
        return calls[0], name(0)

    def submit() -> None:
        for launch_kernel in calls:
            status = launch_kernel()[0]
            if status:
                raise failure(name(calls.index(launch_kernel)), status)

    return submit, ""


class Graph(_Submitter):
    """One kernel node per launch, each depending on the one before; replayed with one call."""

    submission: Submission = "graph"
    _submission_name = "cuGraphLaunch"

    def __init__(self, plan: Plan, functions: Mapping[str, Any], addresses: Mapping[str, int], stream: Any) -> None:
        self._stream = stream
        self._graph: Any = None
        self._executable: Any = None
        self._packed: list[PackedArguments] = []
        self._library_calls: list[LibraryCall] = []
        self._nodes: list[Any] = []
        self.graph_timings: GraphTimings | None = None
        try:
            library_calls = self._warm_library_calls(plan, addresses)
            started = time.perf_counter_ns()
            self._graph = call(driver.cuGraphCreate, 0)
            for position, launch in enumerate(plan.launches):
                if launch.library:
                    self._add_library_call(library_calls[position])
                else:
                    self._add(launch, functions[launch.kernel], addresses)
            built = time.perf_counter_ns()
            self._executable = call(driver.cuGraphInstantiate, self._graph, 0)
            instantiated = time.perf_counter_ns()
        except BaseException:
            self.__exit__()
            raise
        self._build_ns, self._instantiate_ns = built - started, instantiated - built
        self.submit = partial(driver.cuGraphLaunch, self._executable, stream)
        self.wait = partial(driver.cuStreamSynchronize, stream)

    def _add(self, launch: Launch, function: Any, addresses: Mapping[str, int]) -> None:
        packed = _packed(launch, function, addresses)
        self._packed.append(packed)
        parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = function
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = launch.grid, 1, 1
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = launch.block, 1, 1
        parameters.sharedMemBytes = launch.shared_bytes
        parameters.kernelParams = packed.pointers_address
        before = self._nodes[-1:]
        if launch.programmatic:  # its edge carries data, which comes with the edge alone
            node = call(driver.cuGraphAddKernelNode, self._graph, None, 0, parameters)
            edge = driver.CUgraphEdgeData()
            edge.type, edge.from_port = _PROGRAMMATIC_EDGE.value, _PROGRAMMATIC_PORT
            call(add_dependencies, self._graph, before, [node], [edge], 1)
        else:
            node = call(driver.cuGraphAddKernelNode, self._graph, before or None, len(before), parameters)
        self._nodes.append(node)
        if launch.cooperative:
            value = driver.CUkernelNodeAttrValue()
            value.cooperative = 1
            status = driver.cuGraphKernelNodeSetAttribute(node, _COOPERATIVE, value)[0]
            if status:
                what = f"cuGraphKernelNodeSetAttribute (cooperative) of {launch.kernel} with {launch.grid} blocks"
                raise failure(what, status)

    def _warm_library_calls(self, plan: Plan, addresses: Mapping[str, int]) -> dict[int, LibraryCall]:
        """The plan's library calls by position, each called once: what a library loads then cannot be captured, and is
        no part of building the graph.
        """
        found = {}
        for position, launch in enumerate(plan.launches):
            if launch.library:
                found[position] = library_call(launch, plan.problem.width, addresses, int(self._stream))
                self._library_calls.append(found[position])
                found[position]()
        if found:
            call(driver.cuStreamSynchronize, self._stream)
        return found

    def _add_library_call(self, called: LibraryCall) -> None:
        """What the library launches is captured, and becomes a child graph."""
        call(driver.cuStreamBeginCapture, self._stream, _CAPTURE_MODE)
        try:
            called()
        except BaseException:
            _, half = driver.cuStreamEndCapture(self._stream)  # its status would only repeat what went wrong
            driver.cuGraphDestroy(half)
            raise
        captured = call(driver.cuStreamEndCapture, self._stream)
        before = self._nodes[-1:]
        try:
            if not call(driver.cuGraphGetNodes, captured, 0)[1]:
                raise DeviceError("the library launched nothing into the stream that was captured")
            node = call(driver.cuGraphAddChildGraphNode, self._graph, before or None, len(before), captured)
            self._nodes.append(node)
        finally:
            call(driver.cuGraphDestroy, captured)  # the node holds a copy

    def prepare(self) -> None:
        """Uploads the graph and replays it once, so that neither falls into a measurement."""
        started = time.perf_counter_ns()
        call(driver.cuGraphUpload, self._executable, self._stream)
        self.check(None, self.wait())
        uploaded = time.perf_counter_ns()
        self.run()
        replayed = time.perf_counter_ns()
        self.graph_timings = GraphTimings(self._build_ns, self._instantiate_ns, uploaded - started, replayed - uploaded)

    def topology(self) -> Topology | None:
        """Reads nodes, attributes, parameters and edges back from the driver."""
        _, count = call(driver.cuGraphGetNodes, self._graph, 0)
        handles, _ = call(driver.cuGraphGetNodes, self._graph, count)
        held = {int(handle): handle for handle in handles}
        added = [int(node) for node in self._nodes]
        order = [h for h in added if h in held] + [h for h in held if h not in added]
        edges = _read_edges(self._graph, {handle: position for position, handle in enumerate(order)})
        return Topology(
            nodes=tuple(_read_node(held[handle]) for handle in order),
            edges=tuple(edges),
            programmatic=tuple(edge for edge, is_programmatic in edges.items() if is_programmatic),
        )

    def __enter__(self) -> "Graph":
        return self

    def __exit__(self, *_: object) -> None:
        # Statuses are ignored: after a fault every call fails, and the fault is what must be seen.
        if self._executable is not None:
            driver.cuGraphExecDestroy(self._executable)
        if self._graph is not None:
            driver.cuGraphDestroy(self._graph)
        for called in self._library_calls:
            called.close()
        self._library_calls.clear()
        self._executable = self._graph = None


def _read_node(node: Any) -> Node:
    if call(driver.cuGraphNodeGetType, node) == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH:
        return Node(CHILD_GRAPH, 0, 0, 0, False, ())
    parameters = call(driver.cuGraphKernelNodeGetParams, node)
    cooperative = call(driver.cuGraphKernelNodeGetAttribute, node, _COOPERATIVE)
    sizes = parameter_sizes(parameters.func)
    values = int(parameters.kernelParams)
    return Node(
        symbol=call(driver.cuFuncGetName, parameters.func).decode(),
        grid=int(parameters.gridDimX * parameters.gridDimY * parameters.gridDimZ),
        block=int(parameters.blockDimX * parameters.blockDimY * parameters.blockDimZ),
        shared_bytes=int(parameters.sharedMemBytes),
        cooperative=bool(cooperative.cooperative),
        arguments=tuple(host_bits(host_bits(values + 8 * i, 8), size) for i, size in enumerate(sizes)),
    )


def _read_edges(graph: Any, positions: Mapping[int, int]) -> dict[tuple[int, int], bool]:
    """Edges in order, each with whether it is programmatic."""
    *_, count = call(get_edges, graph, 0)
    if count == 0:
        return {}
    sources, targets, data, *_ = call(get_edges, graph, count)
    edges = {
        (positions[int(a)], positions[int(b)]): edge.type == _PROGRAMMATIC_EDGE.value
        and edge.from_port == _PROGRAMMATIC_PORT
        for a, b, edge in zip(sources, targets, data, strict=True)
    }
    return dict(sorted(edges.items()))
