"""Compiled code is kept on disk: whatever is there is right or made again, and a warm start compiles nothing."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from megakernel.device import cubins, nvrtc
from megakernel.device.cubins import cubin_for
from megakernel.device.gpu import Gpu
from megakernel.device.nvrtc import Cubin, Recipe, make_recipe
from megakernel.device.sources import kernel_folder
from megakernel.errors import MissingError

SOURCE = kernel_folder() / "floors.cu"
NAMES = ("empty", "copy<256, 1024, Shape::exact>")


def _refuse(recipe: Recipe) -> Cubin:
    raise AssertionError(f"compiled {recipe.source} again")


def _entry(cache: Path) -> Path:
    (entry,) = (cache / "cubins").iterdir()
    return entry


def test_a_warm_start_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = cubin_for(SOURCE, NAMES, "sm_90", tmp_path)
    monkeypatch.setattr(cubins, "compile_recipe", _refuse)
    kept = cubin_for(SOURCE, NAMES, "sm_90", tmp_path)
    assert (kept.image, kept.resources, kept.options) == (fresh.image, fresh.resources, fresh.options)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        lambda raw: raw.replace(b'"resources": {', b'"resourcez": {'),
        lambda raw: b"{}\n" + raw.partition(b"\n")[2],
        lambda raw: b"\xff" * 100,
    ],
)
def test_a_damaged_entry_is_compiled_again(tmp_path: Path, damage: object) -> None:
    fresh = cubin_for(SOURCE, NAMES, "sm_90", tmp_path)
    entry = _entry(tmp_path)
    assert callable(damage)
    entry.write_bytes(damage(entry.read_bytes()))
    assert cubin_for(SOURCE, NAMES, "sm_90", tmp_path).image == fresh.image
    assert _entry(tmp_path) == entry


@pytest.mark.parametrize("change", ["source", "header", "architecture", "kernels"])
def test_whatever_the_code_depends_on_makes_another_entry(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for file in kernel_folder().iterdir():
        if file.suffix in (".cu", ".cuh"):
            (folder / file.name).write_bytes(file.read_bytes())
    names: tuple[str, ...] = NAMES
    source, arch = folder / "floors.cu", "sm_90"
    cubin_for(source, names, arch, tmp_path)
    if change in ("source", "header"):
        with (source if change == "source" else folder / "barriers.cuh").open("a") as file_to_change:
            file_to_change.write("// changed\n")
    elif change == "architecture":
        arch = "sm_80"
    else:
        names = names[:1]
    cubin_for(source, names, arch, tmp_path)
    assert len(list((tmp_path / "cubins").iterdir())) == 2


def test_two_processes_may_compile_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from megakernel.device.cubins import cubin_for;"
        f"print(len(cubin_for(Path({str(SOURCE)!r}), {NAMES!r}, 'sm_90', Path(sys.argv[1])).image))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert len({process.communicate(timeout=60)[0] for process in both}) == 1
    assert all(process.returncode == 0 for process in both)
    assert _entry(tmp_path).is_file()


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_every_architecture_of_interest_compiles(tmp_path: Path, arch: str) -> None:
    for source, names in (
        ("row_retained.cu", ("row_retained<256, 8192, Shape::exact>",)),
        ("local.cu", tuple(f"{k}<512, 8192, Shape::unaligned>" for k in ("tile_statistics", "normalise"))),
    ):
        cubin = cubin_for(kernel_folder() / source, names, arch, tmp_path)
        assert cubin.image[:4] == b"\x7fELF"
        assert all(r.registers > 0 and r.spill_store_bytes == 0 for r in cubin.resources.values())


def test_headers_of_another_major_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_headers_version", lambda folder: "11.8")
    with pytest.raises(MissingError, match=r"headers in .* are of CUDA 11\.8: install megakernel\[cu1[23]\]"):
        make_recipe(SOURCE, NAMES, "sm_90")


def test_a_toolkit_in_cuda_home_changes_nothing(tmp_path: Path) -> None:
    include = tmp_path / "include"
    include.mkdir()
    (include / "cuda.h").write_text("#define CUDA_VERSION 11080\n")
    (include / "cuda_runtime.h").write_text("#error taken from CUDA_HOME\n")
    code = (
        "from pathlib import Path; from megakernel.device.nvrtc import make_recipe;"
        f"print(' '.join(make_recipe(Path({str(SOURCE)!r}), {NAMES!r}, 'sm_90').options))"
    )
    environment = os.environ | {"CUDA_HOME": str(tmp_path), "CUDA_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert str(tmp_path) not in done.stdout
    assert "site-packages" in done.stdout


def test_code_for_a_newer_major_version_than_the_drivers_is_refused() -> None:
    gpu = cast(Gpu, SimpleNamespace(facts=SimpleNamespace(driver_version="12.4")))
    Gpu._require_driver_for(gpu, "12.9")
    with pytest.raises(MissingError, match=r"driver is for CUDA 12\.4.*megakernel\[cu12\]"):
        Gpu._require_driver_for(gpu, "13.0")
