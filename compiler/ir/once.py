"""A value that is computed once for each object."""

from __future__ import annotations

from collections.abc import Callable
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
