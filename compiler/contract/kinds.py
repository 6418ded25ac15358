"""The kinds of device, each one record.

It holds what API, worker, command line and documentation know of it without loading the compiler.

`KINDS` is the registration of a kind. Read it through this module (`kinds.KINDS`, `kinds.of`), never as a copy made
when a module is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from compiler.errors import OptionsError

AUTO = "auto"
"""The value of `precision` that leaves it to the compiler, kernel by kernel, what is rounded within the tolerance."""
PROFILE = r"[a-z0-9._-]{1,64}"
"""What stands behind the colon in a target's name."""


@dataclass(frozen=True)
class Family:
    """A target that stands for several profiles of a kind: an artifact for it holds programs for each.

    name      such as `cpu:x86-64`
    machine   the architecture, as Python and Linux call it
    profiles  all that there may be programs for, the most able first
    usual     those for a model in which all is fp32; others compute that as these do
    short     those that have arithmetic in the kind's `short` precision
    """

    name: str
    machine: str
    profiles: tuple[str, ...]
    usual: tuple[str, ...]
    short: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """One kind of device.

    name         with which its targets (`cuda:sm_90`), devices (`cuda:0`) and queues begin
    title        in sentences, before "target"
    precisions   values of the option `precision` that its targets may have; one profile or another may have fewer
    short        the one of these that `auto` chooses beside fp32, kernel by kernel; empty: there is no `auto`
    schedulers   values of the option `scheduler` that its targets have
    threads      whether its targets have the option `threads`
    lane         what a lane of its plans is called
    accelerator  whether its devices stand beside the CPU: a machine has any number of them, numbered, and only who
                 holds one, through its driver, can say what it is
    here         what a target's name without a profile stands for, to be read in the list of targets; empty: nothing
    hardware     what a machine must have to hold a device; empty: nothing that not every machine has
    builder      what a builder must have beside a C compiler; empty: nothing
    package      the package of the compiler that makes code for them; its module `kind` holds their
                 `DeviceKind` as KIND, or `WholeKind`
    attention    whether precision int8 has attention computed from bytes too
    regions      whether its artifacts decide while they run how often a loop runs, and which branch
    browser      whether its programs run in browsers: with one size of each dimension, and numbers alone
    whole        whether another compiler takes the model whole: there are no kernels, nothing is measured, artifacts
                 are run on the CPU instead of the device, and only a target with a profile says what is compiled for
    formats      values of the option `format`: of the files that another compiler is given, the first by itself
    families     targets that stand for several profiles
    holder       the module by which a worker holds devices of this kind and compiles for them
                 (`worker.devices.holder.Holder`)
    """

    name: str
    title: str
    precisions: tuple[str, ...]
    schedulers: tuple[str, ...]
    threads: bool
    lane: str
    accelerator: bool
    here: str
    package: str
    holder: str
    short: str = ""
    hardware: str = ""
    builder: str = ""
    attention: bool = False
    regions: bool = False
    browser: bool = False
    whole: bool = False
    formats: tuple[str, ...] = ()
    families: tuple[Family, ...] = ()

    def device(self, index: int = 0) -> str:
        """How the device of this number is named, and the queue that a worker asks for to hold it: `cpu`, `cuda:0`."""
        return f"{self.name}:{index}" if self.accelerator else self.name

    def index_of(self, device: str) -> int | None:
        """The number of the device that a name is of, 0 for the name of the kind itself.

        None for what is no device of this kind.
        """
        name, colon, number = device.partition(":")
        if name != self.name:
            return None
        if not colon:
            return 0
        return int(number) if self.accelerator and number.isdecimal() else None


_X86 = "cpu:x86-64"
X86 = Family(
    name=_X86,
    machine="x86_64",
    profiles=tuple(f"{_X86}-{one}" for one in ("v4-amx", "v4-bf16", "v4-vnni", "v4", "v3-vnni", "v3", "v2")),
    usual=tuple(f"{_X86}-{one}" for one in ("v4", "v3", "v2")),
    short=tuple(f"{_X86}-{one}" for one in ("v4-amx", "v4-bf16")),
)

_ARM = "cpu:aarch64"
ARM = Family(
    name="cpu:arm64",
    machine="aarch64",
    profiles=tuple(f"{_ARM}{one}" for one in ("-bf16", "-i8mm", "-dotprod", "")),
    usual=(_ARM,),
    short=(f"{_ARM}-bf16",),
)

CPU = Kind(
    name="cpu",
    title="CPU",
    precisions=("fp32", "bf16", AUTO, "int8"),
    short="bf16",
    schedulers=("auto", "sequential", "aligned", "early_start", "stages"),
    threads=True,
    lane="lane",
    accelerator=False,
    here="the machine of the worker that takes the job: its best profile, measured there",
    package="compiler.devices.cpu",
    attention=True,
    regions=True,
    holder="worker.devices.cpu",
    families=(X86, ARM),
)

CUDA = Kind(
    name="cuda",
    title="CUDA",
    precisions=("fp32", "tf32", "fp16", "bf16", AUTO, "int8"),
    short="fp16",
    schedulers=("auto", "sequential", "early_start", "stages", "persistent"),
    threads=False,
    lane="stream",
    accelerator=True,
    here="the NVIDIA GPU of the worker that takes the job, measured there; waits for a worker with one",
    package="compiler.devices.cuda",
    regions=True,
    holder="worker.devices.gpu",
    hardware="an NVIDIA GPU",
    builder="NVRTC",
)

NPU = Kind(
    name="npu",
    title="NPU",
    precisions=("int8",),
    schedulers=("auto",),
    threads=False,
    lane="command stream",
    accelerator=False,
    here="",
    package="compiler.accelerate",
    holder="worker.devices.npu",
    builder="Vela and LiteRT",
    whole=True,
    formats=("tflite", "tosa"),
)

WASM = Kind(
    name="wasm",
    title="browser",
    precisions=("fp32",),
    schedulers=("auto", "sequential", "aligned", "early_start", "stages"),
    threads=True,
    lane="lane",
    accelerator=False,
    here="",
    package="compiler.devices.cpu.wasm",
    regions=True,
    holder="worker.devices.wasm",
    builder="ziglang",
    browser=True,
)

KINDS: tuple[Kind, ...] = (CPU, CUDA, WASM, NPU)


def name_of(target: str) -> str:
    """The kind's name in that of a target or a device: what stands before the colon."""
    return target.partition(":")[0]


def find(target: str) -> Kind | None:
    """The kind that a target or a device is of; None for one that is not registered."""
    return next((kind for kind in KINDS if kind.name == name_of(target)), None)


def of(target: str) -> Kind:
    """The kind that a target or a device is of. Raises `LookupError` for one that is not registered."""
    kind = find(target)
    if kind is None:
        raise LookupError(f"{target!r} is of no kind of device that is registered")
    return kind


def family(target: str) -> Family | None:
    """The family that a target's name is of; None for one profile, and for a kind alone."""
    kind = find(target)
    return next((one for one in kind.families if one.name == target), None) if kind else None


def names() -> tuple[str, ...]:
    """Of every kind."""
    return tuple(kind.name for kind in KINDS)


def precisions() -> tuple[str, ...]:
    """Every kind's, each once."""
    return tuple(dict.fromkeys(name for kind in KINDS for name in kind.precisions))


def schedulers() -> tuple[str, ...]:
    """Every kind's, each once."""
    return tuple(dict.fromkeys(name for kind in KINDS for name in kind.schedulers))


def target_pattern() -> str:
    """The regular expression that the whole name of a target matches.

    It is a kind, and perhaps a profile; where no machine holds a device of the kind the profile is never left out.
    """
    alone = "|".join(re.escape(kind.name) for kind in KINDS if kind.here)
    whole = "|".join(re.escape(kind.name) for kind in KINDS if not kind.here)
    return f"(({alone})(:{PROFILE})?" + (f"|({whole}):{PROFILE})" if whole else ")")


def demand_of_kind(kind: Kind, option: str, value: str, of_kinds: Mapping[str, tuple[str, ...]]) -> None:
    """Raises `OptionsError` for a value that targets of this kind do not have.

    `of_kinds` says which kinds have which.
    """
    if value in of_kinds[kind.name]:
        return
    able = [name for name, values in of_kinds.items() if value in values]
    said = f"applies to {' and '.join(able)} targets only" if able else "is unknown"
    other = f", or a target {' or '.join(able)}" if able else ""
    raise OptionsError(f"{option} {value!r:.80} {said}", fix=f"use one of {', '.join(of_kinds[kind.name])}{other}")
