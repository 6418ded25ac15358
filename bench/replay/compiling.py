"""Outcomes of cases: compiled by a child process, or out of the cache where the same compiler had the case before."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench import public, subjects, zoo
from bench.drawn.layers import drawn
from bench.replay import child, objects
from bench.replay.cases import DRAWN, Case
from bench.replay.outcome import Outcome, of_artifact
from bench.replay.side import Side, digest_of
from bench.subject import Subject

FORMAT = 1
"""Of what is kept: another one makes everything anew."""
LONGEST_S = 3600.0
TUNING_S = 6.0
"""Seconds of tuning for the records of one model, once."""
PACKAGES = ("ml_dtypes", "numpy", "nvidia-cuda-nvrtc", "onnx", "protobuf")
COMPILERS = ("gcc", "cc", "clang")
SHORT = 24
FRAMES = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t]+.*\n)*", re.MULTILINE)
"""Of a crash: which lines of the compiler were being run."""


class NotThatCompiler(Exception):
    """A child would have run another compiler than the one it was given: nothing that it made counts."""


def default_folder() -> Path:
    """`replay` in the folder that also holds the public models: outside the tree, shared by all checkouts."""
    return public.cache_dir().parent / "replay"


@cache
def surroundings() -> dict[str, Any]:
    """What results depend on beside the compiler's own files: machine, cores, Python, packages, C compiler."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "format": FORMAT,
        "machine": [platform.machine(), platform.system(), _processor(), cores],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "cc": _version_of_c(),
    }


def _processor() -> str:
    """The kernel's lines about the first processor, but its clock, which changes."""
    try:
        text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return platform.processor()
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    kept = [line for line in text.splitlines() if not line.startswith(("cpu MHz", "bogomips", "apicid", "initial"))]
    return "\n".join([*kept, *(path.read_text().strip() for path in caches)])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _version_of_c() -> str:
    path = _c_compiler()
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout if path else ""


@cache
def _c_compiler() -> str:
    """The path of the one that the compiler would take; empty where there is none."""
    names = [os.environ["CC"]] if os.environ.get("CC") else COMPILERS
    return next((path for path in map(shutil.which, names) if path), "")


@dataclass(frozen=True)
class Kept:
    """The folder with models, records and outcomes. `given` are records for every tuned case, in place of its own."""

    folder: Path
    given: Path | None = None
    _locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def place(self, kind: str) -> Path:
        """The folder for files of one kind, made where it is not there."""
        place = self.folder / kind
        place.mkdir(parents=True, exist_ok=True)
        return place

    def subject(self, name: str) -> Subject:
        """A network of the zoo or a drawn model, built once, or one of the public set.

        Raises what `bench.public` raises.
        """
        if name.startswith(DRAWN):
            family, _, number = name.removeprefix(DRAWN).rpartition("-")
            data = drawn(family, int(number))
            file = self.place("models") / f"{name}-{hashlib.sha256(data).hexdigest()[:SHORT]}.onnx"
            with self._locks[file.name]:
                if not file.exists():
                    draft = file.with_suffix(".part")
                    draft.write_bytes(data)
                    draft.replace(file)
            return Subject(name, "drawn", file)
        if name in {model.name for model in public.PUBLIC}:
            return subjects.from_package(name, public.fetch(name))
        built = self.place("models") / f"{name}-{_zoo_digest()}.onnx"
        with self._locks[built.name]:
            if not built.exists():
                with tempfile.TemporaryDirectory(dir=built.parent) as folder:
                    subjects.from_zoo(name, Path(folder)).file.replace(built)
        return Subject(name, "zoo", built)

    def records(self, case: Case, subject: Subject, maker: Side) -> Path | None:
        """The records that a case is compiled with: those given, else what `maker` measured for the model once.

        None for cases that are not tuned, and where `maker` cannot compile the model.
        """
        if not case.tuned or self.given:
            return self.given if case.tuned else None
        key = hashed([surroundings(), _digest_of_file(subject.file), case.target, case.precision, dict(case.options)])
        made = self.place("records") / f"{case.model}-{key}.jsonl"
        with self._locks[made.name]:
            if not made.exists():
                outcome = compiled(case, subject, maker, None, TUNING_S)
                if outcome.error:  # and so will the case itself be
                    return None
                draft = made.with_suffix(".part")
                draft.write_text(outcome.texts.get("records.jsonl", ""))
                draft.replace(made)
        return made

    def outcome(self, case: Case, subject: Subject, side: Side, records: Path | None, again: bool = False) -> Outcome:
        """What `side` makes of a case: compiled now where that is not known, or `again`.

        Again means down to the last object file. Failures are not kept.
        """
        file = self.place("outcomes") / f"{case.model}-{self.key(case, subject, side, records)}.zip"
        if file.exists() and not again:
            return Outcome.load(file)
        cc = None if again or not _c_compiler() else objects.launcher(self.place("objects"), _c_compiler())
        made = compiled(case, subject, side, records, cc=cc)
        if not made.error:  # which may be the machine's: a full disk, too little memory, a signal
            made.save(file)
        return made

    @staticmethod
    def key(case: Case, subject: Subject, side: Side, records: Path | None) -> str:
        """What a result follows from, as one name: surroundings, compiler, model, records, options."""
        measured = hashlib.sha256(records.read_bytes()).hexdigest() if records else ""
        asked = [case.target, case.precision, dict(case.options), dict(subject.options)]
        return hashed([surroundings(), side.digest, _digest_of_file(subject.file), measured, asked])


def compiled(
    case: Case,
    subject: Subject,
    side: Side,
    records: Path | None,
    tuning_s: float = 0.0,
    cc: Path | None = None,
) -> Outcome:
    """What the compiler of `side` makes of a case, in a process of its own, `cc` for the C compiler.

    Raises NotThatCompiler.
    """
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        artifact = Path(folder) / "model.tw"
        options = {"tuning_budget_s": tuning_s, **subject.options, **case.options}
        command = [sys.executable, "-P", child.__file__, str(side.tree), str(subject.file)]
        command += ["--target", case.target, "--precision", case.precision, "--options", json.dumps(options)]
        command += ["--json", "--out", str(artifact), *(["--records", str(records)] if records else [])]
        begun = time.monotonic()
        try:
            ended = subprocess.run(
                command,
                cwd=folder,
                env=environment(side, cc),
                capture_output=True,
                text=True,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(f"not done after {LONGEST_S:g} s")
        seconds = time.monotonic() - begun
        if ended.returncode == child.WRONG_COMPILER:
            raise NotThatCompiler(ended.stderr.strip())
        if ended.returncode == 0 and artifact.exists():
            return of_artifact(artifact, json.loads(ended.stdout), seconds)
        said = ended.stderr.strip() or "nothing was said"
        for place, known in {str(side.tree): "", folder: "", str(subject.file): subject.name}.items():
            said = said.replace(place, known)
        frames = FRAMES.findall(said)
        error = FRAMES.sub("", said)
        status = "" if ended.returncode == 1 else f"exit status {ended.returncode}: "
        return Outcome(f"{status}{error}", "".join(frames), seconds=seconds)


def environment(side: Side, cc: Path | None) -> dict[str, str]:
    """Of a child: no Python path but the side's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(side.tree), **({"CC": str(cc)} if cc else {})}


def hashed(parts: Sequence[Any]) -> str:
    """A short name for equal parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:SHORT]


@cache
def _digest_of_file(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@cache
def _zoo_digest() -> str:
    return hashed([digest_of(Path(zoo.__file__).parent), _version("numpy"), _version("onnx")])
