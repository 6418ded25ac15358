"""The CUDA driver through ctypes: what measuring needs of it, with prototypes of our own.

Needs `libcuda.so.1`, which every driver installs, and nothing else. Functions, structures and numbers: "CUDA Driver
API", and `cuda.h`. Why not CuPy: docs/decisions/driver-through-ctypes.md.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from compiler.devices.cuda.target import Gpu
from compiler.errors import TargetUnavailable

LIBRARY = "libcuda.so.1"

_INT, _UINT, _SIZE, _ADDRESS, _HANDLE = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
_OUT = ctypes.c_void_p
"""Where a result is put."""
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_UINT,),
    "cuDriverGetVersion": (_OUT,),
    "cuDeviceGet": (_OUT, _INT),
    "cuDeviceGetName": (_OUT, _INT, _INT),
    "cuDeviceTotalMem_v2": (_OUT, _INT),
    "cuDeviceGetAttribute": (_OUT, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_OUT, _INT),
    "cuDevicePrimaryCtxRelease_v2": (_INT,),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (_OUT,),
    "cuCtxSynchronize": (),
    "cuModuleLoadData": (_OUT, ctypes.c_char_p),
    "cuModuleUnload": (_HANDLE,),
    "cuModuleGetFunction": (_OUT, _HANDLE, ctypes.c_char_p),
    "cuFuncSetAttribute": (_HANDLE, _INT, _INT),
    "cuMemAlloc_v2": (_OUT, _SIZE),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemGetInfo_v2": (_OUT, _OUT),
    "cuMemcpyHtoD_v2": (_ADDRESS, _HANDLE, _SIZE),
    "cuMemcpyDtoH_v2": (_HANDLE, _ADDRESS, _SIZE),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _SIZE, _HANDLE),
    "cuMemsetD8Async": (_ADDRESS, ctypes.c_ubyte, _SIZE, _HANDLE),
    "cuStreamCreate": (_OUT, _UINT),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuStreamSynchronize": (_HANDLE,),
    "cuEventCreate": (_OUT, _UINT),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventSynchronize": (_HANDLE,),
    "cuEventElapsedTime": (_OUT, _HANDLE, _HANDLE),
    "cuLaunchKernelEx": (_OUT, _HANDLE, _OUT, _OUT),
    "cuGraphCreate": (_OUT, _UINT),
    "cuGraphDestroy": (_HANDLE,),
    "cuGraphAddKernelNode_v2": (_OUT, _HANDLE, _OUT, _SIZE, _OUT),
    "cuGraphAddDependencies_v2": (_HANDLE, _OUT, _OUT, _OUT, _SIZE),
    "cuGraphKernelNodeSetAttribute": (_HANDLE, _INT, _OUT),
    "cuGraphInstantiateWithFlags": (_OUT, _HANDLE, ctypes.c_ulonglong),
    "cuGraphExecDestroy": (_HANDLE,),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuGetErrorName": (_INT, _OUT),
    "cuGetErrorString": (_INT, _OUT),
}
OPTIONAL: dict[str, tuple[Any, ...]] = {"cuDeviceGetPCIBusId": (_OUT, _INT, _INT)}
"""What is done without where a driver lacks it."""

CLOCK_KHZ, MULTIPROCESSORS, L2_BYTES, CAPABILITY_MAJOR, CAPABILITY_MINOR = 13, 16, 38, 75, 76
"""CU_DEVICE_ATTRIBUTE_..."""
MOST_DYNAMIC_SHARED = 8
SHARED_SPLIT = 9
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
CLUSTER_DIMENSION = 4
"""CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"""
PROGRAMMATIC_PORT = PROGRAMMATIC_EDGE = 1
"""CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC"""
NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: no order with the default stream."""
DEFAULT_SHARED = 48 * 1024
"""Bytes of dynamic shared memory that a kernel may have without asking."""
CONTEXT_LOST = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 720, 721})
"""Errors of a kernel after which the context, and by the driver's manual the process, can do nothing more: illegal
address and its like."""


class DriverError(Exception):
    """A driver function refused. `code` is its CUresult, `name` how cuda.h calls that."""

    def __init__(self, function: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{function}: {name} ({text})")
        self.function, self.code, self.name = function, code, name

    @property
    def loses_context(self) -> bool:
        """Whether nothing can be done any more in this process."""
        return self.code in CONTEXT_LOST


class Extent(ctypes.Structure):
    """CUlaunchAttributeValue as far as a cluster's dimensions go; 64 bytes."""

    _fields_ = (("x", _UINT), ("y", _UINT), ("z", _UINT), ("pad", _UINT * 13))


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", _INT), ("pad", _INT), ("value", Extent))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, _UINT) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", _HANDLE),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", _UINT),
    )


class KernelNodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", _HANDLE),
        *((name, _UINT) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        *((name, _HANDLE) for name in ("parameters", "extra", "kernel", "context")),
    )


class EdgeData(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


@dataclass(frozen=True)
class Launch:
    """One launch: `grid` blocks of `block` threads, `cluster` of them together.

    Its pointers are the kernel's arguments.
    """

    function: int
    grid: int
    block: int
    pointers: tuple[int, ...]
    shared_bytes: int = 0
    cluster: int = 1


class Driver:
    """The loaded library. Every method of `call` raises DriverError where the driver refuses."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Raises TargetUnavailable where it lacks a function that is needed, as older drivers do."""
        self._functions: dict[str, Any] = {}
        for name, arguments in {**PROTOTYPES, **OPTIONAL}.items():
            function = getattr(library, name, None)
            if function is not None:
                function.argtypes, function.restype = arguments, _INT
                self._functions[name] = function
        missing = sorted(PROTOTYPES.keys() - self._functions.keys())
        if missing:
            raise TargetUnavailable(
                f"the NVIDIA driver is too old: it lacks {missing[0]}", fix="install a driver for CUDA 12.4 or newer"
            )

    def has(self, function: str) -> bool:
        """Whether the driver has one of OPTIONAL."""
        return function in self._functions

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of PROTOTYPES."""
        code = self._functions[function](*arguments)
        if code:
            raise DriverError(function, code, *(self._said(about, code) for about in ("Name", "String")))

    def _said(self, about: str, code: int) -> str:
        text = ctypes.c_char_p()
        refused = self._functions[f"cuGetError{about}"](code, ctypes.byref(text))
        return f"CUresult {code}" if refused or text.value is None else text.value.decode()

    def number(self, function: str, *arguments: Any, kind: Any = _INT) -> int:
        """What a function puts where its first argument points."""
        found = kind()
        self.call(function, ctypes.byref(found), *arguments)
        return int(found.value or 0)

    def name(self, device: int) -> str:
        """What the device is sold as."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), device)
        return text.value.decode(errors="replace")

    def attribute(self, device: int, attribute: int) -> int:
        """A number of `cuDeviceGetAttribute`, by its place in CUdevice_attribute. Raises DriverError."""
        return self.number("cuDeviceGetAttribute", attribute, device)


def load() -> Driver | None:
    """The driver of this machine; None where there is none. Raises TargetUnavailable for one that is too old."""
    try:
        return Driver(ctypes.CDLL(LIBRARY))
    except OSError:
        return None


def gpu_here(index: int = 0) -> Gpu | None:
    """What the driver says of a GPU, without making a context.

    None where there is none that this process may use (`refusal` says why).
    """
    try:
        return _described(index)
    except (TargetUnavailable, DriverError):
        return None


def refusal(index: int = 0) -> str:
    """Why this process has no such GPU; empty where it has one."""
    try:
        _described(index)
    except TargetUnavailable as error:
        return error.message
    except DriverError as error:
        return f"the NVIDIA driver does not give a GPU: {error}"
    return ""


def _described(index: int) -> Gpu:
    driver = _needed()
    driver.call("cuInit", 0)
    device = driver.number("cuDeviceGet", index)
    major, minor = (driver.attribute(device, which) for which in (CAPABILITY_MAJOR, CAPABILITY_MINOR))
    name, version = driver.name(device), driver.number("cuDriverGetVersion")
    multiprocessors, l2_bytes = (driver.attribute(device, which) for which in (MULTIPROCESSORS, L2_BYTES))
    memory = driver.number("cuDeviceTotalMem_v2", device, kind=_SIZE)
    return Gpu(
        name=name,
        capability=(major, minor),
        multiprocessors=multiprocessors,
        l2_bytes=l2_bytes,
        memory_bytes=memory,
        clock_ghz=driver.attribute(device, CLOCK_KHZ) / 1e6,
        fingerprint=fingerprint((major, minor), name, multiprocessors, l2_bytes, memory, version // 1000),
    )


def _needed() -> Driver:
    driver = load()
    if driver is None:
        raise TargetUnavailable("there is no NVIDIA driver on this machine", fix="install one, or choose a CPU target")
    return driver


def fingerprint(capability: tuple[int, int], name: str, *facts: int) -> str:
    """`cuda:sm_90/<hash>` of what measurements depend on.

    Name, multiprocessors, bytes of L2 and of memory, the driver's major version. Memory counts in GiB: a driver keeps
    some of it, how much changes with its version.
    """
    multiprocessors, l2_bytes, memory_bytes, driver = facts
    text = repr((name, capability, multiprocessors, l2_bytes, round(memory_bytes / 2**30), driver))
    return f"cuda:sm_{capability[0]}{capability[1]}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def bus_id(index: int) -> str:
    """Where the device sits, such as `0000:1b:00.0`; empty where unknown.

    NVML knows it by that, whatever this process calls it.
    """
    driver = load()
    if driver is None or not driver.has("cuDeviceGetPCIBusId"):
        return ""
    text = ctypes.create_string_buffer(32)
    try:
        driver.call("cuDeviceGetPCIBusId", text, len(text), driver.number("cuDeviceGet", index))
    except DriverError:
        return ""
    return text.value.decode()


class Device:
    """A GPU with its primary context current on this thread: `with Device(0) as device:`.

    What it gives out is given back when it is left. Raises TargetUnavailable where there is no such device,
    DriverError.
    """

    def __init__(self, index: int = 0) -> None:
        self.driver, self._index = _needed(), index
        self._owned = ExitStack()

    def __enter__(self) -> Self:
        driver = self.driver
        driver.call("cuInit", 0)
        self._device = driver.number("cuDeviceGet", self._index)
        with ExitStack() as opening:
            context = _HANDLE(driver.number("cuDevicePrimaryCtxRetain", self._device, kind=_HANDLE))
            opening.callback(driver.call, "cuDevicePrimaryCtxRelease_v2", self._device)
            driver.call("cuCtxPushCurrent_v2", context)
            opening.callback(driver.call, "cuCtxPopCurrent_v2", ctypes.byref(_HANDLE()))
            self._owned = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owned.close()

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, major and minor."""
        return (
            self.driver.attribute(self._device, CAPABILITY_MAJOR),
            self.driver.attribute(self._device, CAPABILITY_MINOR),
        )

    def allocate(self, size: int) -> Memory:
        """`size` bytes that hold anything; their address is a multiple of 256."""
        return Memory(self.driver, size)

    def upload(self, array: np.ndarray) -> Memory:
        """Memory with a copy of an array, which has at least one byte."""
        array = np.ascontiguousarray(array)
        memory = self.allocate(array.nbytes)
        memory.write(array)
        return memory

    def module(self, image: bytes) -> Module:
        """A cubin, or PTX that the driver compiles, loaded."""
        return Module(self.driver, image)

    def stream(self) -> Stream:
        """A new stream; to be closed."""
        return Stream(self.driver)

    def event(self) -> Event:
        """A new event; to be closed."""
        return Event(self.driver)

    def chain(self, launches: Sequence[Launch], *, early: bool = False) -> Graph:
        """A graph in which each launch follows the one before.

        `early` lets it begin before that one has ended (sm_90 and later).
        """
        return self.graph(launches, [(at - 1,) if at else () for at in range(len(launches))], early=early)

    def graph(self, launches: Sequence[Launch], after: Sequence[Sequence[int]], *, early: bool = False) -> Graph:
        """A graph in which each launch follows those before it that are named by their places.

        `early` lets one that follows a single launch begin before that has ended (sm_90 and later).
        """
        return Graph(self.driver, launches, after, early=early)

    def synchronize(self) -> None:
        """Wait for everything. Raises DriverError where a kernel failed."""
        self.driver.call("cuCtxSynchronize")


class _Owned:
    """Something of the driver's that must be given back, once."""

    def __init__(self, driver: Driver, give_back: str, handle: Any) -> None:
        self.driver, self._give_back, self.handle = driver, give_back, handle
        self._is_open = True

    def close(self) -> None:
        """Give it back; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            self.driver.call(self._give_back, self.handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Memory(_Owned):
    """Device memory."""

    def __init__(self, driver: Driver, size: int) -> None:
        self.address, self.size = driver.number("cuMemAlloc_v2", size, kind=_ADDRESS), size
        super().__init__(driver, "cuMemFree_v2", _ADDRESS(self.address))

    def write(self, array: np.ndarray, offset: int = 0) -> None:
        """Copy a dense array here, from byte `offset` on."""
        assert offset + array.nbytes <= self.size
        assert array.flags.c_contiguous
        self.driver.call("cuMemcpyHtoD_v2", self.address + offset, array.ctypes.data, array.nbytes)

    def read(self, array: np.ndarray, offset: int = 0) -> np.ndarray:
        """Fill a dense array from byte `offset` on; returns it."""
        assert offset + array.nbytes <= self.size
        assert array.flags.c_contiguous
        self.driver.call("cuMemcpyDtoH_v2", array.ctypes.data, self.address + offset, array.nbytes)
        return array

    def repeat(self, first: int) -> None:
        """Fill all of it with copies of its `first` bytes, in the order of the default stream."""
        done = first
        while done < self.size:
            more = min(done, self.size - done)
            self.driver.call("cuMemcpyDtoDAsync_v2", self.address + done, self.address, more, None)
            done += more

    def clear(self) -> None:
        """Zeros, in the order of the default stream."""
        self.driver.call("cuMemsetD8Async", self.address, 0, self.size, None)


class Module(_Owned):
    """Loaded code."""

    def __init__(self, driver: Driver, image: bytes) -> None:
        # The driver reads PTX up to its NUL.
        handle = _HANDLE(driver.number("cuModuleLoadData", image + b"\0", kind=_HANDLE))
        super().__init__(driver, "cuModuleUnload", handle)

    def function(self, name: str, shared_bytes: int = 0, split: int | None = None) -> int:
        """A kernel that may have so much dynamic shared memory, and asks for so many percent of it beside L1."""
        found = self.driver.number("cuModuleGetFunction", self.handle, name.encode(), kind=_HANDLE)
        if shared_bytes > DEFAULT_SHARED:
            self.driver.call("cuFuncSetAttribute", found, MOST_DYNAMIC_SHARED, shared_bytes)
        if split is not None:
            self.driver.call("cuFuncSetAttribute", found, SHARED_SPLIT, split)
        return found


class Event(_Owned):
    """A moment of a stream."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver, "cuEventDestroy_v2", _HANDLE(driver.number("cuEventCreate", 0, kind=_HANDLE)))

    def record(self, stream: Stream) -> None:
        """The moment when all that the stream has been given so far has ended. Raises DriverError."""
        self.driver.call("cuEventRecord", self.handle, stream.handle)

    def synchronize(self) -> None:
        """Wait until the stream has come here. Raises DriverError where a kernel failed."""
        self.driver.call("cuEventSynchronize", self.handle)

    def since(self, earlier: Event) -> float:
        """Seconds from an earlier event; both have passed. The clock ticks about every half microsecond."""
        taken = ctypes.c_float()
        self.driver.call("cuEventElapsedTime", ctypes.byref(taken), earlier.handle, self.handle)
        return taken.value * 1e-3


class Stream(_Owned):
    """Work in order."""

    def __init__(self, driver: Driver) -> None:
        handle = _HANDLE(driver.number("cuStreamCreate", NON_BLOCKING, kind=_HANDLE))
        super().__init__(driver, "cuStreamDestroy_v2", handle)

    def launch(self, launch: Launch) -> None:
        """One kernel."""
        attribute = LaunchAttribute(CLUSTER_DIMENSION, 0, Extent(launch.cluster, 1, 1))
        config = LaunchConfig(launch.grid, 1, 1, launch.block, 1, 1, launch.shared_bytes, self.handle)
        if launch.cluster > 1:
            config.attributes, config.count = ctypes.pointer(attribute), 1
        pointers, values = _parameters(launch.pointers)
        self.driver.call("cuLaunchKernelEx", ctypes.byref(config), launch.function, pointers, None)
        del values

    def run(self, graph: Graph) -> None:
        """A whole graph."""
        self.driver.call("cuGraphLaunch", graph.handle, self.handle)

    def synchronize(self) -> None:
        """Wait for all of it. Raises DriverError where a kernel failed."""
        self.driver.call("cuStreamSynchronize", self.handle)


class Graph(_Owned):
    """Launches with their order, instantiated: they are started together, without the host between them."""

    def __init__(
        self, driver: Driver, launches: Sequence[Launch], after: Sequence[Sequence[int]], *, early: bool
    ) -> None:
        graph = _HANDLE(driver.number("cuGraphCreate", 0, kind=_HANDLE))
        try:
            nodes: list[ctypes.c_void_p] = []
            for launch, earlier in zip(launches, after, strict=True):
                before = [nodes[at] for at in earlier]
                nodes.append(_add(driver, graph, launch, before, early=early and len(before) == 1))
            handle = _HANDLE(driver.number("cuGraphInstantiateWithFlags", graph, 0, kind=_HANDLE))
        finally:
            driver.call("cuGraphDestroy", graph)
        super().__init__(driver, "cuGraphExecDestroy", handle)


def _add(
    driver: Driver, graph: ctypes.c_void_p, launch: Launch, before: Sequence[ctypes.c_void_p], *, early: bool
) -> ctypes.c_void_p:
    """A node after others, of which one with `early` may still run. The driver copies the arguments."""
    pointers, values = _parameters(launch.pointers)
    shape = (launch.grid, 1, 1, launch.block, 1, 1, launch.shared_bytes)
    params = KernelNodeParams(launch.function, *shape, ctypes.addressof(pointers))
    full = [] if early else [one.value for one in before]
    after = (_HANDLE * len(full))(*full) if full else None
    node = _HANDLE()
    driver.call("cuGraphAddKernelNode_v2", ctypes.byref(node), graph, after, len(full), ctypes.byref(params))
    del values
    if launch.cluster > 1:
        cluster = Extent(launch.cluster, 1, 1)
        driver.call("cuGraphKernelNodeSetAttribute", node, CLUSTER_DIMENSION, ctypes.byref(cluster))
    for one in before if early else ():
        edge = EdgeData(PROGRAMMATIC_PORT, 0, PROGRAMMATIC_EDGE)
        ends = ctypes.byref(one), ctypes.byref(node)
        driver.call("cuGraphAddDependencies_v2", graph, *ends, ctypes.byref(edge), 1)
    return node


def _parameters(pointers: Sequence[int]) -> tuple[ctypes.Array[ctypes.c_void_p], ctypes.Array[ctypes.c_uint64]]:
    """`void *parameters[]`, and the values that it points to."""
    values = (ctypes.c_uint64 * max(len(pointers), 1))(*pointers)
    begin = ctypes.addressof(values)
    return (ctypes.c_void_p * max(len(pointers), 1))(*(begin + 8 * at for at in range(len(pointers)))), values
