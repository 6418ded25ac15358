"""What a finished compilation says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from compiler.contract.races import PeerReport
from compiler.contract.version import COMPILER_VERSION

SHOWN_OUTPUTS = 3
"""Of those whose error one line tells."""


@dataclass(frozen=True)
class OutputError:
    """How far one output of the artifact is from the float64 reference on the unrewritten graph."""

    output: str
    max_absolute: float
    max_relative: float
    """Largest absolute error over the largest absolute value of the reference output."""
    max_ulp: float
    """In units of the last place of float32 at the reference value. For integer outputs the count of unequal
    elements."""


@dataclass(frozen=True)
class BesideFloat32:
    """How far an output of floats is from the float64 reference on the random inputs, beside what float32 itself costs.

    artifact   the artifact's largest error, of the largest value of the reference output
    float32    that of numpy's evaluation of the model in its own types and its own order, node by node
    decisions  of an output [rows, classes] the rows of the random inputs and of samples, each of which decides for its
               largest element; of an output [.., boxes, classes] of scores, numbers from 0 to 1, the boxes, each of
               which is one of its best class where that has more than one half, and none otherwise; 0 for other outputs
    differing  those of them in which the artifact decides otherwise than the reference
    """

    output: str
    artifact: float
    float32: float
    decisions: int = 0
    differing: int = 0


@dataclass(frozen=True)
class JudgedCase:
    """One set of inputs that the artifact was to be judged on.

    inputs   `random`, another draw or edge case by name, or `sample` and its name; with the sizes of open dimensions
    decided  the outputs of which they show that the artifact agrees
    why_not  why not of all outputs; empty where they show all
    """

    inputs: str
    decided: tuple[str, ...]
    why_not: str


@dataclass(frozen=True)
class LayerError:
    """How far a kernel's result is from the float64 reference, as `OutputError` has it, all kernels before it included.

    call       position of the kernel among those of the plan
    nodes      of the model, that the kernel computes
    value      which of its results; a result that the rewritten model alone has is not compared
    inherited  the largest relative error among what the kernel reads, as far as that was compared
    float32    the relative error of a plain evaluation of the model in its own types at the same value

    An error is null where one of both is not finite and the other is: beyond the range of the type in memory, say.
    """

    call: int
    nodes: tuple[str, ...]
    kernel: str
    value: str
    max_absolute: float | None
    max_relative: float | None
    max_ulp: float | None
    inherited: float | None
    float32: float | None = None


@dataclass(frozen=True)
class LayerPrecision:
    """The precision of a kernel, where the job leaves it to the compiler (`precision` auto).

    nodes      of the model, that the kernel computes
    precision  fp32; or the short one of its kind of device, bf16 on CPUs and fp16 on GPUs: it may multiply in that,
               and its results may lie in memory so, on GPUs its weights too
    fp32_us    microseconds on one lane by the model of costs with all kernels in fp32
    short_us   the same with all kernels in the short one
    error      the largest error of the model's outputs where this kernel, or the run of kernels it was judged with,
               alone is in the short one; null where that did not have to be known
    reason     for the precision
    """

    nodes: tuple[str, ...]
    kernel: str
    precision: str
    fp32_us: float
    short_us: float
    error: float | None
    reason: str


@dataclass(frozen=True)
class SizeReport:
    """What came of the proof at some sizes of dimensions that a binding leaves open: the errors of each output."""

    dims: Mapping[str, int]
    errors: tuple[OutputError, ...]


@dataclass(frozen=True)
class DemandedRange:
    """The numbers that an input takes, by what its readers demand; None where an end has no bound. `why` names them."""

    input: str
    low: float | None
    high: float | None
    why: str

    def __str__(self) -> str:
        low, high = ("any" if end is None else f"{end:g}" for end in (self.low, self.high))
        return f"{low} to {high}"


@dataclass(frozen=True)
class PlanReached:
    """A schedule that was found for the model, and what it reached.

    scheduler    who found it
    lanes        on a GPU streams; and `waits`: how often a lane waits for a result of another, in one inference
    predicted_s  of one inference, by its scheduler
    found_s      wall seconds of finding it; an artifact, whose bytes follow from its records, does not hold it for
                 plans that were not run
    measured_s   median of whole runs; None: predicted too slow to be run, or nothing was measured
    ratio        to the sequential plan in rounds that ran next to each other; `low` and `high` hold it with 95%
                 confidence
    taken        whether the artifact is this one
    """

    scheduler: str
    lanes: int
    waits: int
    predicted_s: float
    found_s: float | None = None
    measured_s: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    taken: bool = False

    def __str__(self) -> str:
        measured = "not run" if self.measured_s is None else f"measured {1e3 * self.measured_s:.3f} ms"
        interval = "" if self.low is None or self.high is None else f" ({self.low:.3f} to {self.high:.3f})"
        ratio = "" if self.ratio is None else f", {self.ratio:.3f}{interval} of sequential"
        found = "" if self.found_s is None else f", found in {self.found_s:.3f} s"
        return (
            f"{'*' if self.taken else ' '} {self.scheduler:24} {self.lanes} lanes, {self.waits:4} waits, "
            f"predicted {1e3 * self.predicted_s:.3f} ms, "
            f"{measured}{ratio}{found}"
        )


@dataclass(frozen=True)
class BindingReport:
    """What came of one program, of an artifact that holds several: for a binding, and of several profiles for one.

    dims       the values of the model's symbolic dimensions; `{"min": 1, "opt": 4, "max": 16}` of one that is left
               open: what the model leaves of the range that was asked for
    latency_s  as in CompileReport, and so are all others
    profile    empty where there is but one
    verified   whether it ran here, and agreed
    """

    dims: Mapping[str, Any]
    threads: int
    kernels: int
    arena_bytes: int
    latency_s: float
    errors: tuple[OutputError, ...]
    tolerance: float
    input_ranges: tuple[DemandedRange, ...] = ()
    samples: tuple[str, ...] = ()
    sizes: tuple[SizeReport, ...] = ()
    profile: str = ""
    verified: bool = True


@dataclass(frozen=True)
class PartReport:
    """One part of a model that several devices run: where, of how many kernels, and how long it takes for a frame.

    busy   the share of the time that it was at work when frames were streamed
    share  of the frames, those that it does: below 1 where it is one of several replicas
    """

    device: str
    target: str
    kernels: int
    predicted_s: float
    busy: float
    share: float = 1.0


@dataclass(frozen=True)
class PointReport:
    """A division between the greatest throughput and the least latency, as in DevicesReport.

    period_s and latency_s are None where nothing may be measured; `kernels` are those of each part.
    """

    scheduler: str
    kernels: tuple[int, ...]
    predicted_period_s: float
    predicted_latency_s: float
    period_s: float | None
    latency_s: float | None
    picked: bool


@dataclass(frozen=True)
class DevicesReport:
    """What several devices reached together.

    alone_s               predicted seconds of an inference on each device alone
    predicted_period_s    from one end of a frame to the next, with many in flight; `period_s` is what was measured
    predicted_latency_s   of one frame by itself through all parts; `latency_s` is what was measured
    max_relative          the largest error of an output of the parts, as in OutputError
    curve                 of throughput, also within a bound of latency, the divisions that were tried
    carried_s             predicted, the least from frame to frame that states permit (`carry`); 0 without any
    """

    objective: str
    scheduler: str
    alone_s: tuple[float, ...]
    parts: tuple[PartReport, ...]
    predicted_period_s: float
    period_s: float
    predicted_latency_s: float
    latency_s: float
    max_relative: float
    curve: tuple[PointReport, ...] = ()
    carried_s: float = 0.0


@dataclass(frozen=True)
class PlacedOperator:
    """One operator of a model that an accelerator's own compiler took whole.

    node    of the model, whose result it makes; empty for one that the compiler added
    on      the target, or `cpu`, and then `why`
    cycles  of the accelerator, estimated, and its `macs`; `cpu_s`: what the CPU's share is priced at
    """

    node: str
    operator: str
    on: str
    why: str
    cycles: int
    macs: int
    cpu_s: float


@dataclass(frozen=True)
class PlacedPart:
    """What the accelerator or the CPU carries out in one go, of a model that was compiled whole.

    on        the target, or `cpu`; `nodes`: of the model
    source    whose estimate `seconds` are
    programs  of a part of the CPU's: the targets that the artifact has a program for
    bytes_in  that it reads, of other parts or the model's inputs, and `bytes_out` that it gives
    """

    on: str
    nodes: int
    seconds: float
    source: str
    programs: tuple[str, ...]
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class CpuTime:
    """What all parts of the CPU's take on one CPU, and how that is known: modelled, or measured on this machine."""

    on: str
    seconds: float
    source: str


@dataclass(frozen=True)
class PlacedCandidate:
    """A placement that a job for an accelerator and a CPU could have: what it is, and seconds of an inference.

    seconds   null where they are not known, and then `why`; `taken`: whether it is the artifact's
    period_s  where throughput is asked for, from one end of an inference to the next with many in flight
    """

    name: str
    seconds: float | None
    why: str
    taken: bool
    period_s: float | None = None


@dataclass(frozen=True)
class PipelineReport:
    """Of a model on an accelerator and a CPU, with many inferences in flight: how often one ends, estimated.

    period_s     from one end to the next, null where it is not known; `latency_s`: of one by itself
    cpu_busy     the share of the period that the CPU is at work, calls included; `accelerator_busy`: the accelerator
    slots_bytes  of memory between parts: each edge as often as it is there
    curve        the placements that none is better than in latency and period
    """

    objective: str
    period_s: float | None
    latency_s: float | None
    cpu_busy: float | None
    accelerator_busy: float | None
    slots_bytes: int
    curve: tuple[PointReport, ...]


@dataclass(frozen=True)
class PlacementReport:
    """What runs where, of a model that was compiled whole. Times are estimated, but those of `cpus` that say otherwise.

    estimated_by   whose estimate the cycles are; `cpu_formula`: what the CPU's share is priced by
    accelerated    operators on the accelerator, and `on_cpu` those that are not; `calls` of the accelerator
    parts          in the order in which they run
    cpus           what the CPU's parts take on each CPU that is known of
    seconds        of one inference: `accelerator_s`, `cpu_s` and `call_s` added
    peak_bytes     of each memory of the accelerator, by name
    snr_db         of each output, signal to noise against the model in float64; null without any noise
    beside         the CPU that `cpu_s` is of: `cpu` is the machine that compiled
    candidates     of a job that names both devices, the placements that were compared
    pipeline       of one that asks for throughput, also within a latency
    """

    accelerator: str
    system: str
    memory_mode: str
    estimated_by: str
    cpu_formula: str
    accelerated: int
    on_cpu: int
    calls: int
    cycles: int
    clock_hz: float
    accelerator_s: float
    cpu_s: float
    call_s: float
    seconds: float
    peak_bytes: Mapping[str, int]
    snr_db: Mapping[str, float | None]
    operators: tuple[PlacedOperator, ...]
    parts: tuple[PlacedPart, ...] = ()
    cpus: tuple[CpuTime, ...] = ()
    beside: str = ""
    candidates: tuple[PlacedCandidate, ...] = ()
    pipeline: PipelineReport | None = None


@dataclass(frozen=True)
class QuantisedLayer:
    """What became of one layer of a model that was quantised before it was compiled.

    node        of the model as it was given; `weights` is their shape, null where they are data
    precision   `int8` or `float32`, and then `reason`
    weights_db  signal to noise of its result where its weights alone are rounded; null without noise
    outputs_db  the least of all outputs where it alone is quantised; null where the budget did not ask for it
    """

    node: str
    operator: str
    weights: tuple[int, ...] | None
    precision: str
    reason: str | None
    weights_db: float | None
    outputs_db: float | None


@dataclass(frozen=True)
class QuantisedOutput:
    """How far an output of the quantised model is from the given one, in float64, on the samples.

    snr_db        signal to noise in dB; null where nothing differs
    max_relative  the largest error over the largest value; null where one of both is not finite and the other is
    """

    name: str
    snr_db: float | None
    max_relative: float | None


@dataclass(frozen=True)
class QuantisedReport:
    """What came of quantising the model before it was compiled, and what that cost against the model in fp32.

    model_digest  of the quantised model, which the artifact holds: the reference that `errors` are against
    samples       SHA-256 (hex) of the archives that ranges come from; empty where samples were drawn
    count         of the samples in them, or of those that were drawn
    snr_db        what every output had to have; null where none is a float
    """

    model_digest: str
    samples: tuple[str, ...]
    count: int
    snr_db: float | None
    layers: tuple[QuantisedLayer, ...]
    outputs: tuple[QuantisedOutput, ...]

    def __str__(self) -> str:
        kept = [one for one in self.layers if one.precision == "int8"]
        losses = ", ".join(
            f"{one.name:.60} {'no difference' if one.snr_db is None else f'{one.snr_db:.1f} dB'}"
            for one in self.outputs[:SHOWN_OUTPUTS]
        )
        others = " and others" if len(self.outputs) > SHOWN_OUTPUTS else ""
        return (
            f"quantised on {self.count} samples: {len(kept)} of {len(self.layers)} layers in int8"
            f"{f'; against fp32: {losses}{others}' if losses else ''}"
        )


@dataclass(frozen=True)
class CompileReport:
    """What a finished compilation says of itself; the receipt beside the artifact is this, as JSON.

    Of an artifact for several bindings, what is not of the whole (as the weights are) is of the first binding.
    """

    model_digest: str
    artifact_digest: str
    artifact_bytes: int
    target: str
    hardware: str
    threads: int
    """Lanes of the plan, each a thread; of a CUDA target the streams of its graph, which one thread of the host
    launches."""
    phase_seconds: Mapping[str, float]
    nodes: int
    """Operators of the model as the front end accepted it."""
    kernels_before_fusion: int
    kernels: int
    """Kernels launched per inference."""
    arena_bytes: int
    """Peak memory for activations, beside inputs, outputs and weights."""
    weight_bytes: int
    latency_s: float
    """Median latency of the artifact, measured in this compilation; estimated where `placement` is there."""
    errors: tuple[OutputError, ...] = ()
    tolerance: float = 0.0
    verified: bool = True
    """Whether drawn inputs or samples show of each output that the artifact computes what the model says: False for a
    target that does not run here, or where the option `unverified` allows it."""
    unshown: tuple[str, ...] = ()
    """The outputs of which they show nothing."""
    cases: tuple[JudgedCase, ...] = ()
    """What each set of inputs showed, in the order in which they were tried."""
    beside_float32: tuple[BesideFloat32, ...] = ()
    """Of each output of floats; of several bindings those of the first. Empty where evaluating the reference once more
    takes longer than a few seconds."""
    records_measured: int = 0
    records_reused: int = 0
    rank_correlation: float | None = None
    """Spearman's, between the seconds that the cost model expected of a kernel's tiles and those measured: the mean
    over `ranked_kernels`."""
    ranked_kernels: int = 0
    """Kernels of which enough tiles were measured to rank them; without one there is no correlation."""
    plans: tuple[PlanReached, ...] = ()
    """The schedules that were found, the sequential one that the others are compared with first."""
    notices: tuple[str, ...] = ()
    input_ranges: tuple[DemandedRange, ...] = ()
    """Of the inputs of which the model demands something: random inputs are drawn from there."""
    samples: tuple[str, ...] = ()
    """SHA-256 (hex) of the samples that the artifact was judged on, in order; it was timed on the first. Of several
    bindings those of each after the other."""
    sizes: tuple[SizeReport, ...] = ()
    """Where dimensions are open: the sizes at which the artifact was proved."""
    bindings: tuple[BindingReport, ...] = ()
    """Each binding of an artifact that holds several."""
    devices: DevicesReport | None = None
    """Of an artifact for several devices."""
    layers: tuple[LayerError, ...] = ()
    """Of each kernel, in the order in which they run; of a model of fixed shapes, compiled with a tuning budget of a
    minute or more for the CPU that compiles, whose reference takes no longer than a few seconds."""
    precisions: tuple[LayerPrecision, ...] = ()
    """Of each kernel before kernels are joined, in the order in which they run, of a job in precision auto; empty
    where it was compiled again in fp32."""
    placement: PlacementReport | None = None
    """Of an artifact for an accelerator that has a compiler of its own."""
    quantised: QuantisedReport | None = None
    """Of precision int8 on a CPU or GPU: `errors` are then against the quantised model, and here is what it cost."""
    compared: tuple[PeerReport, ...] = ()
    """What came of the option `compare`, on the machine that compiled; a report inside an artifact has none."""

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`, and the version of this compiler."""
        return {**asdict(self), "compiler_version": COMPILER_VERSION}
