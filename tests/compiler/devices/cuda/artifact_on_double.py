"""Packed CUDA artifacts on the double of CUDA: whole models through the loader, each run in a process of its own.

    twin = on_double(path_of_artifact)                      compiles the kernels of `source/` for the double, once
    outcome = twin.run({"x": array}, mode)                  outputs, and what the driver reports at the end
    outcome.outputs["y"], outcome.state, outcome.fault, outcome.calls, outcome.error

`script` of `run` is Python in which `model` is the opened Model, `inputs` the arrays and `outputs` what to fill; left
out, it is one run.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler.devices.cuda.emit.program import emit_cuda, lower_cuda_calls
from compiler.devices.cuda.target import CudaTarget, resolve
from compiler.devices.cuda.toolchain import find_cuda_toolchain
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan, Task
from compiler.ir.tile import Cost, Tile
from compiler.pack.facts import Facts
from compiler.pack.pack import pack
from compiler.schedule.memory.buffers import place_buffers
from tests.cuda_double.double import MODES, Mode, build_runtime, compile_kernels
from tests.kept import kept

ROOT = Path(__file__).parents[4]
ONE_RUN = "outputs.update(model.run(inputs))"
PROGRAM = """
import json, sys
import numpy as np
sys.path.insert(0, {folder!r})
from loader import Model, ArtifactError, RunError
inputs = dict(np.load({given!r}))
outputs, error = {{}}, ""
try:
    with Model({artifact!r}, verify=False, device={device}) as model:
        exec({script!r})
except (ArtifactError, RunError) as reason:
    error = f"{{type(reason).__name__}}: {{reason}}"
np.savez({found!r}, **outputs)
print(json.dumps(error))
"""


@dataclass(frozen=True)
class Outcome:
    """One process: its outputs, the reason where the loader refused, and the double's report at the end."""

    outputs: Mapping[str, np.ndarray]
    error: str
    state: Mapping[str, int]
    fault: str
    calls: tuple[str, ...]

    @property
    def left(self) -> Mapping[str, int]:
        """What is still alive."""
        return {name: count for name, count in self.state.items() if count}


@dataclass(frozen=True)
class Twin:
    """An artifact and the shared objects that stand for its images.

    `settings` are the double's, `environment` the process's.
    """

    artifact: Path
    settings: str

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to find the double under the driver's name; TW_DOUBLE is `settings` and a mode."""
        return {"LD_LIBRARY_PATH": str(build_runtime().parent), "TW_DOUBLE": self.settings}

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        mode: Mode = MODES[0],
        extra: str = "",
        script: str = ONE_RUN,
        device: int = 0,
        runtime: Path | None = None,
        timeout_s: float = 120.0,
    ) -> Outcome:
        """Opens the artifact by the loader inside it and runs `script`.

        `extra` are further settings (`sm=86 fail=cuInit:1:999`).

        Raises AssertionError with the process's words where it ended otherwise than by an error of the loader.
        """
        with tempfile.TemporaryDirectory(prefix="tw-twin-") as name:
            folder = Path(name)
            given, found, report = folder / "given.npz", folder / "found.npz", folder / "report"
            np.savez(given, **dict(inputs))  # type: ignore[arg-type]  # numpy's stub takes them for its own option
            program = PROGRAM.format(
                folder=str(loader_of(self.artifact)),
                given=str(given),
                artifact=str(self.artifact),
                script=script,
                found=str(found),
                device=device,
            )
            variables = {
                "LD_LIBRARY_PATH": str((runtime or build_runtime()).parent),
                "TW_DOUBLE": f"{self.settings} {mode} {extra}",
                "TW_DOUBLE_REPORT": str(report),
                "PYTHONPATH": "",
            }
            done = subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
            )
            assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
            state, fault, *calls = report.read_text().splitlines() if report.exists() else ("{}", "")
            with np.load(found) as arrays:
                outputs = dict(arrays)
            error = json.loads(done.stdout.splitlines()[-1])
            return Outcome(outputs, error, json.loads(state), fault, tuple(calls))


def loader_of(artifact: Path) -> Path:
    """A folder with the loader inside an artifact, where Python keeps its bytecode, for all processes that open it."""
    with zipfile.ZipFile(artifact) as archive:
        content = archive.read("loader.py")

    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / "loader.py").write_bytes(content)

    return kept(repr(content), ".loader", make)


def on_double(artifact: Path, flavour: str = "plain") -> Twin:
    """A packed artifact with its kernels compiled for the double, in one of its flavours; those of a part too."""
    with zipfile.ZipFile(artifact) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        units = sorted(name for name in archive.namelist() if re.search(r"(^|/)source/kernels_\d+\.cu$", name))
        sources = {Path(name).name: archive.read(name).decode() for name in units}
        (folder,) = {name.partition("source/")[0] for name in units} or {""}
        library = archive.read(f"{folder}model.so")
    target = str(manifest["target"])
    if not target.startswith("cuda"):
        target = next(architecture for name, _ in images_of(library) for _, architecture, _ in [name.split(".")])
    capability = "".join(filter(str.isdigit, target))
    return Twin(artifact, " ".join([f"sm={capability}", *modules_of(library, sources, flavour)]))


def modules_of(library: bytes, sources: Mapping[str, str], flavour: str = "plain") -> list[str]:
    """The double's settings for the images in a library, whose sources are compiled for the double."""
    with ThreadPoolExecutor(2) as pool:
        built = pool.map(lambda unit: compile_kernels(sources[unit], flavour, unit), sources)
        objects = dict(zip(sources, built, strict=True))
    settings = []
    for name, content in images_of(library):
        unit, architecture, _ = name.split(".")
        settings.append(f"module={image_file(content)}:{architecture}:{objects[f'{unit}.cu']}")
    return settings


def image_file(content: bytes) -> Path:
    """A file that the double knows an image by."""
    return kept(repr(content), ".image", lambda made: made.write_bytes(content))


def images_of(library: bytes) -> Iterable[tuple[str, bytes]]:
    """The images in model.so by their files' names.

    Sections `.tw.kernels_0.sm_90a.cubin` and so on, of a 64-bit ELF.
    """
    (table,) = struct.unpack_from("<Q", library, 40)
    size, count, names = struct.unpack_from("<HHH", library, 58)
    headers = [struct.unpack_from("<IIQQQQ", library, table + at * size) for at in range(count)]
    texts = headers[names][4]
    for name, _, _, _, offset, length in headers:
        text = library[texts + name : library.index(b"\0", texts + name)].decode()
        if text.startswith(".tw."):
            yield text.removeprefix(".tw."), library[offset : offset + length]


LOOPS = Tile("loops")


def plan_of(kernels: KernelGraph, target: CudaTarget, tiles: Iterable[Tile] = ()) -> Plan:
    """One lane, call after call; all by plain loops where no tiles are given."""
    chosen = tuple(tiles) or (LOOPS,) * len(kernels.calls)
    places, arena = place_buffers(kernels)
    draft = Plan(1, (), tuple((tile, 0) for tile in chosen), places, arena, "sequential")
    blocks = [kernel.grid for kernel in lower_cuda_calls(kernels, draft, target)]
    tasks = tuple(Task(call, 0, 0, count) for call, count in enumerate(blocks) if count)
    return Plan(1, tasks, tuple(zip(chosen, blocks, strict=True)), places, arena, "sequential")


def artifact_of(kernels: KernelGraph, plan: Plan, path: Path, target: str = "cuda:sm_90") -> Path:
    """Emits and packs an artifact; what it says of costs is made up."""
    resolved = resolve(target)
    program = emit_cuda(kernels, plan, resolved, find_cuda_toolchain(), 2)
    costs = tuple(Cost(1e-6, "model") for _ in kernels.calls)
    facts = Facts("ab" * 32, {"target": target}, target, "", len(kernels.calls), len(kernels.calls), costs)
    return pack(program, plan, kernels, (), facts, path).path
