"""The GPU of this machine, with the interface of the double's `Device`, so that one trial runs on both."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.target import CudaTarget, Gpu, resolve
from tests.cuda_double.double import SONAME, Buffer, Device, DriverError

POISON = 0xFF
"""Every byte of fresh memory: NaN in each float type, as on the double."""
MULTIPROCESSORS, CLOCK_KHZ, L2_BYTES, MAJOR, MINOR, BLOCK_SHARED = 16, 13, 38, 75, 76, 97
"""CUdevice_attribute: what is asked of a device."""


class NoGpu(Exception):
    """There is no driver, or no device that it knows."""


def open_driver() -> ctypes.CDLL:
    """The driver, initialised. Raises NoGpu with the reason."""
    try:
        driver = ctypes.CDLL(SONAME)
    except OSError as reason:
        raise NoGpu(f"no NVIDIA driver on this machine: {reason}") from None
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code or not count.value:
        raise NoGpu(f"an NVIDIA driver without a device: cuInit or cuDeviceGetCount returned {code}")
    return driver


def target_here(driver: ctypes.CDLL) -> CudaTarget:
    """What device 0 is. Raises TargetUnavailable for a capability that no target is for."""

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        check(driver.cuDeviceGetAttribute(ctypes.byref(value), number, 0), "cuDeviceGetAttribute")
        return value.value

    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    check(driver.cuDeviceGetName(name, 256, 0), "cuDeviceGetName")
    check(driver.cuDeviceTotalMem_v2(ctypes.byref(memory), 0), "cuDeviceTotalMem_v2")
    capability = (attribute(MAJOR), attribute(MINOR))
    product = name.value.decode()
    clock_ghz = 1e-6 * attribute(CLOCK_KHZ)
    here = Gpu(product, capability, attribute(MULTIPROCESSORS), attribute(L2_BYTES), memory.value, clock_ghz, product)
    return resolve("cuda", here)


def check(code: int, function: str) -> None:
    """Raise DriverError where a function refused."""
    if code:
        raise DriverError(function, code)


@dataclass
class GpuDevice(Device):
    """Device 0 with a context and one unit of CUDA source, compiled by NVRTC for what the device is."""

    source: str = ""
    allocated: list[Buffer] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.driver = open_driver()
        self.call("cuDeviceGetAttribute", ctypes.byref(shared := ctypes.c_int()), BLOCK_SHARED, 0)
        self.block_shared_bytes = shared.value
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        image = nvrtc.compile_cuda(self.source, target_here(self.driver).architecture).image
        self.handle = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(self.handle), image)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After a fault the context refuses everything: then it is given back as it is, with what it holds.
        for buffer in self.allocated:
            self.driver.cuMemFree_v2(ctypes.c_uint64(buffer.address))
        self.driver.cuModuleUnload(self.handle)
        self.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        self.driver.cuDevicePrimaryCtxRelease_v2(0)

    def configure(self, text: str) -> None:
        """Nothing: modes and settings are the double's."""

    def call(self, function: str, *arguments: Any) -> None:
        """A driver function. Raises DriverError."""
        check(getattr(self.driver, function)(*arguments), function)

    def function(self, name: str) -> ctypes.c_void_p:
        """A kernel of the module, with all the shared memory it may ask for."""
        if name not in self.functions:
            found, static = ctypes.c_void_p(), ctypes.c_int()
            self.call("cuModuleGetFunction", ctypes.byref(found), self.handle, name.encode())
            self.call("cuFuncGetAttribute", ctypes.byref(static), 1, found)
            self.call("cuFuncSetAttribute", found, 8, self.block_shared_bytes - static.value)
            self.functions[name] = found
        return self.functions[name]

    def allocate(self, size: int) -> Buffer:
        """Device memory full of NaN patterns."""
        buffer = super().allocate(max(size, 1))
        poison = ctypes.create_string_buffer(bytes([POISON]) * size, size)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(buffer.address), poison, ctypes.c_size_t(size))
        self.allocated.append(buffer)
        return buffer
