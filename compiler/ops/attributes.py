"""Attributes read as what they are: lists of ints, numbers, words, sets of axes."""

from __future__ import annotations

from compiler.ir.graph import Node
from compiler.ops.operator import Unsupported


def ints(node: Node, name: str) -> tuple[int, ...] | None:
    """An attribute that is a list of ints (a single number is a list of one); None where it is absent.

    Raises Unsupported where it is something else.
    """
    value = node.attrs.get(name)
    if value is None:
        return None
    items = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(item, int) for item in items):
        raise Unsupported(f"attribute {name!r} is {value!r:.80}, which are no integers", "export the model again")
    return tuple(int(item) for item in items if isinstance(item, int))


def number_of(node: Node, name: str, default: float) -> float:
    """An attribute that is one number, or a list of one. Raises Unsupported where it is something else."""
    value = node.attrs.get(name)
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if value is None:
        return default
    if not isinstance(value, int | float):
        raise Unsupported(f"attribute {name!r} is {value!r:.80}, which is no number", "export the model again")
    return value


def word_of(node: Node, name: str, *words: str) -> str:
    """An attribute that is one of some words, the first one where it is absent.

    Raises Unsupported, which lists them, where it is something else.
    """
    value = node.attrs.get(name, words[0])
    if value not in words:
        raise Unsupported(f"{name} is {value!r:.80}", f"use {', '.join(words[:-1])} or {words[-1]}")
    return str(value)


def axes_of(node: Node, rank: int, name: str = "axes") -> tuple[int, ...] | None:
    """An attribute that is a list of axes, counted from 0, in the order given; None where it is absent.

    Raises Unsupported where an axis does not exist or is named twice.
    """
    values = ints(node, name)
    if values is None:
        return None
    if any(not -rank <= value < rank for value in values):
        raise Unsupported(f"{name} {list(values)} are not all axes of a tensor of rank {rank}", "export with its axes")
    axes = tuple(value % rank for value in values)
    if len(set(axes)) != len(axes):
        raise Unsupported(f"{name} {list(values)} name an axis twice", "name each axis once")
    return axes
