"""Compiles kernel sources to a cubin with NVRTC. Needs neither a driver nor a GPU."""

import functools
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from cuda import pathfinder
from cuda.bindings import nvrtc

from megakernel.device.sources import kernel_folder
from megakernel.errors import CompileError, MissingError, UsageError
from megakernel.record.facts import KernelResources

_HEADER_PACKAGES = {"cudart": "nvidia-cuda-runtime", "cccl": "nvidia-cuda-cccl"}

# No fused multiply-add and no fast math: the arithmetic is what the source says, on every device.
_LANGUAGE_OPTIONS = ("--std=c++17", "--fmad=false")

# From NVRTC's own cache, which came with 12.9, the assembler's report does not come back.
_NO_CACHE, _CACHES_SINCE = "--no-cache", (12, 9)


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture.

    Attributes:
        image: the cubin.
        resources: by name expression.
        options: those NVRTC was given.
        nvrtc_version: such as ``"13.0"``.
        log: NVRTC's log, with the assembler's resource report.
        ptx: the intermediate code; empty where the cubin comes from the cache.
    """

    image: bytes
    arch: str
    resources: Mapping[str, KernelResources]
    options: tuple[str, ...]
    nvrtc_version: str
    log: str
    ptx: bytes = b""


def _call(function: Any, *arguments: Any) -> Any:
    try:
        status, *results = function(*arguments)
    except RuntimeError as error:
        raise MissingError(f"NVRTC is missing (install nvidia-cuda-nvrtc): {str(error).splitlines()[0]}") from error
    if int(status):
        raise CompileError(f"{function.__name__} failed with {status.name} ({int(status)})")
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def nvrtc_version() -> str:
    return ".".join(str(part) for part in _call(nvrtc.nvrtcVersion))


def supported_archs() -> tuple[str, ...]:
    """The architectures that this NVRTC makes machine code for."""
    return tuple(f"sm_{number}" for number in sorted(_call(nvrtc.nvrtcGetSupportedArchs)))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _include_folders(version: str) -> list[Path]:
    """CUDA's headers: those of the packages beside this Python, else a toolkit's of the same major version."""
    folders = []
    for component, package in _HEADER_PACKAGES.items():
        folder = pathfinder.find_nvidia_header_directory(component)
        if folder is None:
            raise MissingError(f"the CUDA headers of {package} are missing: {_install_hint(version)}")
        folders.append(Path(folder))
    found = _headers_version(folders[0])
    if found and found.split(".")[0] != version.split(".")[0]:
        raise MissingError(
            f"NVRTC is of CUDA {version}, but the headers in {folders[0]} are of CUDA {found}: {_install_hint(version)}"
        )
    return folders


@functools.cache
def _header_packages() -> tuple[str, ...]:
    found = []
    for package in (*_HEADER_PACKAGES.values(), *(f"{name}-cu12" for name in _HEADER_PACKAGES.values())):
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{package} {metadata.version(package)}")
    return tuple(found)


@functools.cache
def _headers_version(folder: Path) -> str:
    """The CUDA version that the headers state; empty where they state none."""
    try:
        stated = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", (folder / "cuda.h").read_text(errors="replace"))
    except OSError:
        return ""
    return f"{int(stated.group(1)) // 1000}.{int(stated.group(1)) % 1000 // 10}" if stated else ""


def _install_hint(version: str) -> str:
    return f"install megakernel[cu{version.split('.')[0]}]"


def _program_text(program: Any, size: Any, get: Any) -> str:
    buffer = bytearray(_call(size, program))
    _call(get, program, buffer)
    return bytes(buffer).rstrip(b"\0").decode(errors="replace").strip()


@dataclass(frozen=True)
class Recipe:
    """All that a compilation depends on, besides the headers in ``own_folders``.

    Attributes:
        cuda_headers: the installed packages that CUDA's headers come from, with their versions.
    """

    source: Path
    kernel_names: tuple[str, ...]
    arch: str
    own_folders: tuple[Path, ...]
    options: tuple[str, ...]
    nvrtc_version: str
    cuda_headers: tuple[str, ...]


def make_recipe(source: Path, kernel_names: tuple[str, ...], arch: str) -> Recipe:
    """Prepares to compile the named kernels of one source.

    Args:
        source: a ``.cu`` file; headers are found beside it, in the shipped kernel folder and in CUDA's.
        kernel_names: name expressions, such as ``row_retained<256, 4096, Shape::exact>``.
        arch: a real architecture, such as ``sm_90``.

    Raises:
        UsageError: this NVRTC makes no machine code for ``arch``.
        MissingError: NVRTC or a header package is not installed, or the source is not there.
    """
    version = nvrtc_version()
    if arch not in supported_archs():
        raise UsageError(
            f"architecture {arch!r} is not one that NVRTC {version} compiles for: "
            f"choose from {', '.join(supported_archs())}"
        )
    if not source.is_file():
        raise MissingError(f"{source}: no such kernel source")
    own_folders = tuple(dict.fromkeys((source.parent, kernel_folder())))
    options = (
        f"--gpu-architecture={arch}",
        *_LANGUAGE_OPTIONS,
        "--ptxas-options=-v",
        *([_NO_CACHE] if _numbers(version) >= _CACHES_SINCE else []),
        *(f"--include-path={folder}" for folder in (*own_folders, *_include_folders(version))),
    )
    return Recipe(source, kernel_names, arch, own_folders, options, version, _header_packages())


def compile_recipe(recipe: Recipe) -> Cubin:
    """Compiles.

    Raises:
        CompileError: with NVRTC's log and the options.
    """
    source, names = recipe.source, recipe.kernel_names
    program = _call(nvrtc.nvrtcCreateProgram, source.read_bytes(), str(source).encode(), 0, None, None)
    try:
        for name in names:
            _call(nvrtc.nvrtcAddNameExpression, program, name.encode())
        encoded = [option.encode() for option in recipe.options]
        status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        log = _program_text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        if int(status):
            options = " ".join(recipe.options)
            raise CompileError(f"{source} did not compile ({status.name}):\n{log}\noptions: {options}")
        image = bytearray(_call(nvrtc.nvrtcGetCUBINSize, program))
        _call(nvrtc.nvrtcGetCUBIN, program, image)
        ptx = bytearray(_call(nvrtc.nvrtcGetPTXSize, program))
        _call(nvrtc.nvrtcGetPTX, program, ptx)
        symbols = {name: _call(nvrtc.nvrtcGetLoweredName, program, name.encode()).decode() for name in names}
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    resources = {name: _resources(name, symbol, log) for name, symbol in symbols.items()}
    ptx_text = bytes(ptx).rstrip(b"\0")
    return Cubin(bytes(image), recipe.arch, resources, recipe.options, recipe.nvrtc_version, log, ptx_text)


def _resources(name: str, symbol: str, log: str) -> KernelResources:
    """Reads the assembler's report on one kernel."""
    report = re.search(rf"Compiling entry function '{re.escape(symbol)}'.*?(?=Compiling entry|\Z)", log, re.DOTALL)
    text = report.group(0) if report else ""

    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found.group(1)) if found else 0

    registers = number(r"Used (\d+) registers")
    if not registers:
        raise CompileError(f"the assembler reported no registers for {name}: NVRTC's log has another form\n{log}")
    return KernelResources(
        name=name,
        symbol=symbol,
        registers=registers,
        static_shared_bytes=number(r"(\d+) bytes smem"),
        local_bytes=number(r"(\d+) bytes stack frame"),
        spill_store_bytes=number(r"(\d+) bytes spill stores"),
        spill_load_bytes=number(r"(\d+) bytes spill loads"),
    )
