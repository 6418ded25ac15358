"""A value that is computed once for each object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 (a decorator, as functools.cached_property is)
    """`functools.cached_property` without the lock that it takes before Python 3.12.

    For functions without side effects, on objects whose values are asked for often. Two threads may both compute one.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, one: None, owner: type) -> once[T]: ...

    @overload
    def __get__(self, one: object, owner: type) -> T: ...

    def __get__(self, one: object | None, owner: type) -> once[T] | T:
        if one is None:
            return self
        value = one.__dict__[self.name] = self.function(one)
        return value


class Nested:
    """A frozen dataclass that holds others. Its hash is computed once, and is no part of what another process is sent.

    Its fields are what it is made of: a subclass says `_hash` by `once`, and returns it as `__hash__`.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
