"""Compiling without a GPU, and what is said when it cannot be done."""

from pathlib import Path

import pytest
from cuda import pathfinder

from megakernel.device.nvrtc import compile_recipe, make_recipe, supported_archs
from megakernel.device.sources import kernel_folder
from megakernel.errors import CompileError, MissingError, UsageError

LOCAL = kernel_folder() / "local.cu"
NAME = "tile_statistics<256, 1024, Shape::exact>"


def test_a_kernel_compiles_to_machine_code_with_its_resources() -> None:
    cubin = compile_recipe(make_recipe(LOCAL, (NAME,), "sm_90"))
    assert cubin.image[:4] == b"\x7fELF"
    resources = cubin.resources[NAME]
    assert resources.symbol.startswith("_Z15tile_statistics")
    assert 0 < resources.registers <= 255
    assert resources.local_bytes == resources.spill_store_bytes == resources.spill_load_bytes == 0
    assert "--fmad=false" in cubin.options
    assert not [option for option in cubin.options if "fast_math" in option]


@pytest.mark.parametrize("arch", ["sm_999", "compute_90", "sm_90 ", "90", ""])
def test_anything_but_a_real_architecture_is_refused_with_the_list(arch: str) -> None:
    # compute_90 would succeed with an empty cubin, sm_999 fail with a bare code.
    with pytest.raises(UsageError) as caught:
        make_recipe(LOCAL, (NAME,), arch)
    assert str(caught.value).startswith(f"architecture {arch!r} is not one that NVRTC ")
    assert ", ".join(supported_archs()) in str(caught.value)
    assert "sm_90" in supported_archs()


@pytest.mark.parametrize(("component", "package"), [("cudart", "nvidia-cuda-runtime"), ("cccl", "nvidia-cuda-cccl")])
def test_a_missing_header_package_is_named(monkeypatch: pytest.MonkeyPatch, component: str, package: str) -> None:
    found = pathfinder.find_nvidia_header_directory
    monkeypatch.setattr(
        pathfinder, "find_nvidia_header_directory", lambda name: None if name == component else found(name)
    )
    with pytest.raises(MissingError, match=f"headers of {package} are missing: install "):
        make_recipe(LOCAL, (NAME,), "sm_90")


def test_an_error_in_a_kernel_comes_with_the_log_and_the_options(tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text("__global__ void k() { undeclared = 1; }\n")
    with pytest.raises(CompileError) as caught:
        compile_recipe(make_recipe(source, ("k",), "sm_90"))
    message = str(caught.value)
    assert 'identifier "undeclared" is undefined' in message
    assert "broken.cu(1)" in message
    assert "--gpu-architecture=sm_90" in message


def test_a_kernel_name_that_the_source_lacks_is_a_compile_error(tmp_path: Path) -> None:
    source = tmp_path / "empty.cu"
    source.write_text("__global__ void k() {}\n")
    with pytest.raises(CompileError, match="other"):
        compile_recipe(make_recipe(source, ("other",), "sm_90"))


def test_a_source_of_a_users_own_finds_the_shipped_headers(tmp_path: Path) -> None:
    source = tmp_path / "own.cu"
    source.write_text('#include "tile.cuh"\n__global__ void own(float* y) { y[0] = square(2.0f); }\n')
    assert "own" in compile_recipe(make_recipe(source, ("own",), "sm_90")).resources


def test_a_missing_source_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"none\.cu: no such kernel source"):
        make_recipe(tmp_path / "none.cu", ("k",), "sm_90")
