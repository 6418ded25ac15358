"""Profiles of accelerators: which operators they carry out, under which constraints, and what work costs them.

A profile is a TOML file (docs/accelerators.md has the fields). Those of this package lie in `profiles`; a user's own is
given as a path. Operators are named as ONNX names them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from compiler.contract.legalisation import PROFILES
from compiler.errors import OptionsError, Refusal
from compiler.ir.graph import Node
from compiler.ir.tensor import TensorType
from compiler.ops import OPERATORS
from compiler.ops.attributes import ints

FOLDER = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class Constraint:
    """What a node must keep for the accelerator to carry it out; None and empty: anything.

    rank, kernel, stride, channels, elements  the largest rank of an operand, extent of a window, stride, number of
                        channels (axis 1) of an operand, number of elements of the result
    batch               the largest first extent of operands of rank 4
    dilation            the largest dilation
    group               `one`: no groups; `depthwise`: one, or as many as there are channels; `any`
    values              for an attribute, the values that it may have
    constant            positions of inputs that must be constants
    innermost           only so many innermost extents of an operand may be above 1
    """

    rank: int | None = None
    kernel: int | None = None
    stride: int | None = None
    dilation: int | None = None
    channels: int | None = None
    elements: int | None = None
    batch: int | None = None
    innermost: int | None = None
    group: str = "any"
    constant: tuple[int, ...] = ()
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    why: str = ""


LIMITS = ("rank", "kernel", "stride", "dilation", "channels", "elements", "batch", "innermost")
GROUPS = ("one", "depthwise", "any")


@dataclass(frozen=True)
class Cost:
    """Numbers of the cost formula (`compiler.legalise.placement`), per second and in bytes.

    macs, elements   multiply-accumulates and elements of results of other operators, per second, on the accelerator
    call             seconds of a hand-over to the accelerator
    sent, received   bytes per second of what is brought to the accelerator, and back
    memory           bytes of weights that stay on the chip; what is above is brought at `streamed` bytes per second
    bytes            of an element as the accelerator stores it
    """

    macs: float
    elements: float
    call: float
    sent: float
    received: float
    memory: float
    streamed: float
    bytes: int = 1


PARTS = ("any", "first")


@dataclass(frozen=True)
class Profile:
    """An accelerator. `parts` is `first` where one part alone is compiled, which ends at the first other operator."""

    name: str
    about: str
    sources: tuple[str, ...]
    dtypes: tuple[str, ...]
    parts: str
    cost: Cost
    operators: Mapping[str, Constraint]

    def refusal(self, node: Node, types: Mapping[int, TensorType], constants: Mapping[int, np.ndarray]) -> str | None:
        """Why the accelerator does not carry out a node, as a sentence; None where it does."""
        constraint = self.operators.get(node.op)
        if constraint is None:
            return f"{self.name} has no {node.op}"
        fault = _fault(node, constraint, types, constants)
        if fault is None:
            for value in (*node.used, *node.outputs):
                dtype = types[value].dtype
                if value not in constants and dtype.value not in self.dtypes:
                    return f"{self.name}'s {node.op} takes {', '.join(self.dtypes)}, not {dtype}"
            return None
        return f"{self.name}'s {node.op} has {fault}" + (f" ({constraint.why})" if constraint.why else "")


def _fault(
    node: Node, limit: Constraint, types: Mapping[int, TensorType], constants: Mapping[int, np.ndarray]
) -> str | None:
    moving = [types[value].dims for value in (*node.used, *node.outputs) if value not in constants]
    for position in limit.constant:
        if position < len(node.inputs) and (value := node.inputs[position]) is not None and value not in constants:
            return f"a constant as input {position}"
    windows = ints(node, "kernel_shape") or ()
    if not windows and node.op in ("Conv", "ConvTranspose"):
        windows = types[node.used[1]].dims[2:]
    if node.op == "GlobalAveragePool":
        windows = moving[0][2:]
    strides, dilations = ints(node, "strides") or (), ints(node, "dilations") or ()
    most = {
        "rank": (max(map(len, moving), default=0), f"at most {limit.rank} dimensions"),
        "kernel": (max(windows, default=1), f"windows of at most {limit.kernel}"),
        "stride": (max(strides, default=1), f"strides of at most {limit.stride}"),
        "dilation": (max(dilations, default=1), f"dilations of at most {limit.dilation}"),
        "channels": (
            max((dims[1] for dims in moving if len(dims) > 1), default=1),
            f"at most {limit.channels} channels",
        ),
        "elements": (max((math.prod(dims) for dims in moving), default=0), f"at most {limit.elements} elements"),
        "batch": (max((dims[0] for dims in moving if len(dims) > 3), default=1), f"a batch of at most {limit.batch}"),
        "innermost": (
            max((len(dims) - _first_above_one(dims) for dims in moving), default=0),
            f"only its {limit.innermost} innermost dimensions above 1",
        ),
    }
    for name, (found, said) in most.items():
        bound = getattr(limit, name)
        if bound is not None and found > bound:
            return f"{said}, not {found}"
    group = node.attrs.get("group", 1)
    if group != 1 and limit.group != "any":
        channels, made = types[node.used[0]].dims[1], types[node.outputs[0]].dims[1]
        if limit.group == "one" or not (group == channels and made % channels == 0):
            return f"{'no groups' if limit.group == 'one' else 'one group, or one for each channel'}, not {group}"
    for name, allowed in limit.values.items():
        found_value = _attribute(node, name, types, constants)
        if found_value not in allowed:
            return f"{name} of {' or '.join(map(str, allowed))}, not {found_value}"
    return None


def _first_above_one(dims: tuple[int, ...]) -> int:
    return next((at for at, dim in enumerate(dims) if dim > 1), len(dims))


def _attribute(node: Node, name: str, types: Mapping[int, TensorType], constants: Mapping[int, np.ndarray]) -> Any:
    """An attribute; `exponent` is a Pow's, `bounds` are a Clip's; `axis` and `axes` are counted from the end."""
    if name == "bounds":
        ends = [constants.get(value) if value is not None else None for value in (*node.inputs[1:], None, None)[:2]]
        return [None if end is None else float(end.reshape(-1)[0]) for end in ends]
    if name == "exponent":
        array = constants.get(node.used[1])
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else "a tensor"
    value = node.attrs.get(name)
    rank = types[node.used[0]].rank
    if name == "axis" and isinstance(value, int):
        return value - rank if value >= 0 else value
    if name == "axes":
        axes = sorted(axis % rank - rank for axis in ints(node, name) or range(rank))
        return "[" + ", ".join(map(str, axes)) + "]"
    return list(value) if isinstance(value, tuple) else value


def open_profile(name: str) -> Profile:
    """A profile of this package by its name, or a user's own by the path of its file.

    Raises OptionsError, which names each wrong field and what it must be.
    """
    path = FOLDER / f"{name}.toml" if name in PROFILES else Path(name)
    if path.suffix != ".toml" or not path.is_file():
        raise OptionsError(
            f"there is no accelerator profile {name!r:.100}",
            fix=f"take one of {', '.join(PROFILES)}, or the path of a .toml file",
        )
    return parse(fields_of(path), path.stem)


def as_given(profile: str | Mapping[str, Any]) -> Profile:
    """The profile of a request: by its name, or described by its fields. Raises OptionsError as `open_profile` does."""
    return open_profile(profile) if isinstance(profile, str) else parse(profile, str(profile.get("name", "described")))


def fields_of(path: Path) -> dict[str, Any]:
    """What a profile's file says. Raises OptionsError where it is no TOML."""
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionsError(f"{path.name} is no TOML: {error}", fix="mend the line that it names") from None


def parse(said: Mapping[str, Any], name: str) -> Profile:
    """A profile from what a file says. Raises OptionsError with every fault."""
    reader = _Reader()
    reader.unknown("", said, ("name", "about", "sources", "dtypes", "parts", "cost", "operators"))
    about = reader.text(said, "about")
    sources = reader.texts(said, "sources")
    dtypes = reader.texts(said, "dtypes")
    parts = said.get("parts", "any")
    if parts not in PARTS:
        reader.fault("parts", f"is {parts!r:.60}", f"write one of {', '.join(PARTS)}")
    cost = reader.cost(said.get("cost"))
    operators = reader.operators(said.get("operators"))
    if reader.faults:
        raise OptionsError(
            f"the accelerator profile {name!r:.100} has {len(reader.faults)} faults: {reader.faults[0].reason}",
            fix=reader.faults[0].fix,
            refusals=tuple(reader.faults),
        )
    assert cost is not None
    return Profile(name, about, sources, dtypes, parts, cost, operators)


class _Reader:
    def __init__(self) -> None:
        self.faults: list[Refusal] = []

    def fault(self, at: str, reason: str, fix: str) -> None:
        self.faults.append(Refusal(f"{at} {reason}", fix))

    def unknown(self, at: str, said: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in said:
            if key not in known:
                self.fault(f"{at}{key}", "is no field", f"remove it; the fields are {', '.join(known)}")

    def text(self, said: Mapping[str, Any], key: str) -> str:
        if not isinstance(said.get(key), str) or not said[key]:
            self.fault(key, "is missing", f'write {key} = "..."')
            return ""
        return str(said[key])

    def texts(self, said: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = said.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
            self.fault(key, "is no list of texts", f'write {key} = ["...", "..."]')
            return ()
        return tuple(value)

    def cost(self, said: Any) -> Cost | None:
        if not isinstance(said, dict):
            self.fault("cost", "is missing", "write a table [cost] with macs, elements, call, sent, received, memory")
            return None
        known = tuple(one.name for one in fields(Cost))
        self.unknown("cost.", said, known)
        faults = len(self.faults)
        for key in known:
            value = said.get(key, 1 if key == "bytes" else None)
            least = 0 if key in ("call", "memory") else 1e-300
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
                self.fault(
                    f"cost.{key}", f"is {value!r:.60}", f"write a number {'of at least' if not least else 'above'} 0"
                )
        return Cost(**said) if len(self.faults) == faults else None

    def operators(self, said: Any) -> dict[str, Constraint]:
        if not isinstance(said, dict) or not said:
            self.fault("operators", "is missing", "write a table for each operator, such as [operators.Conv]")
            return {}
        return {name: self.constraint(name, limits) for name, limits in said.items()}

    def constraint(self, name: str, said: Any) -> Constraint:
        at = f"operators.{name}"
        if name not in OPERATORS:
            self.fault(at, "is no operator of ONNX that is known here", "see `tilewright operators` for their names")
        if not isinstance(said, dict):
            self.fault(at, "is no table", f"write [{at}] with its limits below, or {at} = {{}}")
            return Constraint()
        self.unknown(f"{at}.", said, tuple(one.name for one in fields(Constraint)))
        for key in LIMITS:
            if key in said and (isinstance(said[key], bool) or not isinstance(said[key], int) or said[key] < 1):
                self.fault(f"{at}.{key}", f"is {said[key]!r:.60}", "write a whole number of at least 1")
        if said.get("group", "any") not in GROUPS:
            self.fault(f"{at}.group", f"is {said['group']!r:.60}", f"write one of {', '.join(GROUPS)}")
        constant, values = said.get("constant", []), said.get("values", {})
        if not isinstance(constant, list) or not all(isinstance(one, int) and one >= 0 for one in constant):
            self.fault(f"{at}.constant", "is no list of positions of inputs", "write it as [1]")
            constant = []
        if not isinstance(values, dict) or not all(isinstance(one, list) for one in values.values()):
            self.fault(f"{at}.values", "is no table of lists", 'write it as {mode = ["linear", "nearest"]}')
            values = {}
        if not isinstance(said.get("why", ""), str):
            self.fault(f"{at}.why", "is no text", "write a sentence, or leave it out")
        limits = {key: said[key] for key in (*LIMITS, "group", "why") if key in said}
        return Constraint(**limits, constant=tuple(constant), values={key: tuple(one) for key, one in values.items()})
