"""Kernel sources as shared objects for the emulator: finding a C++ compiler, building, caching."""

import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from megakernel.device.cache import default_cache_folder, headers_in, writable
from megakernel.device.sources import kernel_folder
from megakernel.errors import CompileError, MissingError

FLAGS = (
    "-std=c++17",
    "-O2",
    "-g1",  # line tables: addr2line then names the line of a hardware fault
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",  # kernels read floats as float4, as CUDA permits
    "-ffp-contract=off",  # as --fmad=false on the GPU
    "-U_FORTIFY_SOURCE",  # its longjmp refuses to leave the stack of a CUDA thread
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
)
# The oldest processors of each family, which every compiler knows: results then do not depend on the machine
# that compiled, and neither family contracts a product and a sum behind our back.
_ARCHITECTURES = {"x86_64": "x86-64", "AMD64": "x86-64", "aarch64": "armv8-a", "arm64": "armv8-a"}
# Uninitialised variables hold a pattern instead of whatever lay on the stack. g++ knows it from 12 on.
_PATTERN_FLAG = "-ftrivial-auto-var-init=pattern"


@dataclass(frozen=True)
class HostCompiler:
    command: tuple[str, ...]
    version: str
    is_zig: bool = False


@dataclass(frozen=True)
class BuildOptions:
    """Ways to build beyond the usual one. Each gives another shared object."""

    portable_switch: bool = False  # ucontext instead of the hand-written context switch
    undefined_behaviour_sanitizer: bool = False  # a failed check ends the launch as ``undefined_behaviour``
    address_sanitizer: bool = False  # the process must have been started with the sanitizer preloaded
    coverage: bool = False  # gcov: notes, and counters when the process ends, in a folder beside the object

    def flags(self) -> tuple[str, ...]:
        chosen: list[str] = []
        if self.portable_switch:
            chosen += ["-DEMULATOR_PORTABLE_SWITCH"]
        if self.undefined_behaviour_sanitizer:
            chosen += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
        if self.address_sanitizer:
            chosen += ["-fsanitize=address"]
        if self.coverage:
            chosen += ["--coverage", "-fprofile-update=single"]
        return tuple(chosen)


@dataclass(frozen=True)
class SharedObject:
    """A built library. Kernels are called by their position in ``name_expressions``."""

    path: Path
    source: Path
    name_expressions: tuple[str, ...]


def find_compiler() -> HostCompiler:
    """The first that is there: ``$CXX``, g++, clang++, the ziglang package.

    Raises:
        MissingError: none is, or ``$CXX`` does not run.
    """
    named = os.environ.get("CXX")
    if named:
        try:
            return _compiler_from_command(tuple(shlex.split(named)))
        except ValueError as error:
            raise MissingError(f"cannot read the C++ compiler in CXX ({named!r}): {error}") from error
    for program in ("g++", "clang++"):
        if shutil.which(program):
            return _compiler_from_command((program,))
    if importlib.util.find_spec("ziglang"):
        return _zig_compiler()
    raise MissingError(
        "the emulator needs a C++ compiler: set CXX, install g++ or clang++, or the Python package ziglang"
    )


@functools.cache
def _compiler_from_command(command: tuple[str, ...]) -> HostCompiler:
    try:
        asked = [*command, "--version"]
        version = subprocess.run(asked, capture_output=True, text=True, errors="replace", check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingError(f"cannot run the C++ compiler {shlex.join(command)}: {error}") from error
    return HostCompiler(command, version.strip())


@functools.cache
def _zig_compiler() -> HostCompiler:
    """``zig cc`` on C++ without its standard library, which ``zig c++`` would first build for two minutes."""
    zig = (sys.executable, "-m", "ziglang")
    version = subprocess.run([*zig, "version"], capture_output=True, text=True, check=True).stdout
    return HostCompiler((*zig, "cc", "-x", "c++", "-nostdinc++"), f"zig {version.strip()}", is_zig=True)


@functools.cache
def _supports_pattern(compiler: HostCompiler) -> bool:
    if compiler.is_zig:
        return True
    command = [*compiler.command, _PATTERN_FLAG, "-fsyntax-only", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True).returncode == 0


def _flags_for(compiler: HostCompiler, options: BuildOptions) -> tuple[str, ...]:
    flags = [*FLAGS]
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture:
        # zig spells the names of processors with underscores.
        flags.append(f"-march={architecture.replace('-', '_') if compiler.is_zig else architecture}")
    if _supports_pattern(compiler):
        flags.append(_PATTERN_FLAG)
    return (*flags, *options.flags())


def build(
    source: Path,
    name_expressions: Sequence[str],
    *,
    cuda_folder: Path | None = None,
    cache_folder: Path | None = None,
    options: BuildOptions | None = None,
    compiler: HostCompiler | None = None,
) -> SharedObject:
    """The shared object with these kernels of ``source``, from the cache where it was built before.

    Headers are looked for in ``cuda_folder/emulator``, in the folder of the source, and in ``cuda_folder``
    (by default the shipped kernels'). Processes may build at once: each publishes with an atomic rename.

    Raises:
        MissingError: there is no compiler.
        CompileError: with the compiler's output.
    """
    compiler = compiler or find_compiler()
    cuda_folder = cuda_folder or kernel_folder()
    options = options or BuildOptions()
    flags = _flags_for(compiler, options)
    stub = _stub_text(source, name_expressions)
    include_folders = (cuda_folder / "emulator", source.parent, cuda_folder)
    key = _content_key(compiler, flags, stub, (source, *headers_in(include_folders)))
    cache_folder = writable(cache_folder or default_cache_folder())
    built = cache_folder / "emulator" / f"{source.stem}-{key}.so"
    if not _intact(built):
        built.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=built.parent.resolve(), prefix=f"{built.stem}."))
        try:
            fresh = _compile_stub(compiler, flags, stub, include_folders, scratch, cache_folder)
            if not fresh.is_file():
                raise CompileError(f"{shlex.join(compiler.command)} made no shared object: is it a C++ compiler?")
            if built.is_dir():
                shutil.rmtree(built)
            _seal(fresh, built)
        finally:
            if not options.coverage:
                shutil.rmtree(scratch)
    return SharedObject(built, source, tuple(name_expressions))


def _checksum_file(built: Path) -> Path:
    return built.with_suffix(".sha256")


def _intact(built: Path) -> bool:
    """Whether the object is there and what was published: loading a damaged one would crash."""
    try:
        return _checksum_file(built).read_text() == hashlib.sha256(built.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return False


def _seal(fresh: Path, built: Path) -> None:
    """Publishes the object, then its checksum. Builds of one key are not equal to the byte: the later pair counts."""
    checksum = fresh.with_suffix(".sha256")
    checksum.write_text(hashlib.sha256(fresh.read_bytes()).hexdigest())
    os.replace(fresh, built)
    os.replace(checksum, _checksum_file(built))


def _stub_text(source: Path, name_expressions: Sequence[str]) -> str:
    """The translation unit: the emulator, the kernel source, and a table that instantiates the kernels."""
    entries = "".join(f"    Caller<&{expression}>::entry(),\n" for expression in name_expressions)
    return (
        '#include "cuda_host.hpp"\n'
        f'#include "{source.name}"\n'
        "namespace emulator {\n"
        f"const KernelEntry kernel_table[] = {{\n{entries}}};\n"
        "}\n"
    )


def _content_key(compiler: HostCompiler, flags: Sequence[str], stub: str, files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for part in (*compiler.command, compiler.version, platform.machine(), *flags, stub):
        digest.update(part.encode() + b"\0")
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _compile_stub(
    compiler: HostCompiler,
    flags: Sequence[str],
    stub: str,
    include_folders: Sequence[Path],
    scratch: Path,
    cache_folder: Path,
) -> Path:
    stub_path, fresh = scratch / "kernels.cpp", scratch / "kernels.so"
    stub_path.write_text(stub)
    includes = [f"-I{folder.resolve()}" for folder in include_folders]
    # Findings then name "tile.cuh:20" wherever the sources lie, and a cached object suits every checkout.
    relative_names = [f"-ffile-prefix-map={folder.resolve()}/=" for folder in include_folders[1:]]
    relative_names.append(f"-ffile-prefix-map={scratch}=.")
    files = [str(stub_path), "-o", str(fresh), "-lrt"]
    command = [*compiler.command, *flags, *relative_names, *includes, *files]
    environment = dict(os.environ)
    if compiler.is_zig:
        environment["ZIG_GLOBAL_CACHE_DIR"] = environment["ZIG_LOCAL_CACHE_DIR"] = str(cache_folder / "zig")
    outcome = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, cwd=scratch)
    if outcome.returncode != 0:
        raise CompileError(f"{shlex.join(command)}\n{outcome.stderr}{stub}")
    return fresh
