"""The one door to the CUDA driver: every call is checked, and an error names the call, its code and meaning."""

from typing import Any

from cuda.bindings import driver

from megakernel.errors import DeviceError, MissingError

# With edge data; CUDA 12's bindings give these functions names of their own.
add_dependencies = getattr(driver, "cuGraphAddDependencies_v2", driver.cuGraphAddDependencies)
remove_dependencies = getattr(driver, "cuGraphRemoveDependencies_v2", driver.cuGraphRemoveDependencies)
get_edges = getattr(driver, "cuGraphGetEdges_v2", driver.cuGraphGetEdges)

_NO_GPU_HINT = "an NVIDIA driver and GPU are needed here"


def failure(name: str, code: Any) -> DeviceError:
    """The error for a driver call that returned ``code``."""
    meaning = ""
    status, text = driver.cuGetErrorString(code)
    if int(status) == 0 and text:
        meaning = f": {text.decode(errors='replace')}"
    return DeviceError(f"{name} failed with {code.name} ({int(code)}){meaning}")


def call(function: Any, *arguments: Any) -> Any:
    """Calls the driver and returns what it gives besides its status: nothing, one value, or a tuple.

    Raises:
        DeviceError: the driver refused or failed.
        MissingError: there is no driver.
    """
    try:
        status, *results = function(*arguments)
    except RuntimeError as error:  # the first call of all, without a driver
        raise MissingError(f"no CUDA driver ({_NO_GPU_HINT}): {str(error).splitlines()[0]}") from error
    if int(status):
        raise failure(function.__name__, status)
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def initialise() -> None:
    """Starts the driver.

    Raises:
        MissingError: there is no driver, or no GPU that this process may use.
    """
    try:
        call(driver.cuInit, 0)
    except DeviceError as error:
        raise MissingError(f"no usable GPU ({_NO_GPU_HINT}): {error}") from error
    if call(driver.cuDeviceGetCount) == 0:
        raise MissingError(f"the driver shows no GPU ({_NO_GPU_HINT})")
