"""Every declaration agrees with the kernel source that it declares, and with the reference."""

import re
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from tools.kernel_docs import table

from megakernel.device.nvrtc import compile_recipe, make_recipe
from megakernel.device.sources import kernel_folder
from megakernel.errors import MissingError, UsageError
from megakernel.operator.contract import Problem
from megakernel.operator.reference import Reference
from megakernel.variants.catalogue import CATALOGUE, FLOORS, find
from megakernel.variants.declaration import (
    NO_SHARED,
    ROW_BARRIER_WORDS,
    BarrierScope,
    Grid,
    Quantity,
    Scope,
    Stage,
    Variant,
    X,
    Y,
)

VARIANTS = pytest.mark.parametrize("variant", CATALOGUE.values(), ids=lambda variant: variant.name)
STAGES = pytest.mark.parametrize(
    ("variant", "stage"),
    [(variant, stage) for variant in CATALOGUE.values() for stage in variant.kernel_stages],
    ids=lambda value: value.name if isinstance(value, Variant) else value.kernel.split("<")[0],
)
SCALAR_TYPES = {"uint32": "unsigned", "divisor": "TileCount", "float32": "float"}


def source_of(variant: Variant) -> str:
    return variant.source_path(kernel_folder()).read_text()


def parameters(source: str, kernel: str) -> tuple[bool, list[tuple[str, str]]]:
    """Whether the kernel is a template, and its parameters as (type, name)."""
    found = re.search(
        rf"(template <[^>]*>\s*)?__global__ void\s+(?:__launch_bounds__\(\w+\)\s+)?{kernel}\(([^)]*)\)", source
    )
    assert found, f"no kernel {kernel}"
    listed = [" ".join(part.split()) for part in found.group(2).split(",") if part.strip()]
    pairs = [re.fullmatch(r"(.*\W)(\w+)", part) for part in listed]
    return found.group(1) is not None, [(pair.group(1).strip(), pair.group(2)) for pair in pairs if pair]


def pointer_type(quantity: Quantity, stage: Stage) -> str:
    value = {(True, 1): "float", (True, 2): "Statistics", (False, 32): "unsigned"}[
        bool(quantity.components), quantity.words
    ]
    touched = {access.quantity for access in stage.reads if access.scope != "untouched"}
    only_read = quantity in touched and quantity not in {access.quantity for access in stage.writes}
    return f"{'const ' if only_read else ''}{value}*"


@STAGES
def test_a_stage_lists_its_kernels_parameters_in_order(variant: Variant, stage: Stage) -> None:
    # A wrong order or type would make the kernel read one quantity as another.
    kernel, _, template = stage.kernel.partition("<")
    is_template, found = parameters(source_of(variant), kernel)
    declared = [(pointer_type(q, stage), q.name) for q in stage.quantities]
    declared += [(SCALAR_TYPES[scalar.dtype], scalar.name) for scalar in stage.scalars]
    uses = Counter(other.kernel for other in variant.stages)[stage.kernel]
    if uses == 1:
        assert found == declared
    else:  # shared by stages, so its pointers have names of their own
        assert [kind for kind, _ in found] == [kind for kind, _ in declared]
    assert is_template == bool(template)


def test_the_parser_of_kernel_sources_sees_every_parameter() -> None:
    source = "template <int T>\n__global__ void __launch_bounds__(T)\n    k(const float* x,\n   unsigned n) {}"
    assert parameters(source, "k") == (True, [("const float*", "x"), ("unsigned", "n")])
    assert parameters("__global__ void empty() {}", "empty") == (False, [])


def test_the_barriers_stride_is_that_of_the_kernels() -> None:
    source = (kernel_folder() / "barriers.cuh").read_text()
    assert re.findall(r"ROW_BARRIER_WORDS = (\d+);", source) == [str(ROW_BARRIER_WORDS)]


def test_shared_memory_is_the_size_of_the_kernels_structs(tmp_path: Path) -> None:
    # Too little corrupts a neighbouring block, and nothing on the GPU would say so.
    local, whole = CATALOGUE["local_recompute"].stages[0], CATALOGUE["row_retained"].stages[0]
    lines = ['#include "megakernel.cuh"']
    sharing = [v for v in CATALOGUE.values() if any(s.shared != NO_SHARED for s in v.stages)]
    for configuration in {c for variant in sharing for c in variant.configurations}:
        threads, tile = configuration.threads, configuration.tile
        lines.append(f"static_assert(sizeof(BlockScratch<{threads}>) == {local.shared_bytes(configuration)});")
        lines += [
            f"static_assert(sizeof(RetainedTile<{threads}, {tile}, Shape::{shape}>) == "
            f"{whole.shared_bytes(configuration)});"
            for shape in ("exact", "aligned", "unaligned")
        ]
    source = tmp_path / "sizes.cu"
    source.write_text("\n".join([*lines, "__global__ void nothing() {}"]))
    compile_recipe(make_recipe(source, ("nothing",), "sm_90"))


@VARIANTS
def test_a_variant_is_found_by_its_name(variant: Variant) -> None:
    assert find(variant.name) is variant
    assert re.fullmatch(r"[a-z0-9_]+", variant.name)
    assert variant.summary


@VARIANTS
def test_configurations_are_distinct_and_fit_a_block(variant: Variant) -> None:
    assert len(set(variant.configurations)) == len(variant.configurations) > 0
    assert set(variant.for_rows.values()) <= set(variant.configurations)
    for configuration in variant.configurations:
        for stage in variant.stages:
            assert stage.shared_bytes(configuration) <= 227 * 1024
            assert stage.block_threads(configuration) <= 1024


def test_the_copy_floor_is_the_fastest_of_at_least_five_configurations() -> None:
    copies = [variant for variant in FLOORS if variant.computes == "copy"]
    assert len(copies) == 1
    assert len(copies[0].configurations) >= 5


@VARIANTS
def test_stages_read_only_what_is_there_and_end_with_the_output(variant: Variant) -> None:
    written = {X}
    for stage in variant.stages:
        own = {access.quantity for access in stage.writes}
        available = written | (own if stage.cooperative else set())
        assert {access.quantity for access in stage.reads if access.scope != "untouched"} <= available
        assert X not in own
        written |= own
    assert (Y in written) == (variant.computes != "nothing")


@VARIANTS
def test_every_component_is_a_quantity_of_the_reference_in_the_declared_shape(variant: Variant) -> None:
    problem, tile = Problem(2, 1000), 256
    reference = Reference(np.ones((2, 1000), np.float32), problem)
    for quantity in variant.quantities:
        shape = {"element": (2, 1000), "tile": (2, 4), "row": (2,)}[quantity.per]
        assert quantity.words >= len(quantity.components)
        for component in quantity.components:
            assert reference.quantity(component, tile).shape == shape


def test_an_unknown_variant_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"^unknown variant 'fused': choose from empty, copy, .*rms_cudnn, or name"):
        find("fused")


OWN = """
from megakernel.variants.declaration import Configuration, Stage, Variant, X, Y
MINE = Variant("{name}", "{source}", (Stage("k", reads=(X.tile,), writes=(Y.tile,)),), (Configuration(256, 1024),))
"""


def test_a_users_own_variant_is_found_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "own: 1.py"  # a colon and a space in the path do no harm
    file.write_text(OWN.format(name="mine", source=tmp_path / "k.cu"))
    variant = find(f"{file}:MINE")
    assert variant.name == "mine"
    assert variant.source_path(kernel_folder()) == tmp_path / "k.cu"


@pytest.mark.parametrize(
    ("text", "attribute", "message"),
    [
        (OWN.format(name="mine", source="k.cu"), "THEIRS", "own.py has no 'THEIRS': name a Variant that it defines"),
        ("MINE = 3", "MINE", "own.py: 'MINE' is not a Variant"),
        (OWN.format(name="copy", source="k.cu"), "MINE", "own.py: the name 'copy' belongs to a shipped variant"),
        ("import megakernel.nothing", "MINE", "own.py:1: ModuleNotFoundError: No module named 'megakernel.nothing'"),
        ("MINE = ", "MINE", "own.py: SyntaxError: invalid syntax (own.py, line 1)"),
        ("1 / 0", "MINE", "own.py:1: ZeroDivisionError: division by zero"),
    ],
)
def test_a_bad_file_of_a_users_own_is_refused_in_one_line(
    tmp_path: Path, text: str, attribute: str, message: str
) -> None:
    file = tmp_path / "own.py"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        find(f"{file}:{attribute}")
    assert str(caught.value) == f"{tmp_path}/{message}"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"own\.py: no such file$"):
        find(f"{tmp_path}/own.py:MINE")


def test_the_documented_table_is_computed_from_the_declarations() -> None:
    document = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    assert "\n".join(table()) in document
    for name in CATALOGUE:
        assert f"**`{name}`**" in document


def test_the_documented_words_are_those_of_a_declaration() -> None:
    document = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    section = document[document.index("### The words of a declaration") :]
    words = [
        *(part.name for part in fields(Stage)),
        *get_args(Grid),
        *get_args(BarrierScope),
        *(f".{scope}" for scope in get_args(Scope)),
    ]
    assert [word for word in words if f"`{word}`" not in section] == []
