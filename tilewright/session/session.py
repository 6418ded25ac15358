"""`InferenceSession`: an artifact, or a model that is compiled here, under the calls of ONNX Runtime's class."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import local
from tilewright.errors import ClientError, UsageError
from tilewright.files import whole
from tilewright.loading import Model, load
from tilewright.session.binding import IOBinding
from tilewright.session.options import SessionOptions, compile_options, given_dims, refuse_unsupported
from tilewright.session.peer import peer
from tilewright.session.ports import Described, ModelMetadata, NodeArg

if TYPE_CHECKING:
    from numpy.typing import NDArray

OURS = "TilewrightExecutionProvider"
HOST = "CPUExecutionProvider"

log = logging.getLogger("tilewright")
defaults: dict[str, Any] = {}
"""Compile options of all sessions, where theirs do not say otherwise (`tilewright.session.stand_in`)."""


class InvalidArgument(ValueError):
    """A name, type or shape that the model does not have."""


class InferenceSession:
    """A model that runs.

    path_or_bytes  a `.tw` file; an ONNX file, or its bytes, which is compiled on this machine and kept in the user's
                   cache (`tilewright.local`)
    sess_options   `SessionOptions`, or ONNX Runtime's
    providers      must have CPUExecutionProvider (or TilewrightExecutionProvider), if it is given
    options        compile options beside those that `sess_options` amounts to; of a `.tw` file none

    While an ONNX model is compiled for the first time, in a thread and a process of their own, ONNX Runtime answers
    where it is installed; without it the session begins when the compilation has ended. It also answers where the
    compiler refuses the model (`refused` says why), and for sizes that the artifact does not have.

    Raises `UsageError` for what cannot be read and options that are not supported, `JobFailed` where the compiler
    refuses the model and ONNX Runtime is not installed.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        given = SessionOptions() if sess_options is None else sess_options
        refuse_unsupported(given)
        _demand_host(providers)
        self._options = given
        self._threads = getattr(given, "intra_op_num_threads", 0) or None
        self._ready = threading.Event()
        self._ours: Model | None = None
        self._peer: Any = None
        self._described: Described
        self._pool: ThreadPoolExecutor | None = None
        self.refused = ""
        """Why the compiler refuses the model; empty where it does not."""
        path = _file_of(path_or_bytes)
        self._onnx: Path | None = None if path.suffix == ".tw" else path
        if self._onnx is None:
            self._ours = load(path, self._threads)
            self._ready.set()
            self._described = Described.of(self._ours)
        else:
            self._described = self._opened(path, compile_options(given, {**defaults, **(options or {})}))
        self._names = tuple(port.name for port in self._described.outputs)
        self._needed = frozenset(port.name for port in self._described.inputs)

    def _opened(self, path: Path, options: Mapping[str, Any]) -> Described:
        """Begins with an ONNX file; what is said of it, which is the same whoever answers first."""
        kept = local.kept(path, options)
        if peer() is None:
            self._begin(load(local.compiled(path, options)))
            assert self._ours is not None
            return Described.of(self._ours)
        known = kept.with_suffix(".json")
        described = Described.read(known)
        if described is None or not kept.exists():
            self._peer = _onnxruntime(path, given_dims(self._options), self._threads)
            described = Described.like(self._peer)
            local.made_folder()
            described.write(known)
        self._described = described
        if kept.exists():
            self._begin(load(local.compiled(path, options)))
        else:
            threading.Thread(target=self._compile, args=(path, options), name="tilewright-compile", daemon=True).start()
        return described

    def _compile(self, path: Path, options: Mapping[str, Any]) -> None:
        """Compiles, and takes the artifact from the next run on; what refuses it is kept."""
        try:
            self._begin(load(local.compiled(path, options)))
        except (ClientError, OSError) as error:
            self.refused = str(error)
            log.warning("%s is run by ONNX Runtime: %s", path, error)
        finally:
            self._ready.set()

    def _begin(self, model: Model) -> None:
        """Takes an artifact; ONNX Runtime's session stays where it may be asked for sizes that the artifact lacks."""
        self._ours = model
        if self._peer is not None and not self._described.has_sizes:
            self._peer = None
        self._ready.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, for so many seconds at most, until the model is compiled or refused; whether the artifact runs."""
        self._ready.wait(timeout)
        return self._ours is not None

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[NDArray[Any]]:
        """The outputs of these names, of all for None, in this order.

        Raises ValueError where an input is missing, `InvalidArgument` for a name, type or shape that the model does not
        have, RuntimeError where a run fails.
        """
        names = self._wanted(output_names)
        found = self._run(names, input_feed, {})
        return [found[name] for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[NDArray[Any]], Any, str], None],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Runs in a thread of the session's; `callback` is then given outputs, `user_data` and what failed, or ""."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "tilewright-run")

        def once() -> None:
            found: list[NDArray[Any]] = []
            said = ""
            try:
                found = self.run(output_names, input_feed)
            except Exception as error:
                said = str(error) or type(error).__name__
            callback(found, user_data, said)

        self._pool.submit(once)

    def io_binding(self) -> IOBinding:
        """To bind inputs and outputs to, for `run_with_iobinding`."""
        return IOBinding(self._names)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Runs on what is bound; only outputs that are bound are given. Raises as `run`."""
        out = {name: array for name, array in iobinding.outputs.items() if array is not None}
        iobinding.take(self._run(tuple(iobinding.outputs), iobinding.inputs, out))

    def get_inputs(self) -> list[NodeArg]:
        """Name, shape and type of each input."""
        return list(self._described.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Name, shape and type of each output."""
        return list(self._described.outputs)

    def get_providers(self) -> list[str]:
        """What answers now: TilewrightExecutionProvider, or CPUExecutionProvider of ONNX Runtime."""
        return [OURS] if self._ours is not None else [HOST]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """None of any."""
        return {name: {} for name in self.get_providers()}

    def get_session_options(self) -> Any:
        """Those that were given."""
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself; of a `.tw` file what that says."""
        return self._described.meta

    def _wanted(self, names: Sequence[str] | None) -> tuple[str, ...]:
        if not names:
            return self._names
        if unknown := [name for name in names if name not in self._names]:
            raise InvalidArgument(f"Invalid output name: {unknown[0]!r:.100}; outputs are {', '.join(self._names)}")
        return tuple(names)

    def _run(
        self, names: tuple[str, ...], feed: Mapping[str, Any], out: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """Outputs by name, at least those of `names`."""
        if not self._needed <= feed.keys():
            missing, given = sorted(self._needed - feed.keys()), list(feed)
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({given}).")
        peer, ours = self._peer, self._ours  # in this order: the peer goes once there is an artifact
        if ours is not None:
            try:
                found = ours.run(feed, out or None)
                return {name: found[name] for name in names}
            except ours.errors as error:
                peer = self._for_other_sizes() if isinstance(error, ValueError) else None
                if peer is None:
                    raise (InvalidArgument(str(error)) if isinstance(error, ValueError) else error) from error
        try:
            return dict(zip(names, peer.run(list(names), dict(feed)), strict=True))
        except Exception as error:
            if type(error).__name__ == InvalidArgument.__name__:
                raise InvalidArgument(str(error)) from error
            raise

    def _for_other_sizes(self) -> Any:
        """ONNX Runtime's session, for what the artifact refuses; None where the model has no open sizes, or without."""
        if self._onnx is None or not self._described.has_sizes or peer() is None:
            return None
        if self._peer is None:
            self._peer = _onnxruntime(self._onnx, given_dims(self._options), self._threads)
        return self._peer


def _demand_host(providers: Sequence[Any] | None) -> None:
    """Raises `UsageError` where neither the CPU's provider nor ours is among those that are given."""
    names = [one if isinstance(one, str) else one[0] for one in providers or ()]
    if names and not {OURS, HOST} & {*names}:
        raise UsageError(f"the session runs on the CPU, not by {', '.join(names):.200}", fix=f"name {HOST}")


def _file_of(given: str | os.PathLike[str] | bytes) -> Path:
    """A file as it is; bytes in a file of the cache, by their digest."""
    if not isinstance(given, bytes):
        return Path(given)
    folder = local.made_folder()
    path = folder / f"{hashlib.sha256(given).hexdigest()}.onnx"
    if not path.exists():
        with whole(path) as file:
            file.write(given)
    return path


def _onnxruntime(path: Path, dims: Mapping[str, int], threads: int | None) -> Any:
    """ONNX Runtime's session. Raises `UsageError` for what it cannot read."""
    onnxruntime = peer()
    assert onnxruntime is not None, "whoever calls has asked"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    for name, size in dims.items():
        options.add_free_dimension_override_by_name(name, size)
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[HOST])
    except Exception as error:
        raise UsageError(f"cannot read {path}: {error}", fix="export the model again") from error
