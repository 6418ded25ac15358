"""Tables of bytes in vectors: behind a product, in a register, and in plain loops over memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, runs_here
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, case_of, check
from tests.compiler.rewrite.sketch import Sketch

TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
"""One target for each width of vectors."""
KINDS = [(DType.U8, DType.I8), (DType.I8, DType.U8)]


def table(s: Sketch, dtype: DType) -> int:
    return s.c(s.rng.permutation(256).astype(np.uint8).view(dtype.numpy), dtype)


def alone(x: DType, y: DType) -> Graph:
    s = Sketch(1, DType.F32)
    return s.graph(s("ByteTable", s.x(5, 41, dtype=x), table(s, y)))


def behind_a_product(x: DType, y: DType) -> Graph:
    s = Sketch(2, DType.F32)
    weights = s.c(s.rng.integers(-128, 128, (9, 41)), DType.I8)
    sums = s("Cast", s("MatMulInteger", s.x(5, 9, dtype=DType.U8), weights), to=1)
    scaled = s("Mul", sums, s.c(2.0**-8))
    return s.graph(s("ByteTable", s("QuantizeLinear", scaled, s.c(1.0), s.c(3, x)), table(s, y)))


def cases(width: int) -> list[Case]:
    found = []
    for graph in (make(*kind) for make in (alone, behind_a_product) for kind in KINDS):
        (image,) = graph.inputs
        limits = np.iinfo(graph.type(image).dtype.numpy)
        given = np.random.default_rng(3).integers(limits.min, limits.max + 1, graph.type(image).dims)
        case = case_of(graph, given.astype(graph.type(image).dtype.numpy))
        found.append(replace(case, tile=legal_tiles(case.workload, TARGETS[width], 1, "fp32")[0].tile))
    return found


@pytest.mark.parametrize("width", TARGETS)
def test_they_give_what_their_definition_does(width: int) -> None:
    drawn = cases(width)
    assert all("tw_table" in lower("k", one.workload, one.tile, TARGETS[width]).text for one in drawn)
    check(drawn, TARGETS[width], "-O1")
