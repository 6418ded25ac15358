"""Rotary position embeddings as com.microsoft has them: by tables of cosines and sines of positions.

Source: Su et al., RoFormer, 2021; for the layout of halves and pairs, ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.fused import AGAIN, real
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.ops.operator import Unsupported


def rotated(composition: Composition, x: str, tables: tuple[str, str], half: int, width: int, pairs: bool) -> str:
    """The first 2 half of each head's `width` elements rotated, the others as they are.

    x        [B, N, S, width]
    tables   cosines and sines, each [1 or B, 1, S, half]
    pairs    whether neighbours are rotated together; else an element of each half
    """
    call, ints = composition.call, composition.ints
    cos, sin = tables
    rest = ""
    if width != 2 * half:
        rest = call("Slice", x, ints(2 * half), ints(width), ints(3))
        x = call("Slice", x, ints(0), ints(2 * half), ints(3))
    if pairs:
        apart = call("Reshape", x, ints(0, 0, 0, half, 2), allowzero=0)
        one, other = (call("Gather", apart, composition.constant(np.array(at, np.int64)), axis=4) for at in (0, 1))
    else:
        one, other = (call("Slice", x, ints(begin), ints(begin + half), ints(3)) for begin in (0, half))
    left = call("Sub", call("Mul", one, cos), call("Mul", other, sin))
    right = call("Add", call("Mul", one, sin), call("Mul", other, cos))
    if pairs:
        joined = call("Concat", *(call("Unsqueeze", part, ints(4)) for part in (left, right)), axis=4)
        y = call("Reshape", joined, ints(0, 0, 0, 2 * half), allowzero=0)
        return call("Concat", y, rest, axis=3) if rest else y
    return call("Concat", left, right, *((rest,) if rest else ()), axis=3)


def at_positions(composition: Composition, tables: tuple[str, str], positions: str) -> tuple[str, str]:
    """Rows of tables [positions, half] at positions [1 or B, S], as [1 or B, 1, S, half]."""
    cos, sin = (
        composition.call("Unsqueeze", composition.call("Gather", name, positions, axis=0), composition.ints(1))
        for name in tables
    )
    return cos, sin


def rotary(site: Site) -> Expansion:
    """RotaryEmbedding: [B, S, N h] or [B, N, S, h], positions [1] or [B, S], cosines and sines [positions, r / 2].

    r is h, or `rotary_embedding_dim` where only that many elements of a head are rotated.
    """
    if site.integer("is_packed_batching", 0):
        raise Unsupported("attribute 'is_packed_batching' is set", AGAIN)
    composition = Composition(site)
    call, ints = composition.call, composition.ints
    kind, half = site.first, site.given(2).shape[-1]
    if real(site, "scale", 1.0) != 1.0 or kind.rank not in (3, 4) or not isinstance(half, int):
        raise Unsupported(f"it scales, or {kind} has neither 3 nor 4 axes", AGAIN)
    heads, last = site.integer("num_heads", 0), kind.shape[-1]
    width: int = 2 * half
    if kind.rank == 4 or (site.integer("rotary_embedding_dim", 0) and heads > 0):
        if not isinstance(last, int):
            raise Unsupported(f"the last axis of {kind} is not known", "bind that dimension to a number")
        width = last if kind.rank == 4 else last // heads
    wanted = site.integer("rotary_embedding_dim", 0) or width
    if wanted != 2 * half or width < wanted:
        raise Unsupported(f"{kind} has no heads of {2 * half}", AGAIN)
    x = "x0"
    if kind.rank == 3:
        x = call("Transpose", call("Reshape", x, ints(0, 0, -1, width), allowzero=0), perm=(0, 2, 1, 3))
    places = "x1"
    if site.given(1).rank == 1:
        zero, one = (composition.constant(np.array(item, np.int64)) for item in (0, 1))
        length = call("Squeeze", call("Shape", x, start=2, end=3), ints(0))
        places = call("Unsqueeze", call("Add", call("Range", zero, length, one), call("Cast", "x1", to=7)), ints(0))
    tables = at_positions(composition, ("x2", "x3"), places)
    y = rotated(composition, x, tables, half, width, bool(site.integer("interleaved", 0)))
    if kind.rank == 3:
        y = call("Reshape", call("Transpose", y, perm=(0, 2, 1, 3)), ints(0, 0, -1), allowzero=0)
    return composition.gives(y)
