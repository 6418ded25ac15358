"""The structures of model.h, stream.h and dlpack.h, and how they point at arrays."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler.pack.loader.specs import _SMALL, _TYPES, Array, TensorSpec

ABI_VERSION = 3
OLDER_ABI_VERSIONS = (1, 2)
"""Of which this one is an extension. Such a library does not look at what was added at the end of `tw_config`, and has
one plan."""
_CPU, _CUDA, _CUDA_MANAGED = 1, 2, 13
"""DLPack's device types that are distinguished here."""


class _Tensor(ctypes.Structure):
    """`tw_tensor` of model.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


_RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""`tw_run` by addresses, which are converted faster than pointers."""


class _Config(ctypes.Structure):
    """`tw_config` of model.h."""

    _fields_ = (
        ("weights_path", ctypes.c_char_p),
        ("weights_offset", ctypes.c_int64),
        ("lanes", ctypes.c_int32),
        ("spin_us", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("plan", ctypes.c_int32),
        ("pin", ctypes.c_int32),
    )


class _StreamConfig(ctypes.Structure):
    """`tw_stream_config` of stream.h."""

    _fields_ = (
        ("folder", ctypes.c_char_p),
        ("libraries", ctypes.POINTER(ctypes.c_char_p)),
        ("weights_path", ctypes.c_char_p),
        ("weights_offset", ctypes.c_int64),
        ("spin_us", ctypes.c_int32),
        ("pin", ctypes.c_int32),
    )


class _DlTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h, with which a `DLManagedTensor` begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DeviceArray(NamedTuple):
    """A row-major tensor in a GPU's memory, which belongs to `owner`; `kept` is what else must live as long."""

    address: int
    device: int
    spec: TensorSpec
    owner: Any
    kept: Any = None

    @property
    def bytes(self) -> int:
        """Its size, without gaps."""
        return int(np.prod(self.spec.shape, dtype=np.int64)) * self.spec.numpy.itemsize


def _tensors(specs: Sequence[TensorSpec]) -> tuple[Any, list[Any]]:
    """C tensors that lack only their data, and the shapes they point to."""
    tensors = (_Tensor * max(len(specs), 1))()
    shapes = []
    for tensor, spec in zip(tensors, specs, strict=False):
        shape = (ctypes.c_int64 * max(len(spec.shape), 1))(*spec.shape)
        code, bits = _TYPES["uint8" if spec.dtype in _SMALL else spec.dtype]
        tensor.device_type, tensor.code, tensor.bits, tensor.ndim = 1, code, bits, len(spec.shape)
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        shapes.append(shape)
    return tensors, shapes


def _run_of(calls: Any, instance: ctypes.c_void_p, inputs: Any, outputs: Any) -> Callable[[], int]:
    """A library's `tw_run` of these, which must live as long as it is used."""
    if not isinstance(calls, ctypes.CDLL):  # a library in an emulator
        return functools.partial(calls.tw_run, instance, inputs, outputs)
    addresses = (instance.value, ctypes.addressof(inputs), ctypes.addressof(outputs))
    return functools.partial(_RUN(("tw_run", calls)), *addresses)


def _point(tensor: _Tensor, array: Array | DeviceArray) -> Any:
    """Aims a C tensor at an array; what is returned must live as long as that is used."""
    if isinstance(array, DeviceArray):
        tensor.data, tensor.strides = array.address or None, None
        tensor.device_type, tensor.device_id = _CUDA, array.device
        return array
    tensor.device_type, tensor.device_id = _CPU, 0
    tensor.data = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        tensor.strides = None
        return None
    strides = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    return strides
