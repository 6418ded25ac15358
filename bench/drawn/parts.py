"""What drawn layers share: one of several choices, and an activation."""

from __future__ import annotations

from typing import TypeVar

from bench.zoo.builder import GraphBuilder, Value

T = TypeVar("T")


def pick(g: GraphBuilder, *options: T) -> T:
    """One of the options."""
    return options[int(g.rng.integers(len(options)))]


def activated(g: GraphBuilder, x: Value) -> Value:
    """With one of the functions that end layers, or none."""
    end = pick(g, None, g.relu, g.relu6, g.gelu, g.silu, g.hard_swish, g.tanh)
    return end(x) if end else x
