"""What is said where cuDNN is not: one line with the way out, and nothing half made."""

import builtins
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from megakernel.device import cudnn
from megakernel.errors import DeviceError, PlanError


@pytest.fixture(autouse=True)
def _not_loaded() -> None:
    cudnn._loaded.cache_clear()


def test_an_absent_library_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "_find", lambda: "libcudnn-that-is-nowhere.so.9")
    with pytest.raises(PlanError) as caught:
        cudnn.version()
    message = str(caught.value)
    assert message.startswith("rms_cudnn needs cuDNN 9: install megakernel[cudnn] (for CUDA 12: megakernel[cudnn12])")
    assert "libcudnn-that-is-nowhere.so.9" in message
    assert "\n" not in message
    assert cudnn._loaded.cache_info().currsize == 0


def test_an_absent_cffi_is_refused_likewise(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without_cffi(name: str, *arguments: Any, **options: Any) -> ModuleType:
        if name == "cffi":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "cffi", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_cffi)
    with pytest.raises(PlanError, match=r"^rms_cudnn calls cuDNN through cffi, which is missing: install megakernel\["):
        cudnn.version()


def test_the_package_beside_this_python_comes_before_the_systems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def found(*folders: Path) -> Any:
        spec = SimpleNamespace(submodule_search_locations=[str(folder) for folder in folders])
        return lambda name: spec

    monkeypatch.setattr("importlib.util.find_spec", found(tmp_path))
    assert cudnn._find() == "libcudnn.so.9"  # the package is there, the library is not
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libcudnn.so.9"
    library.touch()
    assert cudnn._find() == str(library)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cudnn._find() == "libcudnn.so.9"


class FakeLibrary:
    """Counts what is created and destroyed; the named function fails."""

    def __init__(self, failing: str, text: Any) -> None:
        self.failing, self.text, self.live = failing, text, 0

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> Any:
            if name == "cudnnGetErrorString":
                return self.text
            if name == self.failing:
                return 3
            self.live += name.startswith("cudnnCreate") - name.startswith("cudnnDestroy")
            return 0

        return function


@pytest.mark.parametrize(
    "failing", ["cudnnCreate", "cudnnSetStream", "cudnnCreateTensorDescriptor", "cudnnSetTensor4dDescriptor"]
)
def test_a_refusal_names_the_function_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    ffi.cdef(cudnn._DECLARATIONS)
    text = ffi.new("char[]", b"CUDNN_STATUS_BAD_PARAM")
    fake = FakeLibrary(failing, text)
    loaded: Any = object.__new__(cudnn._Library)
    loaded.ffi, loaded.library = ffi, fake
    monkeypatch.setattr(cudnn, "_loaded", lambda: loaded)

    with pytest.raises(DeviceError, match=rf"^{failing} failed with CUDNN_STATUS_BAD_PARAM \(3\)$"):
        cudnn.RowSoftmax(0, 0, 2, 100, 0)

    assert fake.live == 0
