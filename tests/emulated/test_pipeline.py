"""Every shipped variant is right: all inputs, many shapes, many interleavings, direct and as a graph."""

from pathlib import Path

import pytest

from megakernel.cli.main import run
from megakernel.device.emulator import Emulator
from megakernel.device.host_compiler import BuildOptions
from megakernel.operator.contract import Problem
from megakernel.operator.fixtures import ALL_FIXTURES
from megakernel.record.plan import Submission
from megakernel.run.prepare import KernelStore
from tests.emulated.checking import EMULATED, MEDIUM, SMALL, SOFTMAXES, UNALIGNED, StoreBySource, assert_verified

# Every row count and every width, each with several of the other.
SHAPES = (
    *((1, 1), (7, 1), (2, 31), (33, 31), (3, 1540), (7, 1540), (65, 513)),
    *((1, 4096), (2, 4096), (3, 4096), (1, 4097), (2, 4097), (7, 4097)),
)


@pytest.mark.parametrize("fixture", ALL_FIXTURES)
@pytest.mark.parametrize("variant", EMULATED)
def test_every_fixture(emulator: Emulator, store: KernelStore, variant: str, fixture: str) -> None:
    both: tuple[Submission, ...] = ("direct", "graph") if fixture == "timing" else ("direct",)
    assert_verified(emulator, store, variant, Problem(3, UNALIGNED), fixtures=[fixture], submissions=both)


@pytest.mark.parametrize(("rows", "width"), SHAPES)
@pytest.mark.parametrize("variant", EMULATED)
def test_shapes(emulator: Emulator, store: KernelStore, variant: str, rows: int, width: int) -> None:
    assert_verified(emulator, store, variant, Problem(rows, width), submissions=["direct"])


@pytest.mark.parametrize("width", [50_257, 131_071, 131_073])
@pytest.mark.parametrize("variant", EMULATED)
def test_long_rows(emulator: Emulator, store: KernelStore, variant: str, width: int) -> None:
    """99 tiles, more than the lanes of a warp hold; then 128 and 129, around what they read ahead at most."""
    configuration = SMALL if width == 50_257 else MEDIUM
    assert_verified(emulator, store, variant, Problem(1, width), submissions=["direct"], configuration=configuration)


@pytest.mark.parametrize("arguments", [["verify", "rms_cudnn"], ["bench", "--variant", "rms_cudnn", "--rounds", "1"]])
def test_what_calls_a_library_is_refused_in_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out.h5")] if arguments[0] == "bench" else []
    assert run([*arguments, *out, "--device", "emulator", "--rows", "1", "--width", "100"]) == 2

    errors = capsys.readouterr().err
    refusal = "cudnn runs on a GPU alone, and this is the emulator\n"
    if arguments[0] == "verify":
        assert errors == f"mk: {refusal}"
    else:  # which names what it leaves out, then says that it did
        assert errors == f"rms_cudnn, 1 rows: {refusal}mk: 1 could not be run: see above\n"


@pytest.mark.parametrize("weak_stores", [False, True], ids=["strong", "weak"])
@pytest.mark.parametrize("variant", SOFTMAXES)
def test_interleavings(variant: str, weak_stores: bool) -> None:
    for seed in range(1, 10):
        with Emulator(seed=seed, weak_stores=weak_stores) as device, StoreBySource(device) as store:
            assert_verified(device, store, variant, Problem(3, UNALIGNED), submissions=["direct"])


@pytest.mark.parametrize("eps", [1e-12, 1e-5, 1.0])
def test_eps_is_an_argument(emulator: Emulator, store: KernelStore, eps: float) -> None:
    for variant in SOFTMAXES:
        assert_verified(emulator, store, variant, Problem(2, UNALIGNED, eps), fixtures=["tiny", "zeros"])


def test_portable_context_switch() -> None:
    with Emulator(seed=1, build_options=BuildOptions(portable_switch=True)) as device, KernelStore(device) as store:
        assert_verified(device, store, "row_retained", Problem(2, UNALIGNED))
