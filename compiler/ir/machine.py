"""How stages reach a device and its measurements without knowing who provides them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

from compiler.contract import generator
from compiler.contract.canonical import canonical_text
from compiler.encodings.encoding import DENSE, Encodings
from compiler.encodings.int24 import INT24
from compiler.errors import VerifyError
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.text import print_workload
from compiler.ir.tile import Cost, Tile

WeightsIn = Literal["cache", "memory"]
"""Where a kernel finds its constants: in the last cache, as in a model whose constants all fit there, or beyond it."""

LEAST_SECONDS, MOST_SECONDS = 1e-15, 1e6
"""Between them lies whatever is measured, from one byte of a cache line to a model's kernels together."""


@dataclass(frozen=True)
class Record:
    """One measurement. `seconds` is the median of `samples`; p10 and p90 are its spread.

    `compiler` is who generated what was measured (`compiler.contract.generator`).
    """

    kind: str
    workload: str
    operator: str
    description: str
    target: str
    hardware: str
    variant: Mapping[str, Any]
    threads: int
    seconds: float
    p10: float
    p90: float
    samples: int
    compiler: str = field(default_factory=generator)

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return {**asdict(self), "variant": dict(self.variant)}

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Record:
        """Reads `to_json` back. Raises KeyError when a field is missing; fields it does not know are ignored."""
        return Record(**{name: plain[name] for name in Record.__dataclass_fields__})

    @property
    def is_plausible(self) -> bool:
        """Whether it may be a measurement, in types and size."""
        texts = (self.kind, self.workload, self.operator, self.description, self.target, self.hardware, self.compiler)
        return (
            all(isinstance(text, str) for text in texts)
            and isinstance(self.variant, Mapping)
            and isinstance(self.threads, int)
            and self.threads > 0
            and isinstance(self.seconds, float | int)
            and LEAST_SECONDS <= self.seconds <= MOST_SECONDS
        )


def plausible(plain: Iterable[Mapping[str, Any]]) -> list[Record]:
    """The records that may be measurements, of those that came from a file or a database.

    The others count for nothing.
    """
    whole = [one for one in plain if Record.__dataclass_fields__.keys() <= one.keys()]
    return [record for record in map(Record.from_json, whole) if record.is_plausible]


@dataclass(frozen=True)
class Setting:
    """What a kernel's time depends on besides its tile, target and hardware; part of the variant of its records.

    toolchain  the C compiler's name and version
    """

    weights: WeightsIn = "cache"
    toolchain: str = ""

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return asdict(self)

    def is_of(self, record: Record) -> bool:
        """Whether a record was measured in this setting, on code of this very compiler."""
        return self.is_like(record) and record.compiler == generator()

    def is_like(self, record: Record) -> bool:
        """Whether a record was measured in this setting, on whichever compiler's code."""
        return (record.variant.get("weights"), record.variant.get("toolchain")) == (self.weights, self.toolchain)


@dataclass(frozen=True, repr=False)
class Workload:
    """A kernel with the buffers it is applied to: all that its code and its cost depend on."""

    kernel: Kernel | Routine
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constant: tuple[bool, ...]
    """Whether each input is a constant, so that it may be packed ahead of time."""
    encodings: tuple[Encodings, ...] = ()
    """In which each input may be kept (`compiler.encodings`): only constants have others than DENSE. An input left
    out has none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "encodings", self.encodings or ((DENSE,),) * len(self.inputs))

    def __repr__(self) -> str:
        """Its canonical text with all that buffers say: keys of stages and plans are hashed from it."""
        return self._text(())

    @property
    def canonical(self) -> str:
        """What keys of kernels are hashed from: elements that are the same in memory as in the kernel play no part."""
        return self._text(("element",))

    def _text(self, optional: Collection[str]) -> str:
        """The canonical text; `optional` fields of buffers are left out where they have their default."""
        inputs, outputs = (
            f"({', '.join(canonical_text(one, optional) for one in buffers)}{',' if len(buffers) == 1 else ''})"
            for buffers in (self.inputs, self.outputs)
        )
        fields = f"kernel={self.kernel!r}, inputs={inputs}, outputs={outputs}, constant={self.constant!r}"
        others = tuple(tuple(one.name for one in each if one not in (DENSE, INT24)) for each in self.encodings)
        more = f", encodings={others!r}" if any(others) else ""
        return f"Workload({fields}, narrow={tuple(INT24 in each for each in self.encodings)!r}{more})"

    @property
    def nameless(self) -> Workload:
        """The same whatever the operators are called: what code and measurements are shared by."""
        return replace(self, kernel=replace(self.kernel, family=""))

    def part(self, kernel: Kernel) -> Workload:
        """A part of the kernel as one of its own.

        It reads some of the whole's inputs, and its one result fills a buffer by itself.
        """
        at = {slot.name: position for position, slot in enumerate(self.kernel.inputs)}
        positions = [at[slot.name] for slot in kernel.inputs]
        return Workload(
            kernel,
            tuple(self.inputs[position] for position in positions),
            (Buffer.whole(0, kernel.outputs[0].type),),
            tuple(self.constant[position] for position in positions),
        )

    @property
    def shapes(self) -> str:
        """Shapes, and layouts that are not plain.

        For example `f32[1, 64, 56, 56] <0 2 3 1>, f32[64, 64, 3, 3] -> f32[1, 64, 56, 56]`.
        """
        inputs, outputs = (", ".join(map(_shape, buffers)) for buffers in (self.inputs, self.outputs))
        return f"{inputs} -> {outputs}"

    def verify(self) -> None:
        """Raises VerifyError unless the kernel is well formed and each of its slots has a buffer of its type."""
        self.kernel.verify()
        slots, buffers = (*self.kernel.inputs, *self.kernel.outputs), (*self.inputs, *self.outputs)
        if len(self.inputs) != len(self.kernel.inputs) or len(buffers) != len(slots):
            raise VerifyError(f"{len(self.inputs)} and {len(self.outputs)} buffers for other slots\n{self}")
        if not len(self.constant) == len(self.encodings) == len(self.inputs):
            raise VerifyError(f"{len(self.constant)} flags for {len(self.inputs)} inputs\n{self.kernel}")
        for encodings, constant in zip(self.encodings, self.constant, strict=True):
            if DENSE not in encodings:
                raise VerifyError(f"an input may not be kept dense\n{self}")
            if len(encodings) > 1 and not constant:
                raise VerifyError(f"an input that is no constant is encoded as {encodings[1]}\n{self}")
        for buffer, encodings in zip(self.inputs, self.encodings, strict=True):
            for one in encodings:
                if not one.fits(buffer.type.dims):
                    raise VerifyError(f"an input of {buffer.type} is encoded as {one}\n{self}")
        for slot, buffer in zip(slots, buffers, strict=True):
            if buffer.type != slot.type:
                raise VerifyError(f"slot `{slot}` has the buffer `{buffer}`\n{self}")
            try:
                buffer.layout.verify(buffer.type.rank)
            except ValueError as error:
                raise VerifyError(f"buffer `{buffer}`: {error}") from error
            if len(buffer.strides) != len(buffer.layout.dims):
                raise VerifyError(f"buffer `{buffer}` has {len(buffer.strides)} strides for layout {buffer.layout}")

    def __str__(self) -> str:
        return print_workload(self)


def _shape(buffer: Buffer) -> str:
    text = f"{buffer.type} as {buffer.element}" if buffer.element else f"{buffer.type}"
    return text if buffer.layout.is_plain else f"{text} {buffer.layout}"


@dataclass(frozen=True)
class Trial:
    """One way to carry out one workload, to be measured."""

    workload: Workload
    key: str
    tile: Tile
    lanes: int


class Costs(Protocol):
    """What kernels cost on a target, for stages that choose between ways to compute the same."""

    @property
    def lanes(self) -> int:
        """Of the plan that is to be made."""
        ...

    def of(self, kernels: KernelGraph, calls: Sequence[Call]) -> tuple[Cost, ...]:
        """Seconds of each call on one lane under the best tile that is known.

        All are measured, or all are modelled: what is compared must come from one source. So ask for all alternatives
        at once.
        """
        ...


class Machine(Protocol):
    """A device on which trials are measured."""

    @property
    def hardware(self) -> str:
        """Fingerprint: measurements are comparable where it is equal."""
        ...

    @property
    def lanes(self) -> int:
        """How many lanes may compute at the same time."""
        ...

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        """Builds all trials, times them interleaved, and yields one record for each that ran before the deadline."""
        ...
