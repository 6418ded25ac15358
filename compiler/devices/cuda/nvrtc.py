"""NVRTC through ctypes: CUDA C++ to a cubin or to PTX, with what its assembler says of registers.

Needs no GPU, no driver. The library comes with the wheel `nvidia-cuda-nvrtc` (extra `cuda`), or from an installed
toolkit. Functions and options: "NVRTC documentation", chapters "User Interface" and "Supported Compile Options".
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile

from compiler.codegen.build import small_header
from compiler.errors import ToolchainFailed, ToolchainMissing

HEADERS = ("tw_cuda.h", "tw_scalar.h", "tw_topk.h", "tw_boxes.h", "tw_forest.h", "tw_persistent.h")
WHERE_NEEDED = ("tw_wgmma_sp.h", "tw_wgmma_bytes.h", "tw_codes.h")
"""Headers that only units which include them come with."""
"""What generated CUDA sources include: intrinsics, and scalar functions and selection in plain CUDA C++."""
TOOLKIT = Path("/usr/local/cuda")
"""Where an installed toolkit is, whether or not the dynamic linker looks there."""
LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
OPTIONS = ("--std=c++17", "--ptxas-options=-v")
FUNCTION = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<arch>sm_\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
CODE = ".text."
"""How the sections of a cubin that hold a kernel's code are called, before the kernel's name."""
SHARED = re.compile(r"(\d+) bytes smem")
LOSS = re.compile(r"Potential Performance Loss: ([^\n]*)")
_KEPT: dict[str, Path] = {}
"""By "folder", if there is one, where this process keeps what it compiles (`keep_in`)."""


@dataclass(frozen=True)
class Resources:
    """What one kernel needs, per thread in registers and bytes, per block in bytes of static shared memory.

    `code_bytes` are those of its machine code, 0 where they are unknown.
    """

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    code_bytes: int = 0

    @property
    def spills(self) -> bool:
        """Whether values had to leave the registers."""
        return bool(self.spill_store_bytes or self.spill_load_bytes)


@dataclass(frozen=True)
class Compiled:
    """One translation unit for one architecture: the image for the driver, and each kernel's resources (none in PTX).

    `ptx` is what machine code was made from; nothing where the image is PTX. `losses` are the assembler's warnings that
    what was written is not what runs: wgmma made sequential, setmaxnreg ignored.
    """

    architecture: str
    image: bytes
    log: str
    kernels: dict[str, Resources]
    losses: tuple[str, ...]
    ptx: bytes = b""

    @property
    def portable_ptx(self) -> bytes:
        """The PTX that later GPUs run too, where nothing in it is specific to one architecture: sm_90's for sm_90a.

        What NVRTC makes for `compute_90` has the same bytes.
        """
        target = f"\n.target {self.architecture}\n".encode()
        assert self.ptx.count(target) == 1, self.architecture
        return self.ptx.replace(target, f"\n.target {self.architecture.rstrip('a')}\n".encode())


def library_path() -> Path | None:
    """Where the wheel put NVRTC, if it is installed, else where a toolkit did."""
    found = importlib.util.find_spec("nvidia")
    wheels = [Path(root) for root in (found.submodule_search_locations or ())] if found else []
    places = [(wheel, folder) for wheel in wheels for folder in ("cu13/lib", "cuda_nvrtc/lib")]
    for root, folder in (*places, (TOOLKIT, "lib64"), (TOOLKIT, "targets/*/lib")):
        for path in sorted(root.glob(f"{folder}/libnvrtc.so.1[0-9]"), reverse=True):
            return path
    return None


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """The library. Raises ToolchainMissing where there is none."""
    wheel = library_path()
    for builtins in wheel.parent.glob("libnvrtc-builtins.so.*") if wheel else ():
        ctypes.CDLL(str(builtins))  # NVRTC opens it by name alone and finds it only when it is already loaded
    for name in (str(wheel),) if wheel else LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise ToolchainMissing("NVRTC, the CUDA compiler, is not installed", fix="pip install 'tilewright[cuda]'")


def version() -> tuple[int, int]:
    """Major and minor version of NVRTC; part of what identifies compiled code. Raises ToolchainMissing."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    check(load().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


@cache
def headers() -> Mapping[str, str]:
    """The texts of HEADERS, by file name."""
    folder = files("compiler.devices.cuda.runtime")
    return {name: folder.joinpath(name).read_text() for name in HEADERS}


def rare_headers(texts: Iterable[str]) -> Mapping[str, str]:
    """The texts of those of WHERE_NEEDED that one of the units includes, by file name."""
    folder = files("compiler.devices.cuda.runtime")
    wanted = [name for name in WHERE_NEEDED if any(f'#include "{name}"' in text for text in texts)]
    return {name: folder.joinpath(name).read_text() for name in wanted}


def keep_in(folder: Path | None) -> None:
    """From now on this process keeps what it compiles in a folder, and takes from there what is kept; None: no more.

    Whoever may write there decides what kernels run, so that it is for one user's own processes. Nothing is deleted.
    """
    _KEPT.clear()
    _KEPT.update({} if folder is None else {"folder": folder})


def compile_cuda(source: str, architecture: str, name: str = "kernels.cu") -> Compiled:
    """Compile one unit, which may include HEADERS, for `sm_80`, `sm_90a`, ... (cubin) or `compute_80`, ... (PTX).

    `name` is how messages call the file. Raises ToolchainMissing, and ToolchainFailed with NVRTC's log.
    """
    included = {**headers(), **rare_headers((source,)), **small_header((source,))}
    if not _KEPT:
        return _compiled(source, architecture, name, included)
    made_from = (version(), OPTIONS, architecture, name, source, sorted(included.items()))
    file = _KEPT["folder"] / hashlib.sha256(repr(made_from).encode()).hexdigest()
    if (found := _read_kept(file, architecture)) is not None:
        return found
    made = _compiled(source, architecture, name, included)
    _write_kept(file, made)
    return made


def _read_kept(file: Path, architecture: str) -> Compiled | None:
    """What was compiled before; None where there is nothing, or not all of it."""
    try:
        digest, said, image = file.read_bytes().split(b"\n", 2)
    except (OSError, ValueError):
        return None
    if hashlib.sha256(said + image).hexdigest().encode() != digest:
        return None
    log, ptx = json.loads(said)
    return _found(architecture, image, log, ptx.encode())


def _found(architecture: str, image: bytes, log: str, ptx: bytes) -> Compiled:
    """A unit with what the assembler said of it, and how long its kernels' code is."""
    sizes = code_bytes(image)
    kernels = {name: replace(needs, code_bytes=sizes.get(name, 0)) for name, needs in resources(log).items()}
    return Compiled(architecture, image, log, kernels, tuple(LOSS.findall(log)), ptx)


def _write_kept(file: Path, made: Compiled) -> None:
    """The file is whole at any time, whoever else writes it."""
    said = json.dumps([made.log, made.ptx.decode()]).encode()
    digest = hashlib.sha256(said + made.image).hexdigest().encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=file.parent, prefix=".part-", delete=False) as draft:
        draft.write(b"\n".join((digest, said, made.image)))
    Path(draft.name).replace(file)


def _compiled(source: str, architecture: str, name: str, included: Mapping[str, str]) -> Compiled:
    """What NVRTC makes of a unit and the files that it may include."""
    nvrtc = load()
    program = ctypes.c_void_p()
    created = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program),
        source.encode(),
        name.encode(),
        len(included),
        (ctypes.c_char_p * len(included))(*map(str.encode, included.values())),
        (ctypes.c_char_p * len(included))(*map(str.encode, included)),
    )
    check(created, "nvrtcCreateProgram")
    try:
        options = [option.encode() for option in (*OPTIONS, f"--gpu-architecture={architecture}")]
        status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = read(nvrtc, program, "ProgramLog").decode(errors="replace").rstrip("\0")
        if status:
            raise ToolchainFailed(f"NVRTC refused {name} for {architecture}:\n{log}")
        ptx = read(nvrtc, program, "PTX")
        image = read(nvrtc, program, "CUBIN") if architecture.startswith("sm_") else ptx
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return _found(architecture, image, log, ptx if image is not ptx else b"")


def code_bytes(image: bytes) -> dict[str, int]:
    """Bytes of each kernel's machine code in a cubin, an ELF file of 64 bits; nothing of what is no such file.

    They are the sizes of its sections `.text.NAME` ("ELF-64 Object File Format", section headers).
    """
    if not image.startswith(b"\x7fELF\x02\x01"):
        return {}
    (at,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    sections = [struct.unpack_from("<IIQQQQ", image, at + number * size) for number in range(count)]
    found = {}
    for name, _, _, _, _, length in sections:
        start = sections[names][4] + name
        text = image[start : image.index(b"\0", start)].decode()
        if text.startswith(CODE):
            found[text.removeprefix(CODE)] = length
    return found


def resources(log: str) -> dict[str, Resources]:
    """What `--ptxas-options=-v` wrote about each kernel."""
    found = {}
    for match in FUNCTION.finditer(log):
        shared = SHARED.search(match["rest"])
        found[match["name"]] = Resources(
            registers=int(match["registers"]),
            stack_bytes=int(match["stack"]),
            spill_store_bytes=int(match["stores"]),
            spill_load_bytes=int(match["loads"]),
            static_shared_bytes=int(shared[1]) if shared else 0,
        )
    return found


def read(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """One of a program's results."""
    size = ctypes.c_size_t()
    check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size")
    buffer = ctypes.create_string_buffer(size.value)
    check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer), f"nvrtcGet{what}")
    return buffer.raw


def check(status: int, call: str) -> None:
    """Raise ToolchainFailed where NVRTC itself failed."""
    if status:
        text = load().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise ToolchainFailed(f"{call}: {text(status).decode()}")
