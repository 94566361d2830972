"""cuDNN's softmax, called through its C interface."""

import functools
from importlib import util
from pathlib import Path
from typing import Any

from megakernel.errors import DeviceError, PlanError

_INSTALL = "install megakernel[cudnn] (for CUDA 12: megakernel[cudnn12])"
_SONAME = "libcudnn.so.9"

# As in cudnn.h, version 9.
_DECLARATIONS = """
typedef struct cudnnContext* cudnnHandle_t;
typedef struct cudnnTensorStruct* cudnnTensorDescriptor_t;
int cudnnCreate(cudnnHandle_t* handle);
int cudnnDestroy(cudnnHandle_t handle);
int cudnnSetStream(cudnnHandle_t handle, void* stream);
int cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor);
int cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor);
int cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t, int format, int type, int n, int c, int h, int w);
int cudnnSoftmaxForward(cudnnHandle_t, int algorithm, int mode, const void* alpha, const cudnnTensorDescriptor_t,
                        const void* x, const void* beta, const cudnnTensorDescriptor_t, void* y);
const char* cudnnGetErrorString(int status);
size_t cudnnGetVersion(void);
"""
_LARGEST_TENSOR = 2**31 - 1
_LARGEST_TENSOR = 2**31 - 1
_NCHW, _FLOAT, _ACCURATE, _INSTANCE = 0, 0, 1, 0


class _Library:
    def __init__(self) -> None:
        try:
            import cffi
        except ImportError as error:
            raise PlanError(f"rms_cudnn calls cuDNN through cffi, which is missing: {_INSTALL}") from error
        self.ffi: Any = cffi.FFI()
        self.ffi.cdef(_DECLARATIONS)
        try:
            self.library: Any = self.ffi.dlopen(_find())
        except OSError as error:
            raise PlanError(f"rms_cudnn needs cuDNN 9: {_INSTALL} ({error})") from error

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            text = self.ffi.string(self.library.cudnnGetErrorString(status)).decode()
            raise DeviceError(f"{name} failed with {text} ({status})")


@functools.cache
def _loaded() -> _Library:
    return _Library()


def _find() -> str:
    """The library of the package beside this Python, else whichever the system's loader finds."""
    spec = util.find_spec("nvidia.cudnn") if util.find_spec("nvidia") else None
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / "lib" / _SONAME
        if path.is_file():
            return str(path)
    return _SONAME


def version() -> str:
    """Loads cuDNN and returns its version, such as ``9.10.2``.

    Raises:
        PlanError: it is not installed, or cannot be loaded.
    """
    number = int(_loaded().library.cudnnGetVersion())
    return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"


class RowSoftmax:
    """``y = softmax(x)`` over each of ``rows`` rows of ``width`` float32, queued into one stream when called.

    Raises:
        PlanError: a tensor has more elements than cuDNN counts.
        DeviceError: cuDNN refuses.
    """

    def __init__(self, x_address: int, y_address: int, rows: int, width: int, stream: int) -> None:
        if rows * width > _LARGEST_TENSOR:
            raise PlanError(f"cuDNN takes at most {_LARGEST_TENSOR} elements at once, and {rows} x {width} are more")
        self._cudnn = _loaded()
        ffi = self._cudnn.ffi
        self._handle: Any = None
        self._descriptor: Any = None
        handle, descriptor = ffi.new("cudnnHandle_t*"), ffi.new("cudnnTensorDescriptor_t*")
        try:
            self._cudnn.call("cudnnCreate", handle)
            self._handle = handle[0]
            self._cudnn.call("cudnnSetStream", self._handle, ffi.cast("void*", stream))
            self._cudnn.call("cudnnCreateTensorDescriptor", descriptor)
            self._descriptor = descriptor[0]
            self._cudnn.call("cudnnSetTensor4dDescriptor", self._descriptor, _NCHW, _FLOAT, rows, width, 1, 1)
        except BaseException:
            self.close()
            raise
        self._one, self._zero = ffi.new("float*", 1.0), ffi.new("float*", 0.0)
        self._x, self._y = ffi.cast("void*", x_address), ffi.cast("void*", y_address)

    def __call__(self) -> tuple[int]:
        self._cudnn.call(
            "cudnnSoftmaxForward",
            self._handle,
            _ACCURATE,
            _INSTANCE,
            self._one,
            self._descriptor,
            self._x,
            self._zero,
            self._descriptor,
            self._y,
        )
        return (0,)

    def close(self) -> None:
        library = self._cudnn.library
        if self._descriptor is not None:
            library.cudnnDestroyTensorDescriptor(self._descriptor)
        if self._handle is not None:
            library.cudnnDestroy(self._handle)
        self._descriptor = self._handle = None
