"""What to compile for: the options of a request, checked when they are made.

Each field is defined once, here: its type, default, bounds, help and example. Requests are checked by it, OpenAPI and
the table of docs/options.md show it, and refusals (`compiler.contract.refusals`) are worded from it.

The whole `CompileOptions` object but `compare` is the cache key (`cache_key`), together with the digests of the model
and its samples and `COMPILER_VERSION`: nothing below the pipeline reads the environment, so equal keys give equal
programs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    TypeAdapter,
)
from pydantic.dataclasses import dataclass

from compiler.contract import kinds
from compiler.contract.bindings import (
    AS_GIVEN,
    CONFIG,
    Binding,
    Bound,
    DimRange,
    GivenBinding,
    Name,
    OpenBinding,
    Refusing,
    Spec,
    bindings_of,
    dims_json,
    unchangeable,
    with_exact,
)
from compiler.contract.canonical import LATER, Later, marked, shown_fields
from compiler.contract.chunks import demand_chunks
from compiler.contract.derived import EQUALISE, RANGES, RangesBy
from compiler.contract.devices import (
    EXAMPLE,
    MOST_MS,
    OBJECTIVES,
    WITHIN,
    NamedDevice,
    Within,
    compiled_for,
    held,
    named_devices,
    objective_of,
)
from compiler.contract.kinds import demand_of_kind
from compiler.contract.races import PEERS
from compiler.contract.refusals import Refused
from compiler.contract.systems import LINUX, SYSTEMS, demand_system
from compiler.contract.version import COMPILER_VERSION
from compiler.errors import OptionsError

MAX_THREADS = 256
SPARSITIES = ("auto", "off")
UNVERIFIED = ("refuse", "allow")
WEIGHTS = ("small", "ready")
CACHE_OF_MODEL = "model"
CACHES = (CACHE_OF_MODEL, "bf16", "int8")
MAX_BUDGET_SECONDS = 24 * 3600.0
MAX_DERIVED_SAMPLES = 256
MAX_SNR_DB = 200.0
OF_INT8: Final[Mapping[str, Any]] = {"snr_db": None, "ranges": "best", "equalise": False}
"""Options of precision `int8` alone, with their defaults."""


def _carried(value: Any) -> Mapping[str, str] | Literal["auto"]:
    """Pairs of names, or the word for those that names say."""
    if value == CARRY_AUTO:
        return CARRY_AUTO
    if isinstance(value, str):
        raise Refused("no such word is known", 'give "auto", or pairs such as {"next": "h"}')
    return unchangeable(_PAIRS.validate_python(value))


def _set_of(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


CARRY_AUTO: Final = "auto"
"""As the option `carry`: the states are found by their names (`compiler.steps.states.names`)."""
_PAIRS: TypeAdapter[Mapping[str, str]] = TypeAdapter(Mapping[str, StrictStr])


def _show_targets(schema: dict[str, Any]) -> None:
    schema["pattern"] = f"^{kinds.target_pattern()}$"


def _show_precisions(schema: dict[str, Any]) -> None:
    schema["enum"] = list(kinds.precisions())


def _show_objectives(schema: dict[str, Any]) -> None:
    bound = {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_MS}
    within = {
        "type": "object",
        "properties": {"latency_ms": bound},
        "required": [*WITHIN],
        "additionalProperties": False,
    }
    schema["anyOf"] = [{"type": "string", "enum": list(OBJECTIVES)}, within]


def _show_schedulers(schema: dict[str, Any]) -> None:
    schema["enum"] = list(kinds.schedulers())


@dataclass(frozen=True, config=CONFIG)
class CompileOptions(Refusing):
    """What to compile for. Every field but `compare` takes part in the cache key."""

    target: StrictStr = Field(
        default="cpu",
        description="the device: `cpu` or `cuda` is the device of the machine that compiles, and is measured there; a "
        "profile, such as `cpu:x86-64-v3` or `cuda:sm_90`, stands for every device of that profile; `cpu:x86-64` "
        "and `cpu:arm64` are all of x86 and of ARM in one artifact, which holds programs for several profiles; "
        "`wasm:simd128` is for browsers and Node.js; an accelerator, such as `npu:ethos-u55-128`, always needs its "
        "profile",
        json_schema_extra=_show_targets,
    )
    precision: StrictStr = Field(
        default="fp32",
        description="`fp32`; `tf32` (CUDA) and `bf16` round the operands of contractions and add products in fp32; "
        "`fp16` (CUDA) and `bf16` are also the type of activations in memory, and of weights on GPUs; `auto` (CPU, "
        "CUDA) chooses fp32 or bf16, on GPUs fp16, for each kernel, the fastest within `tolerance`; `int8` first "
        "quantises the model on the samples. NPU targets support only `int8`, their default",
        json_schema_extra=_show_precisions,
    )
    snr_db: Annotated[Annotated[float, Strict(), AS_GIVEN] | None, LATER] = Field(
        default=None,
        gt=0,
        le=MAX_SNR_DB,
        description="for precision `int8`: the least signal-to-noise ratio of every output of the quantised model "
        "against the given one, in dB. On CPUs and GPUs the layers that lose most stay in fp32 until it is reached; an "
        "NPU has no fp32, so a model that misses it is refused. null: 20, and 10 on NPUs",
        examples=[30.0],
    )
    ranges: Annotated[RangesBy, LATER] = Field(
        default="best",
        description=f"for precision `int8`: {RANGES.replace(', see `percentile`', ' of 10,000')}",
    )
    equalise: Annotated[StrictBool, LATER] = Field(default=False, description=f"for precision `int8`: {EQUALISE}")
    tolerance: Annotated[float, Strict(), Field(gt=0, le=1), AS_GIVEN] | None = Field(
        default=None,
        description="largest accepted error against the float64 reference, relative to the largest value of an output; "
        "null: the default of the precision",
        examples=[1e-5],
    )
    threads: StrictInt | None = Field(
        default=None,
        ge=1,
        le=MAX_THREADS,
        description="lanes of the plan; null: every core of the machine that compiles, and one for browsers. "
        "CUDA targets refuse it: their plans have as many streams as they need",
    )
    inputs: Annotated[Mapping[str, Spec], AfterValidator(unchangeable)] = Field(
        default_factory=dict,
        validate_default=True,
        description='by input name: its whole shape, or `{"shape": [...], "value": number or lists of numbers}`; '
        "`value` fixes an input that selects a branch or says a shape",
        examples=[{"x": [1, 3, 224, 224]}],
    )
    dims: Annotated[
        OpenBinding | tuple[OpenBinding, ...],
        PlainValidator(bindings_of, json_schema_input_type=GivenBinding | list[GivenBinding]),
    ] = Field(
        default_factory=dict,
        validate_default=True,
        description='by name of a symbolic dimension: its value, a range `{"min": 1, "opt": 4, "max": 16}`, or a list '
        "of these; or a list of such objects. Several make one artifact that runs each of these bindings, and the "
        "first is its main one; a range runs every size in it, and `opt` also by a program of its own",
        examples=[{"batch": 1}],
    )
    bounds: Annotated[Mapping[str, Bound], AfterValidator(unchangeable), LATER] = Field(
        default_factory=dict,
        validate_default=True,
        description="by name of a node: the upper bound of sizes that data decide there, such as the `shape` input of "
        "a Reshape; a run that exceeds it is refused",
        examples=[{"resize": 640}],
    )
    ragged: Annotated[Mapping[str, Bound], AfterValidator(unchangeable), LATER] = Field(
        default_factory=dict,
        validate_default=True,
        description="by name of each input [texts, tokens]: 1, its axis of tokens. Texts of unequal lengths share one "
        "axis of tokens, without padding; an input with `mask` in its name is taken as ones, and not given. `dims` say "
        "the most texts of a run and the most tokens of a text. CPU targets only",
        examples=[{"input_ids": 1, "attention_mask": 1}],
    )
    chunks: Annotated[Mapping[str, Bound], AfterValidator(unchangeable), LATER] = Field(
        default_factory=dict,
        validate_default=True,
        description="by name of one output: positions of its longest axis that come at a time. The artifact can then "
        "give it piece by piece, each as soon as it is there: what is local along that axis runs in windows. One CPU",
        examples=[{"sound": 8192}],
    )
    tuning_budget_s: Annotated[float, Strict(), AS_GIVEN] = Field(
        default=24.0,
        ge=0,
        le=MAX_BUDGET_SECONDS,
        description="wall seconds for measuring candidates; 0 measures nothing and takes the choice of the cost model",
    )
    tuning_trials: StrictInt | None = Field(
        default=None, ge=0, description="most candidates to measure; null: as many as the time allows"
    )
    scheduler: StrictStr = Field(
        default="auto",
        description="`auto` measures the plans of all schedulers as a whole and takes one that is certainly faster "
        "than `sequential`, one kernel after another; any other value takes the plan of that scheduler without "
        "measuring. CUDA targets have fewer",
        json_schema_extra=_show_schedulers,
    )
    sparsity: Annotated[StrictStr, LATER] = Field(
        default="auto",
        description="`auto`: where many constant weights are zero, kernels that skip zeros are searched together with "
        "the dense ones, on CPU targets, and on CUDA targets where two of each four weights are zero; `off`: zeros are "
        "multiplied too, which propagates NaN and infinity",
        json_schema_extra={"enum": [*SPARSITIES]},
    )
    seed: StrictInt = Field(default=0, ge=0, description="seed of the inputs for measuring and for the agreement check")
    proof_limit_s: Annotated[float, Strict(), AS_GIVEN] = Field(
        default=600.0,
        gt=0,
        le=MAX_BUDGET_SECONDS,
        description="estimated seconds that one evaluation of the float64 reference may take; a model that needs more "
        "is refused before anything is built",
    )
    unverified: Annotated[StrictStr, LATER] = Field(
        default="refuse",
        description="what to do when neither drawn inputs nor samples can verify an artifact: `refuse`: the job fails; "
        "`allow`: it succeeds, and its report has `verified` false",
        json_schema_extra={"enum": [*UNVERIFIED]},
    )
    without: Annotated[tuple[Name, ...], AfterValidator(_set_of)] = Field(
        default=(),
        description="names of rewrite rules, families of rules, steps of fusion and rules of scheduling to disable; "
        "order and repetition have no effect",
        examples=[["weights"]],
    )
    devices: Annotated[tuple[StrictStr, ...], LATER] = Field(
        default=(),
        description="several devices for one model, instead of a target: cores by number, `cpu:0`, optionally limited "
        "to a profile, `cpu:1@x86-64-v2`, or all cores, `cpu`, and a GPU, `cuda:0`; or `cpu` and an accelerator, "
        "`npu:ethos-u65-256`",
        examples=[list(EXAMPLE)],
    )
    objective: Annotated[
        str | Within, PlainValidator(objective_of, json_schema_input_type=Any), Later(beside="devices")
    ] = Field(
        default="latency",
        description="what several devices optimise: `latency` of one inference, `throughput` of many, or "
        '`{"latency_ms": 30}`: the most throughput with a latency of at most so many milliseconds',
        json_schema_extra=_show_objectives,
    )
    carry: Annotated[
        Mapping[str, str] | Literal["auto"],
        PlainValidator(_carried, json_schema_input_type=Mapping[str, StrictStr] | Literal["auto"]),
        LATER,
    ] = Field(
        default_factory=dict,
        validate_default=True,
        description="by name of an output: the input that receives it in the next inference, on one CPU, or in "
        "pipelines on several devices; `auto`, on one CPU: what the names of outputs and inputs say",
        examples=[{"next": "h"}],
    )
    cache: Annotated[StrictStr, LATER] = Field(
        default=CACHE_OF_MODEL,
        description="what caches that are states (`carry`) lie in memory as: `model`: as the model has them; `bf16`; "
        "`int8`, with a scale for each position and head in a state beside. What that rounds counts for `tolerance`",
        json_schema_extra={"enum": [*CACHES]},
    )
    last_only: Annotated[tuple[StrictStr, ...], AfterValidator(_set_of), LATER] = Field(
        default=(),
        description="names of outputs [.., positions, elements] of which the last position is wanted: they become [.., "
        "1, elements], and what only the others need is not computed",
        examples=[["logits"]],
    )
    format: Annotated[StrictStr | None, LATER] = Field(
        default=None,
        description="on NPU targets, the format of the files for Arm's compiler: `tflite`, or `tosa`, in which any "
        "function of one number is a table. null: `tflite`",
        examples=["tosa"],
    )
    weights: Annotated[StrictStr, LATER] = Field(
        default="small",
        description="on CPU targets, `small`: constants that take less in the model than as kernels read them are made "
        "when an artifact is loaded, in memory of that process; `ready`: all lie in the file as kernels read them, and "
        "processes share them",
        json_schema_extra={"enum": [*WEIGHTS]},
    )
    profiles: Annotated[tuple[StrictStr, ...], AfterValidator(_set_of), LATER] = Field(
        default=(),
        description="with target `cpu:x86-64` or `cpu:arm64`, the profiles that the artifact has programs for: where "
        "it is loaded, the most able one that the processor has is taken. `[]`: v4, v3 and v2 (ARM: NEON), and for "
        "models with integers or another precision than fp32 those with instructions for these too",
        examples=[["cpu:x86-64-v3", "cpu:x86-64-v4"]],
    )
    system: Annotated[StrictStr, LATER] = Field(
        default=LINUX.name,
        description="on CPU targets that name a profile, the operating system that runs the artifact: `linux`, "
        "`windows` (x86), or `macos` (Apple's ARM, and x86)",
        json_schema_extra={"enum": [one.name for one in SYSTEMS]},
    )
    compare: tuple[StrictStr, ...] | None = Field(
        default=None,
        description="runtimes that the finished artifact is raced with on the model as it came, for some seconds: "
        "`onnxruntime`, `openvino`; null: those that the worker has; `[]`: none. It changes no artifact",
        examples=[["onnxruntime"]],
    )

    def __post_init__(self) -> None:
        if not re.fullmatch(kinds.target_pattern(), self.target):
            alone = [kind.name for kind in kinds.KINDS if kind.here]
            known = ", ".join([*map(repr, alone), *(f"'{name}:<profile>'" for name in kinds.names())])
            raise OptionsError(f"target {self.target!r:.80} is unknown", fix=f"use one of {known}; see GET /targets")
        kind = kinds.of(self.compiled_for)
        if kind.whole and self.precision == "fp32":
            object.__setattr__(self, "precision", kind.precisions[0])
        demand_of_kind(kind, "precision", self.precision, {one.name: one.precisions for one in kinds.KINDS})
        if self.precision != "int8" and (of_int8 := [name for name in OF_INT8 if getattr(self, name) != OF_INT8[name]]):
            raise OptionsError(
                f"option {of_int8[0]} applies to precision int8 only, and precision is {self.precision}",
                fix=f"ask for precision int8, or leave {of_int8[0]} out",
            )
        if self.format is not None and self.format not in kind.formats:
            known = ", ".join(kind.formats)
            problem = f"format {self.format!r:.80} is unknown" if known else "option format applies to NPU targets only"
            raise OptionsError(problem, fix=f"use one of {known}" if known else "leave format out")
        demand_of_kind(kind, "scheduler", self.scheduler, {one.name: one.schedulers for one in kinds.KINDS})
        if self.sparsity not in SPARSITIES:
            raise OptionsError(f"sparsity {self.sparsity!r:.80} is unknown", fix=f"use one of {', '.join(SPARSITIES)}")
        for name, words in (("unverified", UNVERIFIED), ("weights", WEIGHTS), ("cache", CACHES)):
            if (given := getattr(self, name)) not in words:
                raise OptionsError(f"{name} {given!r:.80} is unknown", fix=f"use one of {', '.join(words)}")
        if not kind.threads and self.threads not in (None, 1):
            raise OptionsError(
                f"threads is {self.threads}, and a {kind.title} target has as many {kind.lane}s as its plan needs",
                fix="leave threads out",
            )
        if unknown := [name for name in self.compare or () if name not in PEERS]:
            raise OptionsError(
                f"compare names {unknown[0]!r:.80}, which is unknown", fix=f"use {', '.join(PEERS)}, or leave it out"
            )
        self._check_browser(kind)
        demand_system(self.system, self.target, self.devices)
        self._check_profiles()
        self._check_carry()
        self._check_devices()
        self._check_ragged()
        is_cpu = self.kind == kinds.CPU.name and not self.devices and kinds.family(self.target) is None
        others = [name for name in ("carry", "ragged") if getattr(self, name)]
        others += ["precision int8"] * (self.precision == "int8") + ["several bindings"] * isinstance(self.dims, tuple)
        demand_chunks(self.chunks, ", ".join(self.devices) or self.target, is_cpu, others)

    def _check_browser(self, kind: kinds.Kind) -> None:
        several = isinstance(self.dims, tuple) and len(self.dims) > 1
        if kind.browser and (several or self.open_sizes):
            raise OptionsError(
                f"dims leaves a size open, and programs for {kind.name} targets have one size of each dimension",
                fix='give each dimension one value, such as {"dims": {"batch": 1}}',
            )

    def _check_ragged(self) -> None:
        if not self.ragged:
            return
        if self.kind != kinds.CPU.name or self.devices:
            raise OptionsError(
                f"option ragged applies to one CPU, and {'devices are named' if self.devices else 'the target is'} "
                f"{', '.join(self.devices) or self.target}",
                fix="use a cpu target, or leave ragged out and give dims a range",
            )
        beside = [name for name in ("carry", "last_only") if getattr(self, name)]
        if self.precision == "int8":
            fix = "quantise the model first, and compile what that gives, in fp32"
            raise OptionsError("options ragged and precision int8 exclude each other: it needs samples", fix=fix)
        if isinstance(self.dims, tuple) or self.open_sizes:
            beside.append("dims with ranges or several values")
        if beside:
            raise OptionsError(f"options ragged and {beside[0]} exclude each other", fix="leave one of the two out")

    def _check_profiles(self) -> None:
        family = kinds.family(self.target)
        if family is None and self.profiles:
            families = [one.name for kind in kinds.KINDS for one in kind.families]
            raise OptionsError(
                f"option profiles applies to target {' and '.join(families)} only, and target is {self.target}",
                fix="leave profiles out, or ask for that target",
            )
        if family and (unknown := [name for name in self.profiles if name not in family.profiles]):
            raise OptionsError(
                f"profile {unknown[0]!r:.80} is none of target {family.name}",
                fix=f"use some of {', '.join(family.profiles)}",
            )

    def _check_carry(self) -> None:
        if self.cache != CACHE_OF_MODEL and (not self.carry or self.devices):
            raise OptionsError(
                f"cache is {self.cache}, and applies to caches that are states on one CPU",
                fix='name the states, or give {"carry": "auto"}; or leave cache out',
            )
        if not self.carry:
            return
        alone = not self.devices and self.kind == kinds.CPU.name
        if not alone and (not self.devices or self.objective == "latency"):
            raise OptionsError(
                "option carry applies to one CPU, and to pipelines on several devices",
                fix=f"use a cpu target, or name devices, such as {json.dumps(EXAMPLE)}, and the objective throughput",
            )
        each = self.dims if isinstance(self.dims, tuple) else (self.dims,)
        ranges = [name for dims in each for name, size in dims.items() if isinstance(size, DimRange)]
        if alone and ranges:
            raise OptionsError(
                f"dims leaves dimension {min(ranges)!r} open, and programs that carry states have fixed sizes",
                fix=f"give its values, such as {json.dumps({'dims': {min(ranges): [1, 64]}})}, or leave carry out",
            )
        if self.carry == CARRY_AUTO and not alone:
            raise OptionsError('carry "auto" is for one CPU', fix='name the states, such as {"carry": {"next": "h"}}')
        if both := sorted({*self.named_states.values()} & self.constant_inputs):
            raise OptionsError(
                f"carry makes input {both[0]!r:.100} a state, and inputs gives it a value, which makes it a constant",
                fix="leave that input out of one of the two",
            )

    def _check_devices(self) -> None:
        if not self.named_devices:
            if self.objective != "latency":
                raise OptionsError(
                    f"objective {self.objective} applies to several devices, and no devices are named",
                    fix=f"name devices, such as {json.dumps(EXAMPLE)}, or leave objective out",
                )
            return
        for name, default in (("target", "cpu"), ("threads", None), ("scheduler", "auto")):
            if getattr(self, name) != default:
                raise OptionsError(
                    f"options {name} and devices exclude each other: each device has its own {name}",
                    fix=f"leave {name} out, or devices",
                )
        if self.precision == "int8" and not kinds.of(self.compiled_for).whole:
            raise OptionsError(
                "precision int8 and devices exclude each other: a model is quantised for one target",
                fix="quantise it first (POST /quantizations), and compile the quantised model in fp32",
            )
        if self.precision == kinds.AUTO:
            raise OptionsError("precision auto is for one device", fix="use fp32 or bf16, or leave devices out")
        beside = [name for name, one in zip(self.devices, self.named_devices, strict=True) if one.is_beside]
        if beside and self.precision != "fp32":
            raise OptionsError(
                f"precision {self.precision} and device {beside[0]} exclude each other: it stores elements otherwise",
                fix="use fp32, or leave one of the two out",
            )
        several = isinstance(self.dims, tuple)
        if several or self.open_sizes:
            which = (
                "binds several values of a dimension" if several else f"leaves dimension {min(self.open_sizes)!r} open"
            )
            raise OptionsError(
                f"dims {which}, and a plan for several devices takes one size of each",
                fix=f"give one value for each name, such as {json.dumps({'dims': {self._example: 1}})}, or leave "
                "devices out",
            )

    @property
    def _example(self) -> str:
        """The name of a dimension that could have one size."""
        return "batch" if isinstance(self.dims, tuple) else min(self.open_sizes)

    @property
    def named_states(self) -> Mapping[str, str]:
        """The states that `carry` names; none for those that the model's names say."""
        return {} if isinstance(self.carry, str) else self.carry

    @property
    def constant_inputs(self) -> frozenset[str]:
        """Names of the inputs that are given a value."""
        return frozenset(name for name, spec in self.inputs.items() if spec.value is not None)

    @property
    def named_devices(self) -> tuple[NamedDevice, ...]:
        """Those of `devices`; none for a job that has a target instead."""
        return named_devices(self.devices)

    @property
    def held(self) -> str:
        """The target whose device a worker must hold: with several devices, that of the one beside the CPU."""
        return held(self.target, self.devices)

    @property
    def compiled_for(self) -> str:
        """The target, or that of the accelerator among the devices that models are compiled whole for."""
        return compiled_for(self.target, self.devices)

    @property
    def beside(self) -> str | None:
        """The CPU that is named beside an accelerator which models are compiled whole for; None without one."""
        whole = self.compiled_for
        return next((name for name in self.devices if name != whole), None) if whole in self.devices else None

    @property
    def arithmetic(self) -> str:
        """What kernels may round to, as a precision: fp32 in int8, where the quantised model says what is rounded."""
        return "fp32" if self.precision == "int8" else self.precision

    @property
    def kind(self) -> str:
        """Of the target: the name of one of `kinds.KINDS`."""
        return kinds.name_of(self.target)

    @property
    def binding(self) -> Binding:
        """Of options for a single one; of a range its largest size. Raises ValueError for those of several."""
        return {name: size.high if isinstance(size, DimRange) else size for name, size in self._only.items()}

    @property
    def open_sizes(self) -> Mapping[str, DimRange]:
        """The dimensions that a single binding leaves open, by name. Raises ValueError for options of several."""
        return {name: size for name, size in self._only.items() if isinstance(size, DimRange)}

    @property
    def _only(self) -> OpenBinding:
        if isinstance(self.dims, tuple):
            raise ValueError(f"these are options for {len(self.dims)} bindings: see `bindings`")
        return self.dims

    @property
    def bindings(self) -> tuple[CompileOptions, ...]:
        """Options for each program alone, in order, each with an equal part of the tuning budget.

        A binding with a range has two: at its opt, without a range, then one for all sizes. Of a target that stands for
        several profiles each has them all, the most able first.
        """
        bound = with_exact(self.dims if isinstance(self.dims, tuple) else (self.dims,))
        each = [{**of_profile, "dims": dims} for of_profile in self._of_profiles for dims in bound]
        if each == [{"dims": self.dims}]:
            return (self,)
        seconds = self.tuning_budget_s / len(each)
        trials = None if self.tuning_trials is None else -(-self.tuning_trials // len(each))
        return tuple(replace(self, tuning_budget_s=seconds, tuning_trials=trials, **one) for one in each)

    @property
    def _of_profiles(self) -> list[dict[str, Any]]:
        """What options for one profile of the target's family have of their own; of another target, nothing."""
        family = kinds.family(self.target)
        if family is None:
            return [{}]
        rounds = self.precision in (kinds.of(self.target).short, kinds.AUTO)
        return [
            {"target": one, "profiles": ()} | ({"precision": "fp32"} if rounds and one not in family.short else {})
            for one in family.profiles
            if one in (self.profiles or family.usual)
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back to an equal object."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["inputs"] = {name: asdict(spec) for name, spec in sorted(self.inputs.items())}
        plain["dims"] = [*map(dims_json, self.dims)] if isinstance(self.dims, tuple) else dims_json(self.dims)
        plain |= {name: dict(sorted(plain[name].items())) for name in ("bounds", "ragged", "chunks")}
        plain |= {name: list(plain[name]) for name in ("without", "last_only", "devices", "profiles")}
        plain["objective"] = self.objective if isinstance(self.objective, str) else self.objective.to_json()
        plain["carry"] = self.carry if self.carry == CARRY_AUTO else dict(sorted(self.named_states.items()))
        plain["compare"] = None if self.compare is None else list(self.compare)
        return plain

    def artifact_json(self) -> dict[str, Any]:
        """`to_json` without `compare`, on which no artifact depends: what artifacts hold, and the cache key is over."""
        return {name: value for name, value in self.to_json().items() if name != "compare"}

    def cache_key(self, model_digest: str, samples: Sequence[str] = ()) -> str:
        """SHA-256 (hex) over the digests of the model and of its samples, these options and the compiler's version.

        Options that are marked LATER are no part of it where they have their default.
        """
        values, defaults = ({f.name: getattr(one, f.name) for f in fields(one)} for one in (self, CompileOptions()))
        shown = {*shown_fields(values, defaults, marked(CompileOptions))}
        plain = {name: value for name, value in self.artifact_json().items() if name in shown}
        given = [COMPILER_VERSION, model_digest, plain, *([list(samples)] if samples else [])]
        text = json.dumps(given, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
