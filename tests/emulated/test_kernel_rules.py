"""The shipped kernels keep the rules, and each rule notices when they do not."""

import pytest

from megakernel.device.sources import kernel_folder
from tests.emulated.kernel_rules import (
    RULES,
    Rule,
    every_primitive_has_a_host_twin,
    every_release_has_an_acquire,
    no_macros,
    one_dimension,
    order_through_release_and_acquire,
    own_headers_only,
    pointers_are_not_dereferenced,
    ptx_lives_in_primitives,
    read_sources,
    shared_memory_through_block_shared,
    values_of_this_launch_are_observed,
    waiting_through_spin_until,
    without_comments,
)

SOURCES = read_sources(kernel_folder())

# (rule, file, what is there, what a careless author puts instead, words of the complaint). An empty second text is
# the end of the file.
VIOLATIONS: list[tuple[Rule, str, str, str, str]] = [
    (ptx_lives_in_primitives, "local.cu", "", 'DEVICE void f() { asm volatile("bar.sync 0;"); }', "asm outside"),
    (
        every_primitive_has_a_host_twin,
        "primitives.cuh",
        "DEVICE float reciprocal(float value) { return 1.0f / value; }",
        "",
        "reciprocal has no host twin",
    ),
    (
        every_primitive_has_a_host_twin,
        "primitives.cuh",
        "DEVICE float reciprocal(float value) { return 1.0f / value; }",
        "DEVICE float reciprocal(float value) { return 1.0f / value; }\nDEVICE float cosine(float v) { return v; }",
        "cosine exists on the host alone",
    ),
    (every_primitive_has_a_host_twin, "primitives.cuh", "#else  // The host twins.", "#else", "between the halves"),
    (
        shared_memory_through_block_shared,
        "unfused.cu",
        "",
        "DEVICE void f() { __shared__ int words[4]; }",
        "__shared__",
    ),
    (
        shared_memory_through_block_shared,
        "reductions.cuh",
        "  const int warp = threadIdx.x / 32",
        "  extern float more[];\n  const int warp = threadIdx.x / 32",
        "extern",
    ),
    (own_headers_only, "tile.cuh", '#include "reductions.cuh"', "#include <cstdint>", "<cstdint>"),
    (own_headers_only, "retained.cu", '#include "megakernel.cuh"', '#include "other.cuh"', '"other.cuh"'),
    (
        no_macros,
        "barriers.cuh",
        "constexpr unsigned ROW_BARRIER_WORDS = 32;",
        "#define ROW_BARRIER_WORDS 32",
        "#define",
    ),
    (no_macros, "floors.cu", "", "#ifdef FAST\n#endif", "#ifdef"),
    (no_macros, "floors.cu", "", "  # if 1\n#endif", "#if"),
    (one_dimension, "tile.cuh", "tiles.divide(blockIdx.x)", "blockIdx.y", "blockIdx.y"),
    (one_dimension, "unfused.cu", "", "DEVICE unsigned f() { return gridDim.z; }", "gridDim.z"),
    (
        waiting_through_spin_until,
        "barriers.cuh",
        "spin_until([=] { return ((load_acquire(word) ^ before) & 0x80000000u) != 0; });",
        "while (((load_acquire(word) ^ before) & 0x80000000u) == 0) {}",
        "while",
    ),
    (waiting_through_spin_until, "barriers.cuh", "", "DEVICE void f() { for (;;) {} }", "for without a condition"),
    (
        waiting_through_spin_until,
        "barriers.cuh",
        "",
        "DEVICE void f(unsigned* word) { for (unsigned i = 0; load_acquire(word) == 0; i++) {} }",
        "for over what load_acquire returns",
    ),
    (
        pointers_are_not_dereferenced,
        "unfused.cu",
        "load(row_sums + tile.row)",
        "row_sums[tile.row]",
        "row_sums is indexed",
    ),
    (pointers_are_not_dereferenced, "unfused.cu", "load(row_sums + tile.row)", "*(row_sums + tile.row)", "with *"),
    (
        pointers_are_not_dereferenced,
        "unfused.cu",
        "store(tile_sums + blockIdx.x, total)",
        "*tile_sums = total",
        "with *",
    ),
    (
        pointers_are_not_dereferenced,
        "tile.cuh",
        "load(reinterpret_cast<const Pack*>(tensor + begin) + position(k))",
        "reinterpret_cast<const Pack*>(tensor + begin)[position(k)]",
        "a cast pointer is indexed",
    ),
    (
        pointers_are_not_dereferenced,
        "megakernel.cuh",
        "publish(tile_sums + blockIdx.x, of_tile_exponentials)",
        "tile_statistics->x = of_tile_exponentials",
        "with ->",
    ),
    (
        order_through_release_and_acquire,
        "barriers.cuh",
        "add_release(word, leader",
        "atomicAdd(word, leader",
        "atomicAdd",
    ),
    (
        order_through_release_and_acquire,
        "barriers.cuh",
        "      const unsigned before",
        "      __threadfence();\n      const unsigned before",
        "__threadfence",
    ),
    (
        every_release_has_an_acquire,
        "barriers.cuh",
        "load_acquire(word)",
        "observe(word)",
        "add_release without load_acquire",
    ),
    (
        values_of_this_launch_are_observed,
        "reductions.cuh",
        "return observe(address);",
        "return load(address);",
        "reads without observe",
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_shipped_kernels_keep_the_rule(rule: Rule) -> None:
    assert rule(SOURCES) == []


@pytest.mark.parametrize(("rule", "file", "old", "new", "complaint"), VIOLATIONS)
def test_violation_is_noticed(rule: Rule, file: str, old: str, new: str, complaint: str) -> None:
    text = SOURCES[file]
    assert old == "" or text.count(old) >= 1, f"{file} no longer holds {old!r}"
    violated = text.replace(old, new) if old else f"{text}\n{new}\n"

    complaints = rule({**SOURCES, file: violated})

    assert any(complaint in line for line in complaints), complaints
    assert all(line.startswith(f"{file}:") for line in complaints)


def test_every_rule_has_a_violation() -> None:
    assert {row[0] for row in VIOLATIONS} == set(RULES)


def test_sources_are_found() -> None:
    assert {"primitives.cuh", "barriers.cuh", "row_retained.cu", "unfused.cu"} <= set(SOURCES)


def test_comments_do_not_count() -> None:
    text = "float f();  // while __shared__\n/* asm\nblockIdx.y */ float g();\n"

    assert without_comments(text).split() == ["float", "f();", "float", "g();"]
    assert without_comments(text).count("\n") == text.count("\n")
