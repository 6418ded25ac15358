"""What to compile for and how to time it: the options of a request, checked when they are made.

The whole `CompileOptions` object is the cache key (`cache_key`), together with the model's digest and
`COMPILER_VERSION`: nothing below the pipeline reads the environment, so equal keys give equal programs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from compiler.contract.kinds import CPU_SCHEDULERS, PRECISIONS, SCHEDULERS, TARGET_PATTERN
from compiler.contract.version import COMPILER_VERSION
from compiler.errors import OptionsError

MAX_THREADS = 256
RULE_PATTERN = re.compile(r"[a-z0-9_]{1,64}")
MAX_BUDGET_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class InputSpec:
    """How one graph input is bound: its whole shape, and for an input that selects a branch its value."""

    shape: tuple[int, ...] | None = None
    value: float | int | bool | None = None


@dataclass(frozen=True)
class CompileOptions:
    """What to compile for. Frozen; every field takes part in the cache key.

    target     `cpu` (this machine) or `cpu:<profile>` such as `cpu:x86-64-v3`; `cuda` (its GPU) or `cuda:<profile>` such as `cuda:sm_90`
    precision  `fp32`, or what may be rounded: `tf32` (CUDA) and `bf16` operands of contractions, products added in fp32; on CUDA targets
               `fp16` and `bf16` are also what activations and weights are in memory
    tolerance  largest accepted error against the float64 reference, relative to the largest value of an output;
               None: the default of the precision
    threads    lanes of the plan; None: every core of the machine that compiles. Not of CUDA targets, whose plans have as many streams as they need
    inputs     by input name: a shape (list of ints), or `{"shape": [...], "value": scalar}`
    dims       by symbolic dimension name: its value
    tuning_budget_s  wall seconds that measuring candidates may take; 0 takes the analytical choice unmeasured
    tuning_trials  how many candidates may be measured; None: as many as the seconds allow
    scheduler  `auto`: what the others find is run whole, and taken where it is certainly faster than `sequential`, one kernel after another;
               `aligned`: the same order, split so that lanes read what they wrote; `early_start`, `stages`, `greedy`: independent kernels side by
               side. Each by this scheduler alone, unmeasured. CUDA targets have none of CPU_SCHEDULERS
    seed       of the inputs used for measuring and agreement
    without    rules of rewriting, families of them and steps of fusion that are left out, by name; order and repetition mean nothing.
               Which names there are is the compiler's matter: it refuses others
    """

    target: str = "cpu"
    precision: str = "fp32"
    tolerance: float | None = None
    threads: int | None = None
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    tuning_budget_s: float = 15.0
    tuning_trials: int | None = None
    scheduler: str = "auto"
    seed: int = 0
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))
        object.__setattr__(self, "dims", MappingProxyType(dict(self.dims)))
        object.__setattr__(self, "without", tuple(sorted(set(self.without))))
        self._check()

    def _check(self) -> None:
        if not TARGET_PATTERN.fullmatch(self.target):
            raise OptionsError(
                f"target {self.target!r} is unknown",
                fix="use 'cpu', 'cuda', 'cpu:<profile>' or 'cuda:<profile>'; see GET /targets",
            )
        self._check_precision()
        if self.scheduler not in SCHEDULERS:
            raise OptionsError(f"scheduler {self.scheduler!r} is unknown", fix=f"use one of {', '.join(SCHEDULERS)}")
        if self.kind == "cuda" and self.scheduler in CPU_SCHEDULERS:
            others = [name for name in SCHEDULERS if name not in CPU_SCHEDULERS]
            raise OptionsError(
                f"scheduler {self.scheduler!r} is for the lanes of a CPU", fix=f"use one of {', '.join(others)}"
            )
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise OptionsError(f"threads is {self.threads}", fix=f"use 1 to {MAX_THREADS}, or leave it out")
        if self.kind == "cuda" and self.threads not in (None, 1):
            raise OptionsError(
                f"threads is {self.threads}, and a CUDA target has streams, as many as its plan needs",
                fix="leave threads out",
            )
        if self.tolerance is not None and not 0 < self.tolerance <= 1:
            raise OptionsError(f"tolerance is {self.tolerance}", fix="use a number in (0, 1], such as 1e-5")
        if not 0 <= self.tuning_budget_s <= MAX_BUDGET_SECONDS:
            raise OptionsError(
                f"tuning_budget_s is {self.tuning_budget_s}", fix=f"use 0 to {MAX_BUDGET_SECONDS:g} seconds"
            )
        if self.tuning_trials is not None and self.tuning_trials < 0:
            raise OptionsError(f"tuning_trials is {self.tuning_trials}", fix="use 0 or more, or leave it out")
        for name, spec in self.inputs.items():
            if spec.shape is not None and any(dim < 0 for dim in spec.shape):
                raise OptionsError(
                    f"inputs[{name!r}] has a negative dimension", fix="give every dimension as an int >= 0"
                )
        for name, dim in self.dims.items():
            if dim < 0:
                raise OptionsError(f"dims[{name!r}] is {dim}", fix="give an int >= 0")
        for name in self.without:
            if not RULE_PATTERN.fullmatch(name):
                raise OptionsError(
                    f"without has {name!r:.80}, which is no name",
                    fix="give names of rules or steps, such as ['weights']",
                )

    def _check_precision(self) -> None:
        known = PRECISIONS[self.kind]
        if self.precision not in known:
            able = [kind for kind, precisions in PRECISIONS.items() if self.precision in precisions]
            said = f"is one of {' and '.join(able)} targets alone" if able else "is unknown"
            fix = f"use one of {', '.join(known)}" + (f", or a target {' or '.join(able)}" if able else "")
            raise OptionsError(f"precision {self.precision!r} {said}", fix=fix)

    @property
    def kind(self) -> str:
        """Of the target: `cpu` or `cuda`."""
        return self.target.partition(":")[0]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back to an equal object."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["inputs"] = {name: asdict(spec) for name, spec in sorted(self.inputs.items())}
        plain["dims"] = dict(sorted(self.dims.items()))
        plain["without"] = list(self.without)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> CompileOptions:
        """Options from a request body. Raises `OptionsError` naming the field that is wrong and the fix."""
        given = _checked_fields(cls, plain, _FIELD_KINDS)
        given["inputs"] = {name: _input_spec(name, spec) for name, spec in given.get("inputs", {}).items()}
        given["dims"] = {name: _dimension(f"dims[{name!r}]", value) for name, value in given.get("dims", {}).items()}
        given["without"] = _names("without", given.get("without", []))
        return cls(**given)

    def cache_key(self, model_digest: str) -> str:
        """SHA-256 (hex) over the model's digest, these options and the compiler's version."""
        text = json.dumps([COMPILER_VERSION, model_digest, self.to_json()], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


_FIELD_KINDS: dict[str, tuple[type, ...]] = {
    "target": (str,),
    "precision": (str,),
    "tolerance": (float, int, type(None)),
    "threads": (int, type(None)),
    "inputs": (dict,),
    "dims": (dict,),
    "tuning_budget_s": (float, int),
    "tuning_trials": (int, type(None)),
    "scheduler": (str,),
    "seed": (int,),
    "without": (list,),
}

_BENCHMARK_KINDS: dict[str, tuple[type, ...]] = {
    "threads": (int, type(None)),
    "seconds": (float, int),
    "profile": (bool,),
    "seed": (int,),
}


def _checked_fields(cls: type, plain: object, kinds_of: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """The fields of a request body, each of a kind it may have. Raises `OptionsError`."""
    if not isinstance(plain, Mapping):
        raise OptionsError("options are not a JSON object", fix='send an object such as {"seed": 1}')
    known = {f.name for f in fields(cls)}
    if unknown := sorted(set(plain) - known):
        raise OptionsError(f"unknown option {unknown[0]!r}", fix=f"known options: {', '.join(sorted(known))}")
    for name, kinds in kinds_of.items():
        if name in plain and not _is_kind(plain[name], kinds):
            wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
            raise OptionsError(f"option {name!r} is not a {wanted}", fix=f"got {plain[name]!r:.80}")
    return dict(plain)


def _is_kind(value: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _dimension(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionsError(f"{where} is not an int", fix=f"got {value!r:.80}")
    return value


def _names(where: str, values: Sequence[object]) -> tuple[str, ...]:
    for at, value in enumerate(values):
        if not isinstance(value, str):
            raise OptionsError(f"{where}[{at}] is not a string", fix=f"got {value!r:.80}")
    return tuple(map(str, values))


def _input_spec(name: str, spec: object) -> InputSpec:
    if isinstance(spec, list | tuple):
        spec = {"shape": spec}
    if not isinstance(spec, dict) or set(spec) - {"shape", "value"}:
        raise OptionsError(
            f"inputs[{name!r}] is not an input spec",
            fix='give a shape like [1, 3, 224, 224] or {"shape": ..., "value": ...}',
        )
    shape, value = spec.get("shape"), spec.get("value")
    if shape is not None:
        if not isinstance(shape, list | tuple):
            raise OptionsError(f"inputs[{name!r}].shape is not a list", fix="give a list of ints")
        shape = tuple(_dimension(f"inputs[{name!r}].shape[{axis}]", dim) for axis, dim in enumerate(shape))
    if value is not None and not isinstance(value, int | float | bool):
        raise OptionsError(f"inputs[{name!r}].value is not a scalar", fix="give a number or a boolean")
    return InputSpec(shape, value)


MAX_BENCHMARK_SECONDS = 600.0


@dataclass(frozen=True)
class BenchmarkOptions:
    """How artifacts are timed against each other on one device.

    threads    lanes of each artifact; None: as many as its plan was made for
    seconds    wall seconds of timed runs per artifact; rounds of all artifacts are interleaved in random order
    profile    whether the time of each kernel is taken too, in runs of their own
    seed       of the inputs and of the order
    """

    threads: int | None = None
    seconds: float = 3.0
    profile: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise OptionsError(f"threads is {self.threads}", fix=f"use 1 to {MAX_THREADS}, or leave it out")
        if not 0 < self.seconds <= MAX_BENCHMARK_SECONDS:
            raise OptionsError(
                f"seconds is {self.seconds}", fix=f"use more than 0 and at most {MAX_BENCHMARK_SECONDS:g}"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back to an equal object."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> BenchmarkOptions:
        """Options from a request body. Raises `OptionsError` naming the field that is wrong and the fix."""
        return cls(**_checked_fields(cls, plain, _BENCHMARK_KINDS))
