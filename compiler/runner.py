"""Runs packed artifacts on this machine: several against each other (`benchmark`), or one on given inputs (`infer`)."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import statistics
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from compiler.contract import BenchmarkOptions, kinds
from compiler.devices.cpu.target import CpuTarget, this_machine
from compiler.errors import ArtifactUnusable, InputsError, InternalError, OptionsError, TargetUnavailable
from compiler.measure.benchmark import STEADY, Run, Timed, added_seconds, copy_seconds, interleave, nothing, warm
from compiler.measure.compare import compare, stored_difference
from compiler.measure.conditions import between, conditions, disturbances
from compiler.measure.held import grown, resident_bytes
from compiler.measure.npz import described, read_fitting, write_outputs
from compiler.measure.phases import Progress
from compiler.measure.streaming import is_divided, streams
from compiler.pack.loader import ArtifactError, Binding, Model, NoSuchBinding, RunError, TensorSpec, WrongMachine
from compiler.trace import Observer, ignore

SPIN_US = 2000
"""How long an idle lane spins for the next run; what a model does that is called in a loop."""
SETTLE_S = 1.5e-6 * SPIN_US
"""Pause before a block, in which the lanes of the model that ran before fall asleep. One that still spins takes a core
from the next model: the slowest tenth of its first runs was 60% slower for it (MobileNet v2, two lanes on two
cores)."""
WARM_LOADS = 3
PROFILE_SECONDS = 1.0
PROFILE_REPEATS = (3, 20)
MOST_NODES, LONGEST_NODE = 8, 120
"""Names of nodes, and letters of each, that are shown of a kernel: models choose them."""


class _Contender:
    """One artifact that takes part, open in an instance of its own."""

    def __init__(self, artifact: str, path: Path, options: BenchmarkOptions, sample: Path | None = None) -> None:
        """Opens it, several times over to see how long that takes, and runs it once, on a sample if there is one."""
        self.artifact, self.path, self.threads = artifact, path, options.threads
        given: list[np.ndarray] | None = None
        if sample is None:
            self.binding = _number(artifact, path, options)
        else:
            self.binding, given = _fitting(artifact, path, options, sample)
        loads, held, self.load_bytes = [], resident_bytes(), None
        for turn in range(1 + WARM_LOADS):
            # One at a time: two instances of a large model may not fit.
            with open_artifact(f"artifact {artifact}", path, self.threads, self.binding) as model:
                loads.append(model.load_seconds)
                self.load_bytes = grown(held) if turn == 0 else self.load_bytes
        self.first_load_s, self.warm_load_s = loads[0], statistics.median(loads[1:])
        self.sha256 = _digest(artifact, path)
        _check_sizes(artifact, model, options)
        self.given = list(model.random_inputs(options.seed, options.dims).values()) if given is None else given
        run = self.open()
        self.first_run_s = self.with_copies_s if self.model.on_gpu else run()
        self.run_bytes = grown(held)

    def open(self) -> Run:
        """A run of an instance opened anew, in memory of its own; the one before it must be closed.

        On a GPU inputs and outputs stay in its memory: a first run, `with_copies_s` long, has brought them there and
        back.
        """
        # Its bytes were compared with their digests when it was first opened.
        self.model = open_artifact(f"artifact {self.artifact}", self.path, self.threads, self.binding, verify=False)
        self.outputs = _blank(self.model, self.given)
        whole = self.model.bind([array.copy() for array in self.given], self.outputs)
        if not self.model.on_gpu:
            return whole
        self.with_copies_s = whole()
        return self.model.bind(*self.model.resident())

    def copies(self) -> tuple[float, float]:
        """Seconds of copying all inputs to where a run finds them, and all outputs from there.

        Within the host, or to and from the GPU.
        """
        if not self.model.on_gpu:
            return copy_seconds(self.given), copy_seconds(self.outputs)
        inputs, outputs = self.model.resident()
        inside = self.model.bind(inputs, outputs)
        given, filled = self.given, self.outputs
        if self.model.binding.has_sizes:
            given = self.model.staged(self.given)
            filled = [np.zeros(spec.shape, spec.numpy) for spec in self.model.binding.program_outputs]
        return (
            added_seconds(inside, self.model.bind(given, outputs)),
            added_seconds(inside, self.model.bind(inputs, filled)),
        )

    def close(self) -> None:
        self.model.close()

    @property
    def named(self) -> dict[str, np.ndarray]:
        """What it is given, by the model's names."""
        return {spec.name: array for spec, array in zip(self.model.inputs, self.given, strict=True)}

    @property
    def dims(self) -> dict[str, int]:
        """Of the binding that runs, at the sizes of what it is given."""
        binding = self.model.binding
        return {**binding.dims, **binding.sizes_of([array.shape for array in self.given])}

    @property
    def ports(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Of what it is given and gives; equal for artifacts that could be the same model."""
        return _at(self.model.inputs, self.given), _at(self.model.outputs, self.outputs)


def benchmark(
    artifacts: Sequence[tuple[str, Path]],
    options: BenchmarkOptions,
    observe: Observer = ignore,
    samples: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """Times artifacts, given as (id, path), against each other on this machine. JSON-able; times are in seconds.

        options       as given
        inputs        what all were run on: `from` "sample", its `name` and the `sha256` of the file; or "seed" and the
                      `seed`, of numbers that were drawn
        rounds        how many were run; `sittings`: how many of them in each
        machine       target, hardware, cores; `before` and `after`: load_average, available_bytes, frequency_hz and
                      governor (lists by core, or null); `during`: seconds, own_cpu_s, others_busy (share of all cores'
                      time), cores (busy and steal of each), cgroup_held_s and heat_events (null where the machine does
                      not say); `gpu`: null unless an artifact ran on one, else its name, target and hardware, and
                      clocks, throttling, temperature and power `before` and `after` (null where NVML does not say)
        artifacts     for each: artifact, sha256, target, hardware (it was made for), lanes; dims, those of the binding
                      that ran, and of ranges the sizes that it was given (empty for an artifact with one); load:
                      first_s, warm_s; first_run_s; memory: load_bytes and run_bytes, resident memory of the host that
                      the first opening added, and that and the first run with its inputs and outputs (null where the
                      system does not say); samples_s, at most 10,000 single runs in the order taken, evenly
                      spaced over each block; rounds, how many samples each round gave; round_median_s, of all runs of
                      each round; runs, how many were timed; median_s mean_s min_s p10_s p90_s p99_s of the samples;
                      compute_s (inputs and outputs used in place, on a GPU in its memory), copy_in_s and copy_out_s (of
                      all inputs or outputs, from and to other memory of the host: no part of the samples); kernels
                      (null unless options.profile): call, family, nodes (the first MOST_NODES of the model that it
                      computes), tile, seconds, share, each run one lane at a time; inputs, outputs: name, dtype, shape;
                      stream: null, or of an artifact for several devices what many inferences in flight reach
                      (`measure.streaming.streams`), for options.seconds more
        comparisons   for every two artifacts of equal inputs and outputs: a, b, ratio (b's seconds over a's), low,
                      high, confidence, faster ("a", "b" or null), verdict ("a is faster by 1.23x ± 0.02" or "cannot
                      tell"); outputs: for each output of both on the same inputs its max_relative difference (to the
                      largest value of a's) over the elements finite in both, and the count `unlike` of elements that
                      are NaN or infinite in one and not so in the other
        notices       what the reader should know before believing the figures

    All artifacts are loaded side by side and warmed up. Then come rounds in which each runs a block of some 30 ms, in
    an order shuffled by the seed, until each was timed for options.seconds. There are 6 to 12 sittings of one round or
    more, and for each sitting all are opened anew (`measure.benchmark`). Artifacts are compared by the medians of the
    same rounds (`measure.compare`). All openings that are timed compare the file with its digests; `first_s` may find
    it in the page cache, `warm_s` does.

    Of artifacts for accelerators, which cannot be timed here, `artifacts` has estimates, and who made them under
    `estimated`; they take no part in comparisons.

    `samples`: an .npz of inputs, by what the caller calls it, on which all are timed. It has the sizes of one binding,
    or of a range, of every artifact.

    Emits events with the phases open, warm, time, stream (where one is for several devices), profile. Raises
    OptionsError without artifacts and for several samples or sizes beside one, InputsError with every input of the
    sample that does not fit an artifact, TargetUnavailable when one cannot run on this machine, ArtifactUnusable when
    one is damaged: each names the artifact.
    """
    if not artifacts:
        raise OptionsError("there is no artifact to run", fix="name one or more")
    name, sample = _one(samples or {}, options)
    whole = {name: path for name, path in artifacts if is_whole(path)}
    if whole:
        return _with_estimates(artifacts, whole, options, observe, samples)
    progress = Progress(observe)
    before = conditions()
    with ExitStack() as opened:
        try:
            entries = []
            progress.phase("open")
            for at, (artifact, path) in enumerate(artifacts):
                with _said_of_sample(name, artifact):
                    entries.append(_Contender(artifact, path, options, sample))
                opened.callback(entries[-1].close)
                progress.part("open", (at + 1) / len(artifacts))
            on_gpu = any(entry.model.on_gpu for entry in entries)
            started, cool = conditions(), _gpu().clock_now() if on_gpu else None
            timed = _timed(entries, options, progress)
            after, hot = conditions(), _gpu().clock_now() if on_gpu else None
            during = between(started, after)
            if any(is_divided(entry.model) for entry in entries):
                progress.phase("stream")
            streamed = streams([one.model for one in entries], [one.named for one in entries], options.seconds)
            progress.phase("profile")
            described = []
            for entry, one, many in zip(entries, timed, streamed, strict=True):
                described.append({**_described(entry, one, options), "stream": many})
                progress.part("profile", len(described) / len(entries))
        except RunError as reason:
            raise InternalError(f"a run failed: {reason}") from reason
        here = this_machine()
        return {
            "options": options.to_json(),
            "inputs": _inputs(name, sample, options),
            "rounds": len(timed[0].rounds),
            "sittings": list(timed[0].sittings),
            "machine": {
                "target": here.name,
                "hardware": here.hardware,
                "cores": here.lanes,
                "before": before.to_json(),
                "after": after.to_json(),
                "during": during,
                "gpu": _gpu().gpu_report(cool, hot) if on_gpu else None,
            },
            "artifacts": described,
            "comparisons": _comparisons(entries, timed),
            "notices": [
                *disturbances(during),
                *(_gpu().held_down(hot) if on_gpu else ()),
                *_notices(entries, here),
                *_unsteady(entries, timed),
            ],
        }


def _one(samples: Mapping[str, Path], options: BenchmarkOptions) -> tuple[str, Path | None]:
    """The sample to time on, and its name."""
    if not samples:
        return "", None
    options.demand_no_sizes()
    if len(samples) > 1:
        raise OptionsError(f"{len(samples)} samples are given", fix="give one: a benchmark times one sample")
    return next(iter(samples.items()))


@contextmanager
def _said_of_sample(name: str, artifact: str) -> Iterator[None]:
    """Makes of what is wrong with inputs what is wrong with a sample."""
    try:
        yield
    except InputsError as error:
        said = f"sample {name!r:.200} does not fit artifact {artifact}"
        raise InputsError(f"{said}: {error.message}", fix=error.fix, refusals=error.refusals) from error


def _inputs(name: str, sample: Path | None, options: BenchmarkOptions) -> dict[str, Any]:
    """What artifacts are run on, as the report tells it."""
    if sample is None:
        return {"from": "seed", "seed": options.seed}
    with open(sample, "rb") as file:
        return {"from": "sample", "name": name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _with_estimates(
    artifacts: Sequence[tuple[str, Path]],
    whole: Mapping[str, Path],
    options: BenchmarkOptions,
    observe: Observer,
    samples: Mapping[str, Path] | None,
) -> dict[str, Any]:
    """The report on artifacts of which those in `whole` are estimated: the others are timed as without them."""
    timed = [(name, path) for name, path in artifacts if name not in whole]
    if timed:
        report = benchmark(timed, options, observe, samples)
    else:
        Progress(observe).phase("open")
        here, now = this_machine(), conditions()
        report = {
            "options": options.to_json(),
            "inputs": _inputs("", None, options),
            "rounds": 0,
            "sittings": [],
            "machine": {
                "target": here.name,
                "hardware": here.hardware,
                "cores": here.lanes,
                "before": now.to_json(),
                "after": now.to_json(),
                "during": between(now, now),
                "gpu": None,
            },
            "artifacts": [],
            "comparisons": [],
            "notices": [],
        }
    estimated = {name: _whole().estimated(name, path, options) for name, path in whole.items()}
    described = {one["artifact"]: one for one in report["artifacts"]} | {
        name: one for name, (one, _) in estimated.items()
    }
    return {
        **report,
        "artifacts": [described[name] for name, _ in artifacts],
        "notices": [*report["notices"], *(said for _, said in estimated.values())],
    }


def infer(
    artifact: Path, inputs: Path, outputs: Path, threads: int | None = None, seed: int | None = None
) -> dict[str, Any]:
    """Runs an artifact once: .npz in, .npz out, arrays by the model's names; bfloat16 travels as its bits, in uint16.

    A model that draws random numbers draws those of `seed`, or others each time.

    Returns `load_s`, `seconds` (of the run alone, which is the instance's first), `lanes`, and `outputs`: for each name
    dtype, shape and the SHA-256 of its elements. `outputs` appears whole or not at all. Raises OptionsError for
    `threads` below 1, InputsError with every input that does not fit, TargetUnavailable when the artifact cannot run on
    this machine, ArtifactUnusable when it is damaged.
    """
    if threads is not None and threads < 1:
        raise OptionsError(f"threads is {threads}", fix="use 1 or more, or leave it out")
    if is_whole(artifact):
        found: dict[str, Any] = _whole().infer(artifact, inputs, outputs)
        return found
    with open_artifact("the artifact", artifact, threads, seed=seed) as opened:
        at, arrays = read_fitting(inputs, [one.inputs for one in opened.bindings])
        model = opened.at(1 + at)
        try:
            if model.binding.has_sizes or model.binding.has_strings:
                begin = time.perf_counter()
                results = model.run_flat(arrays)
                seconds = time.perf_counter() - begin
            else:
                results = _blank(model, arrays)
                seconds = model.bind(arrays, results)()
        except RunError as reason:
            raise InternalError(f"the artifact failed: {reason}") from reason
        named = {spec.name: array for spec, array in zip(model.outputs, results, strict=True)}
        write_outputs(outputs, named)
        return {
            "seconds": seconds,
            "load_s": model.load_seconds,
            "lanes": model.lanes,
            "outputs": described(named, {spec.name: spec.dtype for spec in model.outputs}),
        }


def _timed(entries: Sequence[_Contender], options: BenchmarkOptions, progress: Progress) -> list[Timed]:
    """Warms the artifacts up and times them; before each sitting all are closed, and opened in another order."""
    progress.phase("warm")
    shuffled = random.Random(options.seed)

    def fresh() -> list[Run]:
        for entry in entries:
            entry.close()
        runs = {at: entries[at].open() for at in shuffled.sample(range(len(entries)), len(entries))}
        return [runs[at] for at in range(len(entries))]

    warm_s = []
    for run in fresh():
        warm_s.append(warm(run, options.seconds))
        progress.part("warm", len(warm_s) / len(entries))
    progress.phase("time")
    return interleave(
        fresh,
        warm_s,
        options.seconds,
        options.seed,
        settle=_settle if any(entry.model.lanes > 1 for entry in entries) else nothing,
        progress=lambda part: progress.part("time", part),
        until_steady=True,
    )


def open_artifact(artifact: str, path: Path, threads: int | None, binding: int | None = None, **how: Any) -> Model:
    """A model, to be closed. Raises OptionsError, TargetUnavailable and ArtifactUnusable, which say `artifact`."""
    try:
        return Model(path, threads, spin_us=SPIN_US, binding=binding, **how)
    except NoSuchBinding as reason:
        raise OptionsError(f"{artifact}: {reason.message}", fix=reason.fix) from reason
    except WrongMachine as reason:
        raise TargetUnavailable(f"{artifact} cannot run on this machine: {reason.message}", fix=reason.fix) from reason
    except ArtifactError as reason:
        raise ArtifactUnusable(f"{artifact} cannot be loaded: {reason.message}", fix=reason.fix) from reason
    except (KeyError, TypeError, ValueError) as reason:
        raise ArtifactUnusable(
            f"{artifact} has a damaged manifest: {reason!r}", fix="compile the model again"
        ) from reason


def _digest(artifact: str, path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as reason:
        raise ArtifactUnusable(f"artifact {artifact} cannot be read: {reason}", fix="give a .tw file") from reason


def _number(artifact: str, path: Path, options: BenchmarkOptions) -> int | None:
    """Of the binding that the options name, or of the first that has the sizes they name.

    Raises OptionsError where none has them.
    """
    if options.binding is not None or not options.dims:
        return options.binding
    with open_artifact(f"artifact {artifact}", path, options.threads) as model:
        for one in sorted(model.bindings, key=lambda one: one.size):
            if _has(one, options.dims):
                return one.number
        listed = " or ".join(f"({one})" for one in model.bindings)
    asked = ", ".join(f"{name}={size}" for name, size in options.dims.items())
    raise OptionsError(f"artifact {artifact} has no binding at {asked}", fix=f"give sizes of {listed}")


def _fitting(artifact: str, path: Path, options: BenchmarkOptions, sample: Path) -> tuple[int, list[np.ndarray]]:
    """The number of the binding that a sample's inputs fit, or of the one that the options name, and the inputs."""
    with open_artifact(f"artifact {artifact}", path, options.threads, options.binding) as model:
        bindings = [model.binding] if options.binding is not None else model.bindings
        at, arrays = read_fitting(sample, [one.inputs for one in bindings])
        return bindings[at].number, arrays


def _check_sizes(artifact: str, model: Model, options: BenchmarkOptions) -> None:
    """Raises OptionsError for sizes that the binding that runs does not have."""
    if not _has(model.binding, options.dims):
        asked = ", ".join(f"{name}={size}" for name, size in options.dims.items())
        raise OptionsError(
            f"artifact {artifact} has no sizes {asked} in its binding {model.binding}", fix="name another"
        )


def _has(binding: Binding, sizes: Mapping[str, int]) -> bool:
    ranges = {one.name: one for one in binding.open}
    return all(
        ranges[name].has(size) if name in ranges else binding.dims.get(name) == size for name, size in sizes.items()
    )


def _blank(model: Model, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays for the outputs; where dimensions are open only a run says how large they are."""
    if model.binding.has_sizes:
        results = zip(model.outputs, model.run_flat(given), strict=True)
        return [np.zeros(output.shape, spec.numpy) for spec, output in results]
    return [np.zeros(spec.shape, spec.numpy) for spec in model.outputs]


def _at(specs: Sequence[TensorSpec], arrays: Sequence[np.ndarray]) -> list[TensorSpec]:
    """With the shapes that the arrays have."""
    return [TensorSpec(spec.name, spec.dtype, array.shape) for spec, array in zip(specs, arrays, strict=True)]


def _settle() -> None:
    time.sleep(SETTLE_S)


def _described(entry: _Contender, timed: Timed, options: BenchmarkOptions) -> dict[str, Any]:
    """One artifact's part of the report."""
    p10, median, p90, p99 = (float(point) for point in np.percentile(timed.samples, (10, 50, 90, 99)))
    copy_in_s, copy_out_s = entry.copies()
    return {
        "artifact": entry.artifact,
        "sha256": entry.sha256,
        "target": entry.model.manifest["target"],
        "hardware": entry.model.manifest["hardware"],
        "lanes": entry.model.lanes,
        "dims": entry.dims,
        "load": {"first_s": entry.first_load_s, "warm_s": entry.warm_load_s},
        "first_run_s": entry.first_run_s,
        "memory": {"load_bytes": entry.load_bytes, "run_bytes": entry.run_bytes},
        "samples_s": list(timed.samples),
        "rounds": list(timed.rounds),
        "round_median_s": list(timed.medians),
        "runs": timed.runs,
        "median_s": median,
        "mean_s": statistics.fmean(timed.samples),
        "min_s": min(timed.samples),
        "p10_s": p10,
        "p90_s": p90,
        "p99_s": p99,
        "compute_s": median,
        "copy_in_s": copy_in_s,
        "copy_out_s": copy_out_s,
        "kernels": _kernels(entry, median) if options.profile else None,
        "inputs": [_port(spec) for spec in entry.ports[0]],
        "outputs": [_port(spec) for spec in entry.ports[1]],
    }


def _port(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _kernels(entry: _Contender, run_s: float) -> list[dict[str, Any]]:
    least, most = PROFILE_REPEATS
    repeats = min(max(round(PROFILE_SECONDS / max(run_s * entry.model.lanes, 1e-9)), least), most)
    kept = ("call", "family", "tile", "seconds", "share")
    rows = entry.model.profile(entry.named, repeats)
    # An artifact of an older compiler does not tell nodes.
    nodes = [[name[:LONGEST_NODE] for name in row.get("sources", ())[:MOST_NODES]] for row in rows]
    return [{**{key: row[key] for key in kept}, "nodes": own} for row, own in zip(rows, nodes, strict=True)]


def _comparisons(entries: Sequence[_Contender], timed: Sequence[Timed]) -> list[dict[str, Any]]:
    """Every two artifacts of equal inputs and outputs.

    Equal inputs were drawn alike, so that the outputs can be compared too.
    """
    found = []
    for (a, one), (b, two) in itertools.combinations(zip(entries, timed, strict=True), 2):
        if a.ports != b.ports:
            continue
        compared = compare(one.medians, two.medians, one.sittings)
        found.append(
            {
                "a": a.artifact,
                "b": b.artifact,
                **asdict(compared),
                "faster": compared.faster,
                "verdict": compared.verdict,
                "outputs": [
                    {"output": spec.name, **stored_difference(spec.dtype, x, y)}
                    for spec, x, y in zip(a.model.outputs, a.outputs, b.outputs, strict=True)
                ],
            }
        )
    return found


def is_whole(artifact: Path) -> bool:
    """Whether an artifact holds a model that was compiled whole; False for what is no artifact."""
    try:
        with zipfile.ZipFile(artifact) as archive:
            target = json.loads(archive.read("manifest.json"))["target"]
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError):
        return False
    kind = kinds.find(target) if isinstance(target, str) else None
    return kind is not None and kind.whole


def _whole() -> ModuleType:
    """What runs such artifacts. It is loaded, with all that compiles for accelerators, where there is one."""
    return import_module("compiler.accelerate.running")


def _gpu() -> ModuleType:
    """What tells of this machine's GPU. It is loaded, with the driver, where an artifact runs on one."""
    return import_module("compiler.devices.cuda.measure.around_runs")


def _hardware(target: str, here: CpuTarget) -> str:
    """Fingerprint of what artifacts for a target run on here: this machine's cores, or its GPU."""
    if not target.startswith("cuda"):
        return here.hardware
    return str(_gpu().fingerprint())


def _unsteady(entries: Sequence[_Contender], timed: Sequence[Timed]) -> list[str]:
    return [
        f"artifact {entry.artifact} was not steady in twice the time: its last sittings differ by more than "
        f"{STEADY - 1:.0%}"
        for entry, one in zip(entries, timed, strict=True)
        if not one.is_steady
    ]


def _notices(entries: Sequence[_Contender], here: CpuTarget) -> list[str]:
    said = []
    cores = here.lanes
    for entry in entries:
        made_for = entry.model.manifest["hardware"]
        if made_for and made_for != _hardware(entry.model.manifest["target"], here):
            said.append(f"artifact {entry.artifact} was tuned on other hardware ({made_for}) than it was run on here")
        if entry.model.lanes > cores:
            said.append(f"artifact {entry.artifact} runs {entry.model.lanes} lanes on {cores} cores")
        planned = entry.model.manifest["lanes"]
        if entry.model.lanes < planned:
            said.append(f"artifact {entry.artifact} was planned for {planned} lanes and ran on {entry.model.lanes}")
    for a, b in itertools.combinations(entries, 2):
        if a.ports != b.ports:
            said.append(
                f"artifacts {a.artifact} and {b.artifact} have different inputs or outputs: "
                "they are not the same model, and are not compared"
            )
    return said
