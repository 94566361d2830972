"""What a session records of its surroundings. What cannot be found out is left out, and never stops a run."""

import platform
import shlex
import subprocess
import sys
from importlib import metadata

from megakernel import __version__
from megakernel.device.sources import kernel_folder

_PACKAGES = (
    "cuda-bindings",
    "cuda-pathfinder",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-runtime",
    "nvidia-cuda-cccl",
    "nvidia-cuda-nvrtc-cu12",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cuda-cccl-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-cu12",
    "cffi",
    "numpy",
    "h5py",
)


def environment() -> dict[str, str]:
    """Versions, the source revision and the command, as text by name."""
    found = {
        "megakernel": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": shlex.join(sys.argv),
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    for name, text in (("driver_release", _driver_release()), ("revision", _revision())):
        if text:
            found[name] = text
    return found


def _driver_release() -> str:
    try:
        from megakernel.device.telemetry import driver_release
    except ImportError:
        return ""
    return driver_release()


def _revision() -> str:
    """The commit of the source tree, marked where it has changes; empty outside a checkout."""
    if kernel_folder().name != "cuda":  # an installed package, perhaps inside somebody else's checkout
        return ""
    try:
        described = subprocess.run(
            ["git", "-C", str(kernel_folder()), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return described.stdout.strip()
