"""One model in a process of its own: preflight, compiler, artifact, and what others compute for the same inputs."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from bench.conformance.judge import draws
from compiler.codegen.build import compile_library
from compiler.contract import CompileOptions
from compiler.devices.cpu.emit import library
from compiler.devices.cpu.target import this_machine
from compiler.errors import TilewrightError
from compiler.pack.loader import Model
from compiler.preflight import preflight
from tests.compiling import compile_file
from tests.fuzz import graphs, hostile, mutants, neighbours

MOST_SECONDS = 60
"""Of CPU for each process, so that what else runs on the machine does not count against a model."""
SOON_SECONDS = 20
"""Of those that may end by this limit."""
PATIENCE = 10
"""Wall seconds for each of them: for what waits for ever and uses no CPU."""
MOST_BYTES = 8 << 30
"""Of address space, beyond which a model is refused or fails."""
COMPILED = 8
"""Of so many hostile models one is compiled; the others are read and checked."""
OPTIMISED = 8
"""Of so many models one has the code of artifacts; that of others is optimised less, in half the C compiler's time."""
RELATIVE = 2e-3
"""Of the largest finite number of an output, by which right answers may differ."""

Feeds = Mapping[str, np.ndarray]
Reported = tuple[str, str, str, str]
OK, WRONG, SLOW = "ok", "wrong", signal.SIGXCPU.name


@dataclass(frozen=True)
class Subject:
    """A model, and how to compile and run it.

    feeds   inputs at several sizes; empty: what the artifact draws
    trusts  how many others must agree that an answer is wrong: of ill-defined models each has its own
    options  more than dims to compile it with
    only_preflight  it is not compiled
    may_be_slow     it may end by the limit of CPU seconds
    """

    seed: str
    model: bytes
    dims: Mapping[str, object] = field(default_factory=dict)
    feeds: Sequence[Feeds] = ()
    trusts: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)
    only_preflight: bool = False
    may_be_slow: bool = False


def _of_graph(number: int) -> Subject:
    model, dims, feeds = graphs.drawn(number)
    return Subject("graph", model, dims, feeds, trusts=1)


def _neighbour(number: int) -> Subject:
    name, model, options, feeds = neighbours.drawn(number)
    return Subject(name, model, feeds=feeds, trusts=1, options=options)


def _hostile(number: int) -> Subject:
    return Subject(*hostile.hostile(number), only_preflight=number % COMPILED != 0, may_be_slow=True)


KINDS: Mapping[str, Callable[[int], Subject]] = {
    "graph": _of_graph,
    "mutant": lambda number: Subject(*mutants.mutant(number)),
    "broken": lambda number: Subject(*mutants.broken(number)),
    "hostile": _hostile,
    "neighbour": _neighbour,
}
"""Sources of models, by name."""


@dataclass(frozen=True)
class Outcome:
    """How a model ended: `ok`, `wrong`, the code of an error, or what killed the process.

    foretold  the code of the problem that preflight told, `ok` where it told none
    fault     whose it is; `caller` is the only one that a model may have
    """

    foretold: str
    code: str
    fault: str = ""
    message: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether there is a right artifact that preflight promised, or a refusal of which the caller is told.

        What only evaluating finds, such as an index outside of its tensor, preflight does not tell.
        """
        return self.fault == "caller" if self.code != OK else self.foretold == OK


SERVER = multiprocessing.get_context("forkserver")
"""Its processes are copies of one that has this module and no threads: a copy of the caller might wait for ever for a
lock that one of the caller's threads held."""
SERVER.set_forkserver_preload([__name__])


def judged(subject: Subject, number: int) -> Outcome:
    """What becomes of a model in a process of its own with MOST_SECONDS and MOST_BYTES, past which it is killed."""
    reading, writing = SERVER.Pipe(duplex=False)
    child = SERVER.Process(target=_told, args=(writing, ended, subject, number))
    child.start()
    writing.close()
    try:
        return Outcome(*reading.recv())
    except EOFError:
        child.join()
        status = child.exitcode or 0
        killed = signal.Signals(-status).name if status < 0 else f"exit {status}"
        # A service has such a limit too, and says so: what is hostile may take that long.
        whose = "caller" if subject.may_be_slow and killed == SLOW else "ours"
        return Outcome("", killed, whose, "the process told nothing")
    finally:
        child.join()


def _told(writing: Connection, end: Callable[[Subject, int], Reported], subject: Subject, number: int) -> None:
    if number % OPTIMISED:
        patch.object(library, "compile_library", _compiled_soon).start()
    writing.send(end(subject, number))


def _compiled_soon(*sources: Any, **named: Any) -> bytes:
    return compile_library(*sources, **{**named, "optimise": "-O1"})


def asked(subject: Subject, number: int) -> dict[str, Any]:
    """Options that a model is compiled with, as JSON: in what precision is left open where this machine has no bf16."""
    options = dict(subject.options or {"threads": 1 + number % 2})
    if options.get("precision") == "bf16" and not this_machine().multiplies_bf16:
        options["precision"] = "auto"
    return {"tuning_budget_s": 0, "dims": subject.dims, **options}


def ended(subject: Subject, number: int) -> Reported:
    """The fields of an outcome, in the process that may end by it."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    seconds = SOON_SECONDS if subject.may_be_slow else MOST_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    signal.alarm(PATIENCE * MOST_SECONDS)
    options = CompileOptions.from_json(asked(subject, number))
    with tempfile.TemporaryDirectory(prefix="tw-fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, about the values of a mutant
        model, artifact = Path(folder) / "model.onnx", Path(folder) / "model.tw"
        model.write_bytes(subject.model)
        foretold = ""
        try:
            problem = preflight(model, options)["problem"]
            foretold = problem["code"] if problem else OK
            if subject.only_preflight:
                return (foretold, foretold, problem["fault"], problem["message"]) if problem else (OK, OK, "", "")
            compile_file(model, artifact, options, measure=False)
            wrong = unlike_others(subject, artifact)
        except TilewrightError as error:
            return foretold, error.code, error.fault, f"{error!s:.600}"
        except MemoryError:
            return foretold, "memory", "caller", ""
        except Exception as error:
            frame = error.__traceback__
            while frame is not None and frame.tb_next is not None:
                frame = frame.tb_next
            at = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else ""
            return foretold, type(error).__name__, "ours", f"{error!s:.400} at {at}"
    return (foretold, WRONG, "ours", wrong) if wrong else (foretold, OK, "", "")


def unlike_others(subject: Subject, artifact: Path) -> str:
    """In what an artifact differs from all others that answer, of which there are `trusts`; empty: in nothing."""
    model = onnx.load_from_string(subject.model)
    with Model(artifact) as loaded:
        if not subject.feeds and draws(model):
            return ""
        relative = neighbours.RELATIVE[subject.options.get("precision", "fp32")]
        for one, found in _runs(loaded, subject):
            answers = [answer for by in (_onnxruntime, _reference) if (answer := by(subject.model, one)) is not None]
            apart = [difference(found, answer, relative) for answer in answers]
            if (
                len(apart) >= subject.trusts
                and all(apart)
                and (len(answers) < 2 or not difference(answers[0], answers[1]))
            ):
                sizes = {name: list(array.shape) for name, array in one.items()}
                return f"{apart[0]} of inputs {sizes}"
    return ""


def _runs(loaded: Model, subject: Subject) -> Iterator[tuple[Feeds, list[Any]]]:
    """Inputs with the outputs of an artifact: runs alone, from a state, and through devices, as it was compiled for."""
    feeds = subject.feeds or [loaded.random_inputs(1)]
    for one in feeds:
        yield one, [*loaded.run(one).values()]
    if "devices" in subject.options:
        for one, outputs in zip(feeds, loaded.stream(feeds), strict=True):
            yield one, [*outputs.values()]
    if carry := subject.options.get("carry"):
        state, held = loaded.state(), {into: np.zeros_like(feeds[0][into]) for into in carry.values()}
        for one in (*feeds, *feeds):
            given = {name: array for name, array in one.items() if name not in held}
            outputs = loaded.run(given, out=dict.fromkeys(carry), state=state)
            yield {**given, **held}, [*outputs.values()]
            held = {into: outputs[out] for out, into in carry.items()}


def _onnxruntime(model: bytes, feeds: Feeds) -> list[Any] | None:
    """What ONNX Runtime computes, in a process that it may take down, as Max of an absent input does; None for none."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=lambda: there.send(_by_onnxruntime(model, feeds)), daemon=True
    )
    process.start()
    there.close()
    try:
        found: list[Any] | None = here.recv()
    except EOFError:
        return None
    finally:
        process.join()
    return found


def _by_onnxruntime(model: bytes, feeds: Feeds) -> list[Any] | None:
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level, quiet.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model, quiet, providers=["CPUExecutionProvider"])
        return list(session.run(None, {info.name: feeds[info.name] for info in session.get_inputs()}))
    except Exception:
        return None


def _reference(model: bytes, feeds: Feeds) -> list[Any] | None:
    """What onnx's reference evaluator computes; None where it does not."""
    try:
        return list(ReferenceEvaluator(onnx.load_from_string(model)).run(None, dict(feeds)))
    except Exception:
        return None


def difference(found: Sequence[Any], wanted: Sequence[Any], relative: float = RELATIVE) -> str:
    """In what the first outputs that differ do; empty where none does, or they cannot be compared.

    Whole numbers are compared where `relative` is that of float32: of others a tie falls to either side.
    """
    if len(found) != len(wanted) or any(isinstance(one, list | dict) for one in wanted):
        return ""
    for place, (one, other) in enumerate(zip(found, map(np.asarray, wanted), strict=True)):
        if one.shape != other.shape:
            return f"output {place} has shape {list(one.shape)}, not {list(other.shape)}"
        if one.dtype != other.dtype or not one.size:
            continue
        if one.dtype.kind in "OU" or one.dtype.kind in "iub":
            if not (one == other).all() and relative <= RELATIVE:
                return f"output {place} is not equal"
            continue
        given, right = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(right)
        most = float(np.abs(right[finite]).max(initial=0.0))
        apart = np.abs(given[finite] - right[finite]).max(initial=0.0)
        if not np.array_equal(finite, np.isfinite(given)) or not apart <= relative * most + 1e-6:
            return f"output {place} differs by {apart:g}, where the largest number is {most:g}"
    return ""
