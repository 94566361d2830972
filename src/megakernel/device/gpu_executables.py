"""A plan made ready to run on a GPU: as direct launches, or as a graph built node by node.

Both pack the arguments once. The packed memory, the graph and all handles belong to the executable.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cuda.bindings import driver

from megakernel.device.arguments import PackedArguments, host_bits
from megakernel.device.driver import call, failure
from megakernel.record.plan import GraphTimings, Launch, Node, Plan, Submission, Topology

_COOPERATIVE = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE


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


class DirectLaunches(_Submitter):
    """Each invocation launches every kernel of the plan, in order, into the stream."""

    submission: Submission = "direct"
    graph_timings: GraphTimings | None = None

    def __init__(self, plan: Plan, functions: Mapping[str, Any], addresses: Mapping[str, int], stream: Any) -> None:
        self._packed = [_packed(launch, functions[launch.kernel], addresses) for launch in plan.launches]
        calls = []
        for launch, packed in zip(plan.launches, self._packed, strict=True):
            shape = (
                launch.grid,
                1,
                1,
                launch.block,
                1,
                1,
                launch.shared_bytes,
                stream,
                packed.pointers_address,
            )
            if launch.cooperative:
                calls.append(partial(driver.cuLaunchCooperativeKernel, functions[launch.kernel], *shape))
            else:
                calls.append(partial(driver.cuLaunchKernel, functions[launch.kernel], *shape, 0))
        self.submit, self._submission_name = _submit_all(tuple(calls), plan.launches)
        self.wait = partial(driver.cuStreamSynchronize, stream)

    def topology(self) -> Topology | None:
        return None

    def prepare(self) -> None:
        pass

    def __enter__(self) -> "DirectLaunches":
        return self

    def __exit__(self, *_: object) -> None:
        self._packed.clear()


def _submit_all(calls: tuple[Callable[[], Any], ...], launches: tuple[Launch, ...]) -> tuple[Callable[[], Any], str]:
    """One callable for all launches, and the name under which its status is reported."""

    def name(position: int) -> str:
        launch = launches[position]
        call_name = "cuLaunchCooperativeKernel" if launch.cooperative else "cuLaunchKernel"
        return f"{call_name} of {launch.kernel} with {launch.grid} blocks"

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
        self._nodes: list[Any] = []
        self.graph_timings: GraphTimings | None = None
        try:
            started = time.perf_counter_ns()
            self._graph = call(driver.cuGraphCreate, 0)
            for launch in plan.launches:
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
        node = call(driver.cuGraphAddKernelNode, self._graph, before or None, len(before), parameters)
        self._nodes.append(node)
        if launch.cooperative:
            value = driver.CUkernelNodeAttrValue()
            value.cooperative = 1
            status = driver.cuGraphKernelNodeSetAttribute(node, _COOPERATIVE, value)[0]
            if status:
                what = f"cuGraphKernelNodeSetAttribute (cooperative) of {launch.kernel} with {launch.grid} blocks"
                raise failure(what, status)

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
        return Topology(
            nodes=tuple(_read_node(held[handle]) for handle in order),
            edges=_read_edges(self._graph, {handle: position for position, handle in enumerate(order)}),
        )

    def __enter__(self) -> "Graph":
        return self

    def __exit__(self, *_: object) -> None:
        # Statuses are ignored: after a fault every call fails, and the fault is what must be seen.
        if self._executable is not None:
            driver.cuGraphExecDestroy(self._executable)
        if self._graph is not None:
            driver.cuGraphDestroy(self._graph)
        self._executable = self._graph = None


def _read_node(node: Any) -> Node:
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


def _read_edges(graph: Any, positions: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    *_, count = call(driver.cuGraphGetEdges, graph, 0)
    if count == 0:
        return ()
    sources, targets, *_ = call(driver.cuGraphGetEdges, graph, count)
    pairs = zip(sources, targets, strict=True)
    return tuple(sorted((positions[int(a)], positions[int(b)]) for a, b in pairs))
