"""Values that options are given: sizes and ranges of dimensions, bindings of them, specs of inputs."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    StrictBool,
    StrictInt,
    StrictStr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic.dataclasses import dataclass

from compiler.contract.refusals import Refused, refusal

MAX_RANK = 8
"""Of the value of an input."""
MAX_BINDINGS = 32
"""Of one artifact: each is compiled, proved and stored as a program of its own."""
CONFIG = ConfigDict(extra="forbid")


def _as_given(value: Any, check: Callable[[Any], Any]) -> Any:
    check(value)
    return value


def _numbers(value: Any) -> Any:
    """The value with lists as tuples. Raises ValueError where it is no number, boolean or box of them."""
    if value is not None:
        _box(value)
    return _tuples(value)


def _box(value: Any, depth: int = 0) -> tuple[int, ...]:
    """The shape of a number (none) or of lists of numbers, all lists of one depth equally long."""
    if isinstance(value, bool | int | float):
        return ()
    if not isinstance(value, list | tuple) or depth == MAX_RANK:
        raise ValueError("a number, a boolean or lists of them are wanted")
    inner = {_box(item, depth + 1) for item in value} or {()}
    if len(inner) > 1:
        raise ValueError("lists of one length are wanted")
    return (len(value), *inner.pop())


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _whole_spec(value: Any) -> Any:
    return {"shape": value} if isinstance(value, list | tuple) else value


def unchangeable(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A copy that cannot be changed."""
    return MappingProxyType(dict(given))


def bindings_of(value: Any) -> Any:
    """One binding as a mapping; several, spelled out, as a tuple of mappings without repetition."""
    given = list(value) if isinstance(value, list | tuple) else [value]
    found: list[OpenBinding] = []
    for spelled in itertools.chain.from_iterable(map(_spelled_out, given)):
        bound = unchangeable(_BINDING.validate_python(spelled))
        if bound not in found:
            found.append(bound)
        if (count := len(with_exact(found))) > MAX_BINDINGS:
            raise _too_many(count)
    if not found:
        fix = 'give a value for each name, such as {"batch": [1, 8]}, or leave dims out'
        raise Refused("nothing is bound by an empty list", fix)
    return found[0] if len(found) == 1 else tuple(found)


def _spelled_out(binding: Any) -> list[Any]:
    """Every combination of the values listed for each name, the last name's values changing first."""
    if not isinstance(binding, Mapping) or not any(isinstance(value, list | tuple) for value in binding.values()):
        return [binding]
    lists = [list(value) if isinstance(value, list | tuple) else [value] for value in binding.values()]
    if (count := math.prod(map(len, lists))) > MAX_BINDINGS:
        raise _too_many(count)
    return [dict(zip(binding, values, strict=True)) for values in itertools.product(*lists)]


def with_exact(given: Sequence[OpenBinding]) -> list[OpenBinding]:
    """The bindings, each that has a range behind the exact one at its opt; none is there twice."""
    found: list[OpenBinding] = []
    for one in given:
        exact = unchangeable({name: value.opt if isinstance(value, DimRange) else value for name, value in one.items()})
        found += [each for each in ((exact,) if exact == one else (exact, one)) if each not in found]
    return found


def _size(value: Any) -> int | DimRange:
    """A number, or a range of more than one."""
    if isinstance(value, DimRange):
        value = value.to_json()
    if not isinstance(value, Mapping):
        return _NUMBER.validate_python(value)
    if not {"min", "max"} <= value.keys() <= {"min", "opt", "max"}:
        raise Refused("a range has min, max and perhaps opt", f"give a range such as {json.dumps(RANGE)}")
    found = _RANGE.validate_python(value)
    opt = found.max if found.opt is None else found.opt
    if not found.min <= opt <= found.max:
        raise Refused("min <= opt <= max does not hold", f"give a range such as {json.dumps(RANGE)}")
    if found.max < 1:
        raise Refused("nothing is in a range whose max is 0", "use a max of 1 or more")
    return found.max if found.min == found.max else DimRange(found.min, opt, found.max)


def _too_many(count: int) -> Refused:
    said = f"there are {count} or more bindings, and an artifact holds {MAX_BINDINGS} at most"
    return Refused(said, "bind fewer values, or compile several artifacts")


AS_GIVEN = WrapValidator(_as_given)
"""Keeps a whole number that stands for a float as it was given: the cache key is over the JSON text, in which 20 is not
20.0."""
Dimension = Annotated[StrictInt, Field(ge=0)]
Bound = Annotated[StrictInt, Field(ge=1)]
Binding = Mapping[str, Dimension]
"""By name of a symbolic dimension: its value."""
RANGE = {"min": 1, "opt": 4, "max": 16}
"""An example."""


@plain_dataclass(frozen=True)
class DimRange:
    """Sizes of a symbolic dimension: `low` <= size <= `high`, and `opt`, for which a program of its own is made."""

    low: int
    opt: int
    high: int

    def to_json(self) -> dict[str, int]:
        """As options give it."""
        return {"min": self.low, "opt": self.opt, "max": self.high}

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"


@dataclass(frozen=True, config=CONFIG)
class GivenRange:
    """A range as it is asked for; without `opt` that is `max`."""

    min: Dimension
    max: Dimension
    opt: Dimension | None = None


OpenBinding = Mapping[str, Annotated[int | DimRange, PlainValidator(_size)]]
"""As Binding, with ranges for some of the values."""
GivenBinding = Mapping[str, Dimension | GivenRange | list[Dimension | GivenRange]]
_NUMBER: TypeAdapter[int] = TypeAdapter(Dimension)
_RANGE: TypeAdapter[GivenRange] = TypeAdapter(GivenRange)
_BINDING: TypeAdapter[OpenBinding] = TypeAdapter(OpenBinding)
Name = Annotated[StrictStr, StringConstraints(pattern=r"^[a-z0-9_]{1,64}$")]
Numbers = Annotated[
    float | int | bool | tuple[Any, ...] | None,
    PlainValidator(_numbers, json_schema_input_type=StrictBool | float | list[Any] | None),
]


@dataclass(frozen=True, config=CONFIG)
class InputSpec:
    """How one graph input is bound: its whole shape, and for one that must be known when compiling its value.

    The value is one number for every element, or nested lists of them that also say the shape.
    """

    shape: tuple[Dimension, ...] | None = None
    value: Numbers = None

    def __post_init__(self) -> None:
        if isinstance(self.value, tuple) and self.shape is None:
            object.__setattr__(self, "shape", _box(self.value))


Spec = Annotated[InputSpec, BeforeValidator(_whole_spec, json_schema_input_type=list[Dimension] | InputSpec)]


@dataclass(frozen=True, config=CONFIG)
class Refusing:
    """What all options share: a refusal names all that is wrong, and what to write instead."""

    @model_validator(mode="wrap")
    @classmethod
    def _refuse(cls, given: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return check(given)
        except ValidationError as error:
            raise refusal(error, cls) from None

    @classmethod
    def from_json(cls, plain: Any) -> Self:
        """Options from a request body. Raises `OptionsError` naming the fields that are wrong, and the fix of each."""
        return TypeAdapter(cls).validate_python(plain)


def dims_json(binding: Mapping[str, int | DimRange]) -> dict[str, Any]:
    """A binding as options give it, sorted by name."""
    return {name: size.to_json() if isinstance(size, DimRange) else size for name, size in sorted(binding.items())}
