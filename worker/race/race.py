"""An artifact and peers in turns, each in a process of its own, on the same inputs and with as many threads."""

from __future__ import annotations

import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from compiler.contract.races import PEERS, PeerReport, said_of
from compiler.measure.compare import compare, difference
from compiler.measure.npz import read_fitting, write_outputs
from compiler.pack.loader import Model
from worker.race import peers
from worker.race.peers import OURS

ROUNDS = 9
TURN_S = 0.1
REST_S = 0.03
"""Before a turn: threads of the model that had the turn before stop spinning for work."""
SECONDS = 15.0
"""That a race in a job takes at most; what has not answered by then is killed."""


SHOWN_NAMES = 100
"""Letters of a binding that are shown: the model names its dimensions."""


class RunnerFailed(Exception):
    """A model could not be opened or run, or was too slow; the message is a clause without a subject."""


class Runner:
    """A running `worker.race.runner`; use it in a `with` block, after which its process is gone."""

    def __init__(self, name: str, file: Path, folder: Path, threads: int, until: float) -> None:
        """Until: the time of `time.monotonic` after which it is killed."""
        self.name, self._until, self._buffer = name, until, b""
        self.outputs = folder / f"{name}.npz"
        words = [name, str(file.absolute()), str(folder / "inputs.npz"), str(self.outputs), str(threads)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.race.runner", *words],
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def ready(self) -> None:
        """Returns once it has run its model. Raises `RunnerFailed`."""
        self._answer()

    def turn(self, seconds: float) -> float:
        """Median seconds of a run. Raises `RunnerFailed`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seconds}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RunnerFailed("its process ended") from None
        return float(self._answer()["median_s"])

    def _answer(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            if not select.select([pipe], [], [], max(0.0, self._until - time.monotonic()))[0]:
                raise RunnerFailed("it took too long")
            piece = os.read(pipe, 1 << 16)
            if not piece:
                raise RunnerFailed("its process ended")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: Mapping[str, Any] = json.loads(line)
        if "failed" in found:
            raise RunnerFailed(str(found["failed"]))
        return found


@dataclass
class _Notes:
    """Median seconds of each round by contender, and why those that fell out did."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def race(
    model: Path,
    artifact: Path,
    wanted: Sequence[str],
    *,
    threads: int | None = None,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    sample: Path | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> tuple[PeerReport, ...]:
    """The artifact beside each of the wanted peers (names of PEERS) on the ONNX file it was compiled from.

    All take turns, one each in a round, of TURN_S or one run; who begins changes from round to round. The ratio and its
    interval are those of `compiler.measure.compare`, each round a sitting.

    threads  of each; None: those of the artifact's plan
    seconds  wall time after which there are no more rounds, and what has not answered is killed
    sample   an .npz of inputs; None: numbers that are drawn, at the sizes that an artifact with ranges is tuned for

    A peer that is not installed, or cannot run the model, is said to be so and raises nothing. Raises the loader's
    ArtifactError for an artifact that does not run here, and InputsError for a sample that does not fit.
    """
    until = time.monotonic() + seconds
    with Model(artifact, threads) as ours:
        lanes = threads or int(ours.manifest["lanes"])
        if ours.binding.has_strings:
            return tuple(_none(peer, "models with strings are not raced") for peer in wanted)
        inputs, where = _inputs(ours, sample), _where(ours)
    here = peers.installed()
    able = [peer for peer in wanted if peer in here]
    notes = _Notes({}, {peer: "is not installed" for peer in wanted if peer not in here})
    files = {OURS: artifact, **dict.fromkeys(able, model)}
    with tempfile.TemporaryDirectory(prefix="tilewright-race-") as name, ExitStack() as stack:
        folder = Path(name)
        write_outputs(folder / "inputs.npz", inputs)
        runners = [stack.enter_context(Runner(one, file, folder, lanes, until)) for one, file in files.items()]
        if able:
            _hold(runners, rounds, until, notes, stop_requested)
        outputs = {one.name: arrays_of(one.outputs) for one in runners if notes.seconds.get(one.name)}
    reports = [_report(peer, notes, outputs, lanes) for peer in wanted]
    return tuple(replace(one, said=one.said + where) if one.rounds else one for one in reports)


def _hold(
    runners: Sequence[Runner], rounds: int, until: float, notes: _Notes, stop_requested: Callable[[], bool]
) -> None:
    """All rounds. Who fails before the first round is out of it; who fails later keeps its rounds."""
    racing = [one for one in runners if _ready(one, notes)]
    for number in range(rounds):
        if OURS not in (one.name for one in racing) or len(racing) < 2:
            return
        if number and (time.monotonic() > until or stop_requested()):
            return
        first = number % len(racing)
        found: dict[str, float] = {}
        for one in (*racing[first:], *racing[:first]):
            time.sleep(REST_S)
            try:
                found[one.name] = one.turn(TURN_S)
            except RunnerFailed as reason:
                notes.failed[one.name] = f"cannot run the model: {reason}"
        racing = [one for one in racing if one.name in found]
        if OURS not in found:
            return
        for name, taken in found.items():
            notes.seconds.setdefault(name, []).append(taken)


def _ready(runner: Runner, notes: _Notes) -> bool:
    try:
        runner.ready()
    except RunnerFailed as reason:
        notes.failed[runner.name] = f"cannot run the model: {reason}"
        return False
    return True


def _where(model: Model) -> str:
    """At which of several sizes the artifact is raced, or that the data decide them, as the end of a sentence."""
    if len(model.bindings) > 1 or model.binding.open:
        shown = "".join(letter if letter.isprintable() else "?" for letter in str(model.binding))
        return f", at {shown[:SHOWN_NAMES]}"
    return ", on data that decide sizes" if model.binding.sizes or model.binding.limits else ""


def _environment() -> dict[str, str]:
    """In which a runner finds this program, wherever it is started."""
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def _inputs(model: Model, sample: Path | None) -> dict[str, np.ndarray]:
    if sample is None:
        return dict(model.random_inputs())
    _, arrays = read_fitting(sample, [model.inputs])
    return {spec.name: array for spec, array in zip(model.inputs, arrays, strict=True)}


def arrays_of(file: Path) -> dict[str, np.ndarray]:
    """What a model gave."""
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _none(peer: str, why: str) -> PeerReport:
    return PeerReport(peer, f"{PEERS[peer]}: {why}", peers.version(peer))


def _report(peer: str, notes: _Notes, outputs: Mapping[str, Mapping[str, np.ndarray]], threads: int) -> PeerReport:
    theirs = notes.seconds.get(peer, [])
    ours = notes.seconds.get(OURS, [])[: len(theirs)]
    if not theirs:
        if OURS in notes.failed and peer not in notes.failed:
            return _none(peer, f"no race, since the artifact {notes.failed[OURS]}")
        why = notes.failed.get(peer, "there was no time for a race")
        return PeerReport(peer, f"{PEERS[peer]} {why}" if peer in notes.failed else f"{PEERS[peer]}: {why}")
    found = compare(ours, theirs, [1] * len(ours))
    ours_s, theirs_s = statistics.median(ours), statistics.median(theirs)
    return PeerReport(
        peer=peer,
        said=said_of(peer, ours_s, theirs_s, found, len(ours)),
        version=peers.version(peer),
        threads=threads,
        ours_s=ours_s,
        theirs_s=theirs_s,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        rounds=len(ours),
        difference=largest_difference(outputs[OURS], outputs[peer]),
    )


def largest_difference(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float | None:
    """Over all outputs of both that can be compared, relative to the largest value of each of `theirs`.

    None where one is finite and the other is not.
    """
    worst = 0.0
    for name in ours.keys() & theirs.keys():
        if ours[name].shape != theirs[name].shape or theirs[name].dtype.kind not in "biuf":
            continue
        largest, unlike = difference(theirs[name], ours[name])
        if unlike:
            return None
        worst = max(worst, largest)
    return worst
