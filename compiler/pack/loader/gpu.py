"""Inputs and outputs in a GPU's memory, found fit."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from compiler.pack.loader.errors import InputError
from compiler.pack.loader.interface import _CUDA, _CUDA_MANAGED, DeviceArray, _DlTensor
from compiler.pack.loader.specs import _SMALL, _TYPES, TensorSpec


def _on_gpu(what: str, spec: TensorSpec, value: Any, here: int) -> DeviceArray | None:
    """A tensor in a GPU's memory; None for all that is elsewhere.

    It may be used once what writes it is in the legacy default stream.

    `what` is how messages call it, `here` the model's GPU, where a tensor lies that does not say. DLPack is asked
    first: there the producer makes sure that its writes come before.
    """
    if isinstance(value, DeviceArray):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return None
    try:
        if hasattr(value, "__dlpack_device__"):
            kind, device = value.__dlpack_device__()
            return _from_dlpack(what, spec, value, int(device)) if int(kind) in (_CUDA, _CUDA_MANAGED) else None
        if hasattr(value, "__cuda_array_interface__"):
            return _from_interface(what, spec, value, here)
    except InputError:
        raise
    except Exception as reason:  # producers raise what they like
        raise InputError(
            f"{what} cannot be read as {spec}: {reason}. Fix: give a detached, contiguous tensor"
        ) from reason
    return None


def _is_on_gpu(value: Any) -> bool:
    """Whether it says that it is; no `resident` memory is of an input alone."""
    if isinstance(value, (np.ndarray, np.generic)):
        return False
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) in (_CUDA, _CUDA_MANAGED)
    return isinstance(value, DeviceArray) or hasattr(value, "__cuda_array_interface__")


_LEGACY_STREAM = 1
"""As DLPack and the CUDA array interface number it."""


def _from_dlpack(what: str, spec: TensorSpec, value: Any, device: int) -> DeviceArray:
    capsule = value.__dlpack__(stream=_LEGACY_STREAM)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DlTensor.from_address(pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    named = {codes: name for name, codes in _TYPES.items()}.get((tensor.code, tensor.bits), "another type")
    named = spec.dtype if spec.dtype in _SMALL and named == spec.carrier else named
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    _check_on_gpu(what, spec, named if tensor.lanes == 1 else "a vector type", shape, strides)
    return DeviceArray((tensor.data or 0) + tensor.byte_offset, device, spec, value, capsule)


def _from_interface(what: str, spec: TensorSpec, value: Any, here: int) -> DeviceArray:
    described = value.__cuda_array_interface__
    dtype = np.dtype(described["typestr"])
    strides = described.get("strides")
    if strides is not None:
        strides = tuple(stride // dtype.itemsize for stride in strides)
    name = spec.dtype if spec.dtype != spec.carrier and dtype == spec.numpy else dtype.name
    _check_on_gpu(what, spec, name, tuple(described["shape"]), strides)
    address, read_only = described["data"]
    if read_only and what.startswith("output"):
        raise InputError(f"{what} is read-only. Fix: give an array that can be written")
    if described.get("stream") not in (None, _LEGACY_STREAM):
        _wait_for_stream(described["stream"], here)
    return DeviceArray(address, here, spec, value)


def _wait_for_stream(stream: int, device: int) -> None:
    """Until what a producer has put into a stream of its own is done.

    Also on a thread in which no context is current.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    handle, context, left = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    code = driver.cuDeviceGet(ctypes.byref(handle), device) or driver.cuDevicePrimaryCtxRetain(
        ctypes.byref(context), handle
    )
    if not code:
        code = driver.cuCtxPushCurrent_v2(context)
        if not code:
            code = driver.cuStreamSynchronize(ctypes.c_void_p(stream))
            driver.cuCtxPopCurrent_v2(ctypes.byref(left))
        driver.cuDevicePrimaryCtxRelease_v2(handle)
    if code:
        raise InputError(f"the stream that writes a tensor failed (CUDA error {code}). Fix: look for the error there")


def _check_on_gpu(
    what: str, spec: TensorSpec, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> None:
    if dtype != spec.dtype or shape != spec.shape:
        how = f" as its codes in {spec.carrier}" if spec.dtype in _SMALL else ""
        raise InputError(f"{what} is {dtype}{list(shape)}. Fix: give {spec}{how}")
    if 0 in shape:  # whatever its strides say
        return
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if extent != 1 and stride != expected:
            raise InputError(f"{what} is on the GPU and not row-major. Fix: make it contiguous")
        expected *= extent


def _overlap(one: DeviceArray, other: DeviceArray) -> bool:
    return one.address < other.address + other.bytes and other.address < one.address + one.bytes
