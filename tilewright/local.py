"""Compiling on this machine, without a server, in a process of its own; artifacts are kept for the next time.

They lie in the user's cache folder by a digest of all that they depend on: the model with its external data, the
options, the version of Tilewright, and the processor, since what is measured holds for that.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tilewright import sources
from tilewright.errors import JobFailed, UsageError
from tilewright.extras import require
from tilewright.loading import Model, load
from tilewright.package import package

COMPILER = "compiler"
PROCESSOR = ("model name", "flags", "Features", "CPU part")
"""Lines of /proc/cpuinfo that say which processor it is."""

_running: set[subprocess.Popen[str]] = set()


def cache_dir() -> Path:
    """Where artifacts are kept: `TILEWRIGHT_CACHE_DIR`, else below the user's XDG cache folder."""
    if chosen := os.environ.get("TILEWRIGHT_CACHE_DIR"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "tilewright" / "artifacts"


def compile(model: str | os.PathLike[str], options: Mapping[str, Any] | None = None, lanes: int | None = None) -> Model:
    """A model that is compiled on this machine and ready to run; from the cache where it was compiled before.

    model    an ONNX file, with its external data beside it, or an address of one, `hf://owner/repo/file.onnx` or
             `https://...`; or a `.tw` file, which is loaded as it is
    options  as docs/options.md lists them, such as `{"threads": 2, "dims": {"batch": 4}}`
    lanes    threads of the model that is loaded; None: those that it was compiled for

    Raises `UsageError` for a file that cannot be read and where the compiler is not installed, `JobFailed` with the
    compiler's reason where it refuses the model.
    """
    path = sources.fetched(model) if isinstance(model, str) and sources.is_address(model) else Path(model)
    return load(path if path.suffix == ".tw" else compiled(path, options), lanes)


def compiled(model: Path, options: Mapping[str, Any] | None = None) -> Path:
    """The artifact of an ONNX file in the cache, compiled now unless it is there. Raises as `compile`."""
    artifact = kept(model, options)
    if artifact.exists():
        os.utime(artifact)
        return artifact
    try:
        import fcntl  # Linux and macOS have it; the commands that only talk to a server run anywhere
    except ImportError:
        fix = "let a server compile it: tilewright compile without --local; for Windows with --system windows"
        raise UsageError(f"a model is compiled on Linux, and this is {sys.platform}", fix=fix) from None

    require("server", "compiling on this machine")
    made_folder()
    with artifact.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not artifact.exists():
            with tempfile.TemporaryDirectory(dir=artifact.parent) as folder:
                made = Path(folder) / artifact.name
                notices = compile_to(made, model, options or {})
                _notes(artifact).write_text("\n".join(notices), "utf-8")
                made.replace(artifact)
    return artifact


def noticed(artifact: Path) -> list[str]:
    """What the compiler said of an artifact in the cache, such as what it was not run on."""
    notes = _notes(artifact)
    return notes.read_text("utf-8").splitlines() if notes.exists() else []


def _notes(artifact: Path) -> Path:
    return artifact.with_suffix(".notes")


def kept(model: Path, options: Mapping[str, Any] | None = None) -> Path:
    """Where the artifact is, or would be. Raises `UsageError` for a file that cannot be read."""
    if model.is_dir() or not model.exists():
        raise UsageError(f"cannot read {model}: there is no such file", fix="give the path of an ONNX file")
    try:
        release = metadata.version("tilewright")
    except metadata.PackageNotFoundError:
        release = ""
    facts = [package(model).digest, dict(options or {}), release, platform.machine(), _processor()]
    return cache_dir() / f"{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}.tw"


def compile_to(made: Path, model: Path, options: Mapping[str, Any]) -> list[str]:
    """Compile an ONNX file into the file `made`, which the cache does not have; notices. Raises `JobFailed`."""
    command = [sys.executable, "-m", COMPILER, str(model), "--out", str(made), "--options", json.dumps(dict(options))]
    status, report, printed = _run([*command, "--json"])
    if status:
        said = printed.strip().rpartition(f"{model}: ")[2] or f"the compiler ended with status {status}"
        message, _, fix = said.rpartition("Fix: ") if "Fix: " in said else (said, "", "")
        raise JobFailed(message.strip(), fix=fix)
    return [str(notice) for notice in json.loads(report).get("notices") or ()]


def _run(command: list[str]) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a process, which does not outlive this one."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _running.add(process)
    try:
        printed, said = process.communicate()
    finally:
        _running.discard(process)
    return process.returncode, printed, said


@atexit.register
def _end() -> None:
    """Ends what a thread waits for that ends with this program."""
    for process in list(_running):
        process.terminate()


def made_folder() -> Path:
    """The cache's folder, which is there then. Raises `UsageError`."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}", fix="set TILEWRIGHT_CACHE_DIR") from error
    return folder


def _processor() -> str:
    """What distinguishes this processor from others, and how many of its cores this process may use."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.split(":")[0].strip() in PROCESSOR and line not in lines:
                lines.append(line)
    return "\n".join([*lines, str(own_cores())])


def own_cores() -> int:
    """How many cores this process may use, where the system tells that; else how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
