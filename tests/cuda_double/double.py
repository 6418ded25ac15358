"""Builds the CPU double of CUDA, compiles kernels for it, and launches them through its driver.

A kernel's source is compiled by g++ as it stands. Three flavours: `plain` finds misaligned accesses, and is not
optimised, since what tests launch is small and takes longer to compile than to run; `checked` reports every access to
memory to the runtime, which finds races, accesses out of bounds and misaligned ones; `sanitized` has the address and
undefined-behaviour sanitizers and runs in a process of its own (see `run_apart`).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tests.kept import kept

HERE = Path(__file__).parent
HEADERS = HERE / "include"
SCALARS = HERE.parents[1] / "compiler" / "devices" / "cuda" / "runtime"
"""Searched after HEADERS: all but `tw_cuda.h` is the same for both compilers."""
SHARED = HERE.parents[1] / "compiler" / "codegen"
"""Searched last: what kernels in C and in CUDA C++ share."""
INCLUDES = ("-Wno-unknown-pragmas", f"-I{HEADERS}", f"-I{SCALARS}", f"-I{SHARED}")
BUILTINS = "cuda_builtins.h"
"""What every unit begins with."""
RUNTIME = tuple(sorted((HERE / "runtime").glob("*.cpp")))
DRIVER = tuple(source for source in RUNTIME if source.stem.startswith("driver"))
SWITCH = (HERE / "runtime" / "fiber.cpp",)
UNITS = (DRIVER, tuple(source for source in RUNTIME if source not in DRIVER + SWITCH), SWITCH)
"""What is compiled at once: reading the library's headers takes most of the time. `SWITCH` has a variant."""
SONAME = "libcuda.so.1"
COMPILER = "g++"
EXPORTS = 'cu*; twd_*; __tsan_*; __ubsan_*; extern "C++" { twd::*; };'
"""Nothing else: what the C++ library leaves in one shared object must not be found by another that was built with its
own.
"""
STANDARD = ("-std=c++20", "-fPIC", "-fno-gnu-unique", "-Wall", "-Wextra")
FLAVOURS = {
    "plain": ("-O0", "-fsanitize=alignment"),
    "checked": (
        "-O1",
        "-g1",
        "-fsanitize=thread",
        "--param=tsan-instrument-func-entry-exit=0",
        "-fsanitize=alignment,bounds,shift,integer-divide-by-zero,signed-integer-overflow,unreachable,return,bool",
    ),
    "sanitized": (
        "-O1",
        "-g1",
        "-fsanitize=address,undefined",
        "-fno-sanitize=vptr",
        "-fno-sanitize-recover=undefined",
    ),
}
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\(([^,)]+)[^)]*\)\s*)?(\w+)\s*\(")
CALLER = re.compile(r"\[(/[^ \]]+)\+(0x[0-9a-f]+)\]")


class Fault(Exception):
    """What the double found wrong.

    `kind` is one word, such as race, deadlock, divergence, out-of-bounds or misaligned.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.kind = text.partition(":")[0]


class DriverError(Exception):
    """A driver function refused; `code` is its CUresult."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} returned {code}")
        self.code = code


@dataclass(frozen=True)
class Mode:
    """How launches are made hard; all orders and landings are ones that a GPU may show."""

    order: str = "forward"
    landing: str = "late"
    seed: int = 1
    resident: int = 2
    """Clusters of a launch at once; 0: another number each time one begins."""
    fill: str = "nan"
    """What memory holds that nobody has written.

    `nan` shows where it is computed with, `large` where a maximum is taken, which leaves NaN out."""

    def __str__(self) -> str:
        resident = self.resident or "any"
        return f"order={self.order} landing={self.landing} seed={self.seed} resident={resident} fill={self.fill}"

    def short(self) -> str:
        """As the names of tests call it."""
        return f"{self.order}-{self.landing}-{self.seed}-{self.resident or 'any'}-{self.fill}"


MODES = (
    Mode("forward", "late"),
    Mode("forward", "early", resident=1),
    Mode("backward", "late", resident=4),
    Mode("backward", "early", fill="large"),
    Mode("random", "late", seed=1, resident=4),
    Mode("random", "early", seed=2, resident=3),
    Mode("random", "random", seed=3, resident=0, fill="large"),
    Mode("random", "random", seed=4, resident=2),
)


def compiler_there() -> bool:
    """Whether g++ can be run."""
    return shutil.which(COMPILER) is not None


def run_compiler(arguments: Sequence[object]) -> None:
    """Run g++ or raise with what it said."""
    done = subprocess.run([COMPILER, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{COMPILER} {' '.join(map(str, arguments))}\n{done.stderr}")


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """What g++ says of itself: a part of a key."""
    return subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout


def text_of(folder: Path, suffix: str) -> str:
    """All files of a folder that end so, as a part of a key."""
    return "\0".join(file.read_text() for file in sorted(folder.glob(f"*{suffix}")))


@lru_cache(maxsize=8)
def build_runtime(ucontext: bool = False, without: tuple[str, ...] = ()) -> Path:
    """The double's `libcuda.so.1`, in a folder of its own.

    `ucontext` switches threads by the C library, as on machines whose registers the double does not know; `without`
    names functions that an older driver lacks. A process can load one of these only.
    """
    headers = text_of(HERE / "runtime", ".h") + (HEADERS / "double.h").read_text()

    def compiled(unit: tuple[Path, ...]) -> Path:
        defines = ("-DTWD_UCONTEXT",) if ucontext and unit is SWITCH else ()
        included = [part for source in unit for part in ("-include", source)]
        options = (*STANDARD, "-O2", *defines, *included, "-x", "c++", "-c", os.devnull)
        return kept(
            repr((compiler_version(), options, [source.read_text() for source in unit], headers)),
            ".o",
            lambda made: run_compiler([*options, "-o", made]),
        )

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, UNITS))

    def link(folder: Path) -> None:
        folder.mkdir()
        script = folder / "symbols"
        hidden = "".join(f"{name}; " for name in without)
        script.write_text(f"{{ global: {EXPORTS} local: {hidden}*; }};")
        run_compiler(
            [
                "-shared",
                *objects,
                f"-Wl,-soname,{SONAME}",
                f"-Wl,--version-script={script}",
                "-ldl",
                "-o",
                folder / SONAME,
            ]
        )

    return kept(repr((objects, without)), ".runtime", link) / SONAME


@lru_cache(maxsize=8)
def precompiled(options: tuple[str, ...]) -> Path:
    """A folder with BUILTINS precompiled under these options, for GCC to find before the header itself.

    It changes no byte of an object file; reading the header takes longer than compiling a small kernel.
    """

    def make(folder: Path) -> None:
        folder.mkdir()
        run_compiler([*options, *INCLUDES, "-x", "c++-header", HEADERS / BUILTINS, "-o", folder / f"{BUILTINS}.gch"])

    return kept(repr((compiler_version(), options, str(HEADERS), text_of(HEADERS, ".h"))), ".precompiled", make)


def compile_kernels(
    source: str,
    flavour: str = "plain",
    name: str = "kernels.cu",
    runtime: Path | None = None,
    kernels: Sequence[str] = (),
) -> Path:
    """A shared object with the `__global__` functions of a CUDA source, for the double.

    `name` is how messages call the source.

    `kernels` names the functions where macros make them.

    Raises RuntimeError with g++'s errors.
    """
    runtime = runtime or build_runtime()
    options = (*STANDARD, *FLAVOURS[flavour])
    found = [("", kernel) for kernel in kernels] or KERNEL.findall(source)
    entries = "".join(f"\nTWD_KERNEL({kernel}, {bound or 1024})" for bound, kernel in found)
    text = f"{source}\nTWD_MODULE{entries}\n"

    def build(path: Path) -> None:
        unit, unlinked = path.with_name(name), path.with_suffix(".o")
        unit.write_text(text)
        first = (f"-I{precompiled(options)}", *INCLUDES, "-include", BUILTINS)
        run_compiler([*options, *first, "-x", "c++", "-c", unit, "-o", unlinked])
        # Linked without -fsanitize=thread: what it calls is defined in the runtime.
        sanitizers = [option for option in options if option.startswith("-fsanitize=address")]
        run_compiler(["-shared", *sanitizers, unlinked, runtime, "-o", path])

    headers = text_of(HEADERS, ".h"), text_of(SCALARS, ".h"), text_of(SHARED, ".h")
    return kept(repr((compiler_version(), options, name, text, headers, str(runtime))), ".so", build)


@dataclass
class Buffer:
    """Device memory, as a kernel's argument."""

    address: int
    size: int


@dataclass(frozen=True)
class TensorMap:
    """A 2-d to 5-d tensor in device memory, for the bulk copy engine.

    Sizes and box innermost first, swizzle in bytes.
    """

    buffer: Buffer
    dtype: str
    sizes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    strides: tuple[int, ...] = ()
    """Bytes, of dimensions 1 and further; dense where empty."""


MAP_DTYPES = {"uint8": 0, "int8": 0, "float16": 6, "float32": 7, "bfloat16": 9}
ITEM_BYTES = {"uint8": 1, "int8": 1, "float16": 2, "float32": 4, "bfloat16": 2}
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


@dataclass
class Node:
    """A kernel of a graph; `after` are indices of earlier nodes, `early` of those it may overlap with."""

    kernel: str
    grid: Sequence[int]
    block: Sequence[int]
    arguments: Sequence[Any]
    shared: int = 0
    after: Sequence[int] = ()
    early: Sequence[int] = ()
    cluster: Sequence[int] = (1,)


def extent(of: Sequence[int]) -> tuple[int, int, int]:
    """Three numbers, the missing ones 1."""
    x, y, z = (*of, 1, 1)[:3]
    return x, y, z


class KernelNodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class EdgeData(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


@dataclass
class Device:
    """A fresh device with a context and one module; the way to launch kernels in a test. Not for two at a time."""

    module: Path | None = None
    mode: Mode = Mode()
    settings: str = ""
    runtime: Path | None = None
    functions: dict[str, ctypes.c_void_p] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.driver = ctypes.CDLL(str(self.runtime or build_runtime()))
        for name in ("twd_report", "twd_state", "twd_calls"):
            getattr(self.driver, name).restype = ctypes.c_char_p
        self.driver.twd_reset()
        self.configure(f"{self.mode} {self.settings}")
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        if self.module is not None:
            self.load(self.module)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.driver.twd_reset()

    def configure(self, text: str) -> None:
        """Change modes or settings, as `TW_DOUBLE` does for a process."""
        if not self.driver.twd_configure(text.encode()):
            raise ValueError(f"the double cannot read {text!r}")

    def call(self, function: str, *arguments: Any) -> None:
        """A driver function. Raises Fault where a kernel went wrong, DriverError otherwise."""
        code = getattr(self.driver, function)(*arguments)
        if code == 0:
            return
        report = self.driver.twd_report().decode()
        if code == 719 and report:
            raise Fault(CALLER.sub(source_line, report))
        raise DriverError(function, code)

    def load(self, library: Path) -> None:
        """Load a module: its image is a stand-in for a cubin that names the library."""
        image = f"cubin of {library.name}\0".encode()
        file = kept(f"image of {library.name}", ".image", lambda made: made.write_bytes(image))
        self.configure(
            f"module={file}:sm_80:{library}" if "sm=8" in self.settings else f"module={file}:sm_90:{library}"
        )
        handle = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(handle), image)
        self.handle = handle

    def function(self, name: str) -> ctypes.c_void_p:
        """A kernel of the module, with all the shared memory it may ask for."""
        if name not in self.functions:
            found = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(found), self.handle, name.encode())
            static = ctypes.c_int()
            self.call("cuFuncGetAttribute", ctypes.byref(static), 1, found)
            self.call("cuFuncSetAttribute", found, 8, 227 * 1024 - static.value)
            self.functions[name] = found
        return self.functions[name]

    def allocate(self, size: int) -> Buffer:
        """Device memory full of NaN patterns."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return Buffer(address.value, size)

    def upload(self, values: np.ndarray) -> Buffer:
        """Device memory with a copy of an array."""
        values = np.ascontiguousarray(values)
        buffer = self.allocate(values.nbytes)
        self.call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(buffer.address),
            ctypes.c_void_p(values.ctypes.data),
            ctypes.c_size_t(values.nbytes),
        )
        return buffer

    def download(self, buffer: Buffer, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """A copy of device memory."""
        values = np.empty(shape, dtype)
        assert values.nbytes <= buffer.size
        self.call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(values.ctypes.data),
            ctypes.c_uint64(buffer.address),
            ctypes.c_size_t(values.nbytes),
        )
        return values

    def parameter(self, value: Any) -> ctypes.Array[ctypes.c_char]:
        """One argument's bytes.

        A buffer's address, an int as 4 bytes, a float as 4 bytes, numpy scalars, or a tensor map.
        """
        if isinstance(value, TensorMap):
            return self.encode(value)
        if isinstance(value, Buffer):
            data = value.address.to_bytes(8, "little")
        elif isinstance(value, np.generic):
            data = value.tobytes()
        elif isinstance(value, float):
            data = np.float32(value).tobytes()
        else:
            data = int(value).to_bytes(4, "little", signed=True)
        return ctypes.create_string_buffer(data, len(data))

    def encode(self, tensor: TensorMap) -> ctypes.Array[ctypes.c_char]:
        """The 128 bytes of a tensor map."""
        rank = len(tensor.sizes)
        item = ITEM_BYTES[tensor.dtype]
        strides = tensor.strides or tuple(item * int(np.prod(tensor.sizes[: i + 1])) for i in range(rank - 1))
        room = ctypes.create_string_buffer(192)
        aligned = (ctypes.addressof(room) + 63) // 64 * 64
        self.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(aligned),
            MAP_DTYPES[tensor.dtype],
            rank,
            ctypes.c_void_p(tensor.buffer.address),
            (ctypes.c_uint64 * rank)(*tensor.sizes),
            (ctypes.c_uint64 * max(rank - 1, 1))(*strides),
            (ctypes.c_uint * rank)(*tensor.box),
            (ctypes.c_uint * rank)(*[1] * rank),
            0,
            SWIZZLES[tensor.swizzle],
            0,
            0,
        )
        return ctypes.create_string_buffer(ctypes.string_at(aligned, 128), 128)

    def parameters(self, arguments: Sequence[Any]) -> tuple[ctypes.Array[ctypes.c_void_p], list[Any]]:
        """`void *parameters[]`, and what it points to."""
        values = [self.parameter(argument) for argument in arguments]
        return (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values)), values

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Any],
        shared: int = 0,
        cluster: Sequence[int] = (1,),
    ) -> None:
        """Launch a kernel and wait for it."""
        pointers, alive = self.parameters(arguments)
        attribute = LaunchAttribute(4, 0, (ctypes.c_uint * 16)(*extent(cluster)))
        config = LaunchConfig(*extent(grid), *extent(block), shared, None, ctypes.addressof(attribute), 1)
        self.call("cuLaunchKernelEx", ctypes.byref(config), self.function(kernel), pointers, None)
        self.call("cuCtxSynchronize")
        del alive

    def graph(self, nodes: Sequence[Node]) -> None:
        """Run kernels as one graph and wait for it."""
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuGraphCreate", ctypes.byref(graph), 0)
        handles: list[ctypes.c_void_p] = []
        for node in nodes:
            pointers, alive = self.parameters(node.arguments)
            params = KernelNodeParams(
                self.function(node.kernel).value,
                *extent(node.grid),
                *extent(node.block),
                node.shared,
                ctypes.addressof(pointers),
            )
            after = (ctypes.c_void_p * max(len(node.after), 1))(*(handles[i].value for i in node.after))
            handle = ctypes.c_void_p()
            self.call(
                "cuGraphAddKernelNode_v2",
                ctypes.byref(handle),
                graph,
                after,
                ctypes.c_size_t(len(node.after)),
                ctypes.byref(params),
            )
            del alive
            for earlier in node.early:
                edge = EdgeData(1, 0, 1)
                ends = (ctypes.byref(handles[earlier]), ctypes.byref(handle))
                self.call("cuGraphAddDependencies_v2", graph, *ends, ctypes.byref(edge), ctypes.c_size_t(1))
            if extent(node.cluster) != (1, 1, 1):
                self.call(
                    "cuGraphKernelNodeSetAttribute",
                    handle,
                    4,
                    ctypes.byref((ctypes.c_uint * 16)(*extent(node.cluster))),
                )
            handles.append(handle)
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        self.call("cuGraphLaunch", executable, None)
        self.call("cuCtxSynchronize")
        self.call("cuGraphExecDestroy", executable)
        self.call("cuGraphDestroy", graph)

    def state(self) -> dict[str, int]:
        """How much is alive: allocations, modules, streams, depth of the context stack, ..."""
        counts: dict[str, int] = json.loads(self.driver.twd_state())
        return counts

    def calls(self) -> list[str]:
        """The driver functions called since the device is there, with what is worth telling of each."""
        return list(self.driver.twd_calls().decode().splitlines())


def source_line(match: re.Match[str]) -> str:
    """`library+offset` as the line of the kernel's source, where addr2line can tell."""
    if not shutil.which("addr2line"):
        return match[0]
    # The call's own address, not the one it returns to.
    said = subprocess.run(
        ["addr2line", "-e", match[1], hex(int(match[2], 16) - 1)], capture_output=True, text=True, check=False
    )
    place = Path(said.stdout.strip()).name.split(" ")[0]
    return f"[{place}]" if said.returncode == 0 and "?" not in place else match[0]


def run_apart(program: str, sanitized: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python statements in a process of their own.

    `sanitized` kernels need the address sanitizer loaded before all else.
    """
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), **variables}
    if sanitized:
        asked = ([COMPILER, f"-print-file-name=lib{name}.so"] for name in ("asan", "ubsan"))
        libraries = [
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() for command in asked
        ]
        environment["LD_PRELOAD"] = " ".join(libraries)
        environment["ASAN_OPTIONS"] = "detect_leaks=0:detect_stack_use_after_return=0"
        environment["PYTHONMALLOC"] = "malloc"
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
