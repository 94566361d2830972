"""The rules that let one kernel source run on two machines (docs/emulator.md), as a lint over the sources' text.

A rule takes the sources by file name, comments blanked out, and returns its violations as ``file:line: what``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Sources = Mapping[str, str]
Rule = Callable[[Sources], list[str]]

PRIMITIVES = "primitives.cuh"
_HALVES = "#else  // The host twins."


def without_comments(text: str) -> str:
    """The text with every comment blanked, so that lines keep their numbers."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.DOTALL)


def read_sources(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.iterdir() if path.suffix in {".cu", ".cuh"})
    return {path.name: path.read_text() for path in paths}


def _outside_primitives(sources: Sources) -> Iterator[tuple[str, str]]:
    for name, text in sources.items():
        if name != PRIMITIVES:
            yield name, without_comments(text)


def _matches(sources: Sources, pattern: str, what: str) -> list[str]:
    """Each place outside primitives.cuh that the pattern matches; the first group, if any, goes into the message."""
    return [
        f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {what.format(*found.groups())}"
        for name, text in _outside_primitives(sources)
        for found in re.finditer(pattern, text, re.MULTILINE)
    ]


# ---- 1. All PTX lives in primitives.cuh, each function with its host twin


def ptx_lives_in_primitives(sources: Sources) -> list[str]:
    return _matches(sources, r"\b(asm|__asm__|__nv_\w+)\b", "{} outside primitives.cuh")


def _functions(half: str) -> set[str]:
    return set(re.findall(r"^DEVICE [\w:<>&* ]*?(\w+)\(", half, re.MULTILINE))


def every_primitive_has_a_host_twin(sources: Sources) -> list[str]:
    gpu_half, divider, host_half = sources[PRIMITIVES].partition(_HALVES)
    if not divider:
        return [f"{PRIMITIVES}: no line {_HALVES!r} between the halves"]
    gpu, host = _functions(without_comments(gpu_half)), _functions(without_comments(host_half.partition("#endif")[0]))
    return [f"{PRIMITIVES}: {name} has no host twin" for name in sorted(gpu - host)] + [
        f"{PRIMITIVES}: {name} exists on the host alone" for name in sorted(host - gpu)
    ]


# ---- 2. Shared memory through block_shared, no standard headers, no macros, one dimension


def shared_memory_through_block_shared(sources: Sources) -> list[str]:
    return _matches(sources, r"\b(__shared__|extern)\b", "{}: shared memory comes from block_shared<T>()")


def own_headers_only(sources: Sources) -> list[str]:
    allowed = {f'"{name}"' for name in sources} | {"<cooperative_groups.h>"}
    return [
        f"{name}: includes {header}"
        for name, text in sources.items()
        for header in re.findall(r"^\s*#\s*include\s*(\S+)", without_comments(text), re.MULTILINE)
        if header not in allowed
    ]


def no_macros(sources: Sources) -> list[str]:
    allowed = r"^[ \t]*#(?![ \t]*(?:include|pragma once|pragma unroll)\b)[ \t]*(\w+)"
    return _matches(sources, allowed, "#{}: templates vary, macros do not")


def one_dimension(sources: Sources) -> list[str]:
    return _matches(
        sources, r"\b((?:threadIdx|blockIdx|blockDim|gridDim)\.[yz])\b|\bdim3\b", "{}: grids have one dimension"
    )


# ---- 3. Waiting through spin_until


def waiting_through_spin_until(sources: Sources) -> list[str]:
    loops = _matches(sources, r"\b(while|do|goto)\b", "{}: wait through spin_until, count with for")
    endless = _matches(sources, r"\bfor\s*\([^;]*;\s*;", "for without a condition: wait through spin_until")
    reads = r"\bfor\s*\([^;]*;[^;]*\b(load_acquire|observe|load)\s*\("
    return loops + endless + _matches(sources, reads, "for over what {} returns: wait through spin_until")


# ---- 4. Global memory through the primitives, and order between blocks through release and acquire


def pointers_are_not_dereferenced(sources: Sources) -> list[str]:
    unary_star = r"(?:^|[=(,;{}!&|+\-/%?:]|\breturn)[ \t]*\*[ \t]*[\w(]"
    found = _matches(sources, unary_star, "a pointer is dereferenced with *")
    addresses = {name: re.sub(r"&(\w+)->", r"&\1. ", text) for name, text in sources.items()}  # &p->m reads nothing
    found += _matches(addresses, r"(?<!\bthis)->", "a pointer is dereferenced with ->")
    found += _matches(sources, r"\w+_cast<[^;{}]*\)\s*\[(?!&|=)", "a cast pointer is indexed")
    for name, text in _outside_primitives(sources):
        declared = re.findall(r"\w\* (?:const )?(\w+)(?=[,;)]| =)", text)  # clang-format sets products as `a * b`
        pointers = "|".join(sorted(set(declared)))
        if pointers:
            use = "use load, store, publish or observe"
            found += _matches({name: text}, rf"\b({pointers})\s*\[", "{} is indexed: " + use)
            found += _matches({name: text}, rf"\)[ \t]*\*[ \t]*({pointers})\b", "{} is dereferenced with *: " + use)
    return found


def order_through_release_and_acquire(sources: Sources) -> list[str]:
    pattern = r"\b(atomic\w+|__threadfence\w*|volatile|__ld\w+|__st\w+)\b"
    return _matches(sources, pattern, "{}: order and data cross blocks through the primitives alone")


def _top_level_blocks(text: str) -> Iterator[str]:
    depth = begin = 0
    for position, character in enumerate(text):
        if character == "{":
            begin = position if depth == 0 else begin
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                yield text[begin : position + 1]


def every_release_has_an_acquire(sources: Sources) -> list[str]:
    """The emulator cannot tell when an acquire is missing: its loads always read the newest visible value."""
    return [
        f"{name}: add_release without load_acquire beside it"
        for name, text in _outside_primitives(sources)
        for block in _top_level_blocks(text)
        if "add_release(" in block and "load_acquire(" not in block
    ]


def values_of_this_launch_are_observed(sources: Sources) -> list[str]:
    """Nor can it tell an ordinary load, which a GPU may serve from a stale cache line, from an observation."""
    return [
        f"{name}: FromThisLaunch reads without observe"
        for name, text in _outside_primitives(sources)
        for body in re.findall(r"\bstruct FromThisLaunch \{(.*?)^\};", text, re.DOTALL | re.MULTILINE)
        if "observe(" not in body or "load(" in body
    ]


RULES: tuple[Rule, ...] = (
    ptx_lives_in_primitives,
    every_primitive_has_a_host_twin,
    shared_memory_through_block_shared,
    own_headers_only,
    no_macros,
    one_dimension,
    waiting_through_spin_until,
    pointers_are_not_dereferenced,
    order_through_release_and_acquire,
    every_release_has_an_acquire,
    values_of_this_launch_are_observed,
)
