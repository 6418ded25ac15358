"""What a model file says, as plain nouns: nothing of protobuf is left, and nothing is inferred yet.

    Model
    ├── Body            the graph, and every subgraph (branches of If): ordered, live calls over tensor names
    │   └── Call            one operator or function applied
    └── Function        model-local, called by (domain, name, overload)

An `Expansion` is a piece of program that stands for one call: a function's body, a schema's body, an upgrade. Names in
it are its own, so inlining renames nothing: it is evaluated in a scope of its own. Every name is data from the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from compiler.errors import MalformedModel
from compiler.ir.border import AS_IT_IS, Outside
from compiler.ir.graph import Attr
from compiler.ir.tensor import DType

OLDEST_OPSET, NEWEST_OPSET = 1, 28
OLDEST_IR, NEWEST_IR = 3, 14


@dataclass(frozen=True)
class Reference:
    """An attribute inside a function that takes the value of the function's attribute `name`."""

    name: str


@dataclass(frozen=True)
class Foreign:
    """An attribute or constant that exists in ONNX but not here; `what` says what it is, after "it is"."""

    what: str


AttrValue: TypeAlias = "Attr | np.ndarray | Reference | Foreign | Body"


@dataclass(frozen=True)
class Call:
    """One operator applied.

    An absent optional input or output is the empty name; `source` names the node in messages.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    domain: str = ""
    overload: str = ""
    source: str = ""

    @property
    def operator(self) -> str:
        """The operator's name with its domain, unless that is ai.onnx."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    @property
    def bodies(self) -> tuple[Body, ...]:
        """Subgraphs among the attributes."""
        return tuple(value for value in self.attrs.values() if isinstance(value, Body))

    @property
    def reads(self) -> tuple[str, ...]:
        """Names read, those captured by subgraphs included."""
        captured = [name for body in self.bodies for name in sorted(body.captured)]
        return (*(name for name in self.inputs if name), *captured)


@dataclass(frozen=True)
class Input:
    """A graph input.

    A dimension is an int, a symbol's name, or None where the file says nothing; shape None: not even the rank.
    """

    name: str
    dtype: DType | None
    shape: tuple[int | str | None, ...] | None
    what: str = "a tensor"
    """The ONNX type in words that follow "it is", for the refusal of what has no DType."""
    is_text: bool = False
    """Whether its elements are strings, of which the program takes the numbers."""
    holds: Input | None = None
    """Of a sequence or an optional, the tensors in it; such an input has no dtype itself."""
    is_sequence: bool = False
    is_optional: bool = False


def key_of(entry: Input, axis: int) -> str:
    """What a dimension that is no number is called: its name, or for one without a name the input's and the axis."""
    assert entry.shape is not None
    dim = entry.shape[axis]
    return dim if isinstance(dim, str) else f"{entry.name}.{axis}"


@dataclass(frozen=True)
class Body:
    """A graph or subgraph: `calls` are ordered so that names are defined before they are read, and all are needed."""

    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    calls: tuple[Call, ...]
    constants: Mapping[str, np.ndarray | Foreign]
    captured: frozenset[str] = frozenset()
    """Names read here and defined outside."""
    declared: Mapping[str, tuple[int | str | None, ...]] = field(default_factory=dict)
    """Shapes that the file claims for outputs."""


@dataclass(frozen=True)
class Function:
    """A model-local function; `defaults` holds the attributes that have one."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: Mapping[str, AttrValue]
    calls: tuple[Call, ...]
    opsets: Mapping[str, int]


FunctionKey = tuple[str, str, str]
"""Domain, name, overload."""


@dataclass(frozen=True)
class Model:
    """A model file after reading."""

    body: Body
    functions: Mapping[FunctionKey, Function]
    opsets: Mapping[str, int]
    digest: str
    """SHA-256 (hex) of the model file."""
    outside: Outside = AS_IT_IS
    """What callers give in another form than `body` takes."""


@dataclass(frozen=True)
class Expansion:
    """Calls that stand for one call: `inputs` and `outputs` are bound to the caller's by position."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: tuple[Call, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=lambda: {"": NEWEST_OPSET})


def quoted(name: str) -> str:
    """A name from the model as it may stand in a message: escaped, quoted, cut at 100 characters."""
    return repr(name if len(name) <= 100 else name[:97] + "...")


def text(name: str | bytes) -> str:
    """A string field of the file; protobuf hands out bytes where it is not UTF-8. Raises MalformedModel for those."""
    if isinstance(name, bytes):
        raise MalformedModel(f"the name {name[:60]!r} is not UTF-8 text", fix="rename it, or export the model again")
    return name
