"""Loads an artifact with the loader that travels in it: the right one for its format and its library."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from tilewright.attestation import SUFFIX, verify_bytes
from tilewright.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT_VERSIONS = (1,)
"""Of artifacts whose loader has the interface below."""
LOADER = "loader.py"
ANOTHER = "give a .tw file made by Tilewright, or the folder it was extracted to"


class TensorSpec(Protocol):
    """An input or output of a model."""

    @property
    def name(self) -> str:
        """As the model calls it."""
        ...

    @property
    def dtype(self) -> str:
        """The element type as artifacts name it, such as `float32`."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes; where sizes are open, the largest."""
        ...

    @property
    def numpy(self) -> np.dtype[Any]:
        """The element type as numpy's."""
        ...

    @property
    def axes(self) -> Sequence[Any]:
        """Of each axis its range (`low`, `opt`, `high`, `step`), None where its size is that in `shape`."""
        ...


class Binding(Protocol):
    """Shapes that a model runs."""

    @property
    def number(self) -> int:
        """From 1."""
        ...

    @property
    def dims(self) -> Mapping[str, Any]:
        """Values of the model's symbolic dimensions: numbers, and ranges as `{"min": 1, "opt": 4, "max": 16}`."""
        ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What `run` takes, in the model's order."""
        ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What `run` gives, in the model's order."""
        ...


class Carried(Protocol):
    """An output that is an input of the next run (option `carry`)."""

    @property
    def output(self) -> TensorSpec:
        """What a run makes."""
        ...

    @property
    def input(self) -> TensorSpec:
        """What the next run takes it as."""
        ...


class State(Protocol):
    """What a sequence of runs hands on, in memory of its own; `state[name]` is a copy of a tensor of it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the inputs that it holds."""
        ...

    @property
    def bytes(self) -> int:
        """The memory that it has."""
        ...

    def __len__(self) -> int:
        """Rows of caches that grow. Raises TypeError without such caches."""
        ...

    def __getitem__(self, name: str) -> NDArray[Any]: ...
    def __setitem__(self, name: str, value: Any) -> None: ...

    def reset(self) -> None:
        """Zeros again, as it began."""
        ...

    def truncate(self, length: int) -> None:
        """Forgets rows of caches that grow, from `length` on. Raises one of the model's `errors`."""
        ...

    def fork(self) -> State:
        """Another one that holds the same."""
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file that `Model.state` reads."""
        ...


class Frame(Protocol):
    """One inference in flight."""

    def result(self) -> dict[str, NDArray[Any]]:
        """Waits for its outputs. Raises one of the model's `errors` where this frame failed."""
        ...


class Model(Protocol):
    """What an artifact's loader gives; `docs/artifact.md` describes it."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The artifact's manifest.json."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its methods raise."""
        ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What `run` takes, in the model's order."""
        ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What `run` gives, in the model's order."""
        ...

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The bindings of its dimensions that it runs; artifacts of earlier compilers lack it."""
        ...

    @property
    def carried(self) -> Sequence[Carried]:
        """What runs from a `state` hand on; artifacts of earlier compilers lack it."""
        ...

    def at(self, number: int) -> Model:
        """The model at one of its bindings, closed with this one."""
        ...

    def state(self, path: str | os.PathLike[str] | None = None) -> State:
        """Zeros, or what `State.save` wrote, for runs that hand something on. Raises one of `errors`."""
        ...

    def run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, NDArray[Any] | None] | None = None,
        state: State | None = None,
        seed: int | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Outputs by name, for inputs by name; `out` gives arrays for some or all outputs. Raises one of `errors`.

        A `state` holds inputs and takes outputs over, which are then left out. A `seed` says what random numbers the
        model draws. Artifacts of earlier compilers lack both.
        """
        ...

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """As `run`, for inputs in order or by name; of one output the array. Artifacts of earlier compilers lack it."""
        ...

    def run_flat(self, inputs: Sequence[Any], out: Sequence[NDArray[Any] | None] | None = None) -> list[NDArray[Any]]:
        """As `run`, in the order of `inputs` and `outputs`."""
        ...

    def run_texts(self, texts: Iterable[Any]) -> list[dict[str, NDArray[Any]]]:
        """Outputs of each of many texts of unequal lengths, of an artifact that was compiled with `ragged`."""
        ...

    def chunks(self, inputs: Mapping[str, Any], seed: int | None = None) -> Iterator[NDArray[Any]]:
        """An output piece by piece, of an artifact that was compiled with `chunks`; earlier compilers' lack it."""
        ...

    def bind(self, inputs: Sequence[Any], out: Sequence[Any]) -> Callable[[], float]:
        """A run that is checked once, of arrays that are used in place; each call gives its seconds."""
        ...

    def stream(
        self, frames: Iterable[Mapping[str, Any]], depth: int | None = None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Outputs of each of many inputs, in their order, with several in flight on the devices it was compiled for.

        What is wrong with one of them is raised in its turn, and the next `next` goes on; artifacts of earlier
        compilers lack it.
        """
        ...

    def submit(self, inputs: Mapping[str, Any]) -> Frame:
        """Begins one inference among several in flight; as `stream`."""
        ...

    def random_inputs(self, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, NDArray[Any]]:
        """Inputs by name, of the model's shapes and types; the same for the same seed.

        `sizes` are those of dimensions that have a range; artifacts of earlier compilers lack it.
        """
        ...

    def profile(self, inputs: Mapping[str, Any] | None = None, repeats: int = 10) -> list[dict[str, Any]]:
        """For each kernel call what it is, and its median seconds over `repeats` runs; random `inputs` by default."""
        ...

    def trace(self, inputs: Mapping[str, Any] | None = None, repeats: int = 30) -> list[tuple[float, float]]:
        """Begin and end of each task of the running plan, in seconds; artifacts of earlier compilers lack it."""
        ...

    def plan_json(self) -> dict[str, Any]:
        """The running plan; as `trace`."""
        ...

    def bench(self, seconds: float = 2.0, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The latency of a run in seconds, measured for about `seconds`, as plain JSON; random `inputs` by default."""
        ...

    def close(self) -> None:
        """Free the model and its threads; a second call does nothing. A later `run` raises one of `errors`."""
        ...

    def __enter__(self) -> Model: ...
    def __exit__(self, *reason: object) -> None: ...


_loaders: dict[str, ModuleType] = {}
"""By the SHA-256 of their source."""


def load(
    path: str | os.PathLike[str],
    lanes: int | None = None,
    *,
    signer: str | bytes | None = None,
    attestation: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    **options: Any,
) -> Model:
    """The model in an artifact, ready to run; it executes code out of the file, so load none from strangers.

    With `signer`, the public key as PEM (`Client.signer`), no code of the file runs unless its attestation is signed by
    that key and about these bytes. They are copied into sealed memory, checked there, and loaded from there, so nobody
    can change them in between, or while the model runs; the copy takes memory of the file's size. `attestation` is the
    statement or its file, None for the file beside the artifact that `tilewright attest` names (`.intoto.json`).

    `lanes` is the number of threads, None for what the plan was made for; `options` go to the artifact's own `Model`
    (`verify`, `spin_us`, `plan`, `pin`, `binding`). Raises `UsageError`, with the fix, for what is missing, damaged, of
    another format version, or not for this machine, `NotGenuine` for what the signer's statement is not about.
    """
    where = Path(path)
    if signer is None:
        if attestation is not None:
            raise UsageError("an attestation is of no use without its signer's key", fix="give signer=, see `signer`")
        return _load(where, lanes, options)
    envelope = attestation if isinstance(attestation, Mapping) else _envelope(where, attestation)
    copy = _sealed_copy(where)
    try:
        verify_bytes(where, copy, envelope, signer)
        model = _load(Path(f"/proc/self/fd/{copy}"), lanes, options)
        weakref.finalize(model, os.close, copy).atexit = False
    except BaseException:
        os.close(copy)
        raise
    return model


def set_threads(threads: int | None) -> None:
    """How many threads of this process may be at work in models, callers included; None: as many as its cores.

    From now on, amid runs too, and for models that are loaded later. It becomes the variable TILEWRIGHT_THREADS, which
    new processes inherit. Raises `UsageError` for another number.
    """
    if threads is not None and (type(threads) is not int or threads < 1):
        fix = "give 1 or more, callers included, or None for all cores"
        raise UsageError(f"threads is {threads!r}", fix=fix)
    if threads is None:
        os.environ.pop("TILEWRIGHT_THREADS", None)
    else:
        os.environ["TILEWRIGHT_THREADS"] = str(threads)
    for loader in list(_loaders.values()):
        if hasattr(loader, "set_threads"):  # those of artifacts of earlier compilers lack it
            loader.set_threads(threads)


def _envelope(where: Path, attestation: str | os.PathLike[str] | None) -> Mapping[str, Any]:
    file = Path(attestation) if attestation is not None else where.with_name(where.name + SUFFIX)
    fix = f"fetch it with `tilewright attest JOB -o {file}`, or give attestation="
    try:
        envelope = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"the attestation {file} cannot be read: {error.strerror}", fix=fix) from error
    except ValueError as error:
        raise UsageError(f"the attestation {file} is not JSON: {error}", fix=fix) from error
    return cast("Mapping[str, Any]", envelope)


def _sealed_copy(where: Path) -> int:
    """A file in memory with the bytes of `where`, which nobody can change any more; its descriptor."""
    import fcntl  # Linux and macOS have it; the commands that only talk to a server run anywhere

    if where.is_dir():
        raise UsageError(f"{where} is a folder, and the signature is for the .tw file", fix="give the .tw file")
    copy = os.memfd_create(where.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with where.open("rb") as source, open(copy, "wb", closefd=False) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    except BaseException as error:
        os.close(copy)
        if isinstance(error, OSError):
            raise UsageError(f"{where} cannot be read into memory: {error.strerror}", fix=ANOTHER) from error
        raise
    return copy


def _load(where: Path, lanes: int | None, options: Mapping[str, Any]) -> Model:
    manifest = read_manifest(where)
    loader = _loader(where, manifest)
    try:
        return cast(Model, loader.Model(where, lanes, **options))
    except loader.ArtifactError as reason:
        raise UsageError(reason.message, fix=reason.fix) from reason


def read_manifest(where: Path) -> Mapping[str, Any]:
    """The manifest, once its format version is known. Raises `UsageError`."""
    try:
        manifest = json.loads(_read(where, "manifest.json"))
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError) as reason:
        raise UsageError(f"the manifest of {where} is damaged: {reason!r}", fix=ANOTHER) from reason
    if version not in FORMAT_VERSIONS:
        known = ", ".join(map(str, FORMAT_VERSIONS))
        raise UsageError(
            f"{where} has format version {version!r}, this tilewright loads {known}",
            fix=f"upgrade tilewright, or run the artifact's own: python {where.name} --bench",
        )
    return cast("Mapping[str, Any]", manifest)


def read_checked(where: Path, manifest: Mapping[str, Any], name: str) -> tuple[bytes, str]:
    """A member and its SHA-256. Raises `UsageError` unless it is the one that the manifest promises."""
    source = _read(where, name)
    digest = hashlib.sha256(source).hexdigest()
    try:
        promised = manifest["files"][name]["sha256"]
    except (KeyError, TypeError) as reason:
        raise UsageError(f"the manifest of {where} lists no {name}", fix=ANOTHER) from reason
    if digest != promised:
        raise UsageError(
            f"{name} in {where} is damaged: its SHA-256 is {digest}, not {promised}", fix="download it again"
        )
    return source, digest


def _loader(where: Path, manifest: Mapping[str, Any]) -> ModuleType:
    """The module that the artifact's loader is, executed once for all artifacts that carry the same."""
    source, digest = read_checked(where, manifest, LOADER)
    if digest not in _loaders:
        module = ModuleType(f"tilewright_loader_{digest[:12]}")
        module.__file__ = str(where / LOADER)
        sys.modules[module.__name__] = module
        try:
            exec(compile(source, module.__file__, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[module.__name__]
            raise
        _loaders[digest] = module
    return _loaders[digest]


def _read(where: Path, name: str) -> bytes:
    try:
        if where.is_dir():
            return (where / name).read_bytes()
        with zipfile.ZipFile(where) as archive:
            return archive.read(name)
    except (OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as reason:
        raise UsageError(f"{where} is not an artifact: {reason}", fix=ANOTHER) from reason
