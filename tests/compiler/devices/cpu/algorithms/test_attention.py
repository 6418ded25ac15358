"""Attention as exporters write it, fused to one kernel and lowered under any tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.codegen.calls import geometry
from compiler.devices.cpu.algorithms.attention import attention_tiles
from compiler.devices.cpu.target import CpuTarget, resolve, this_machine
from compiler.forms.attention import as_attention
from compiler.fuse import fuse
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.evaluate import evaluate
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case, Library, draws
from tests.compiler.devices.cpu.wide import in_float64
from tests.compiler.fuse.test_fuse import agrees
from tests.compiler.networks import Network, graph_of

LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Form:
    """How attention is written: sizes, where the scale stands, which mask there is, how operands and result lie."""

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    columns: int
    scale: str
    mask: str
    projected: bool
    """Operands are [batch, tokens, heads * depth], split and transposed, and so is the result; else [batch, heads,
    tokens, depth].
    """
    rounded: bool = False
    """The result is rounded to bytes, as in a quantised model."""


def forms() -> st.SearchStrategy[Form]:
    return st.builds(
        Form,
        batch=st.sampled_from([1, 1, 2]),
        heads=st.integers(1, 3),
        queries=st.sampled_from([4, 5, 16, 29, 33, 58]),
        keys=st.sampled_from([2, 7, 16, 40, 65, 100]),
        depth=st.sampled_from([2, 3, 8, 16, 20, 33]),
        columns=st.sampled_from([2, 8, 16, 20, 65]),
        scale=st.sampled_from(["none", "before", "after"]),
        mask=st.sampled_from(["none", "keys", "full", "causal", "hidden"]),
        projected=st.booleans(),
    )


def graph(form: Form) -> Graph:
    """A network of one attention layer."""
    net = Network()
    queries = _operand(net, form, form.queries, form.depth)
    keys = _operand(net, form, form.keys, form.depth)
    values = _operand(net, form, form.keys, form.columns)
    lead = (form.batch, form.heads)
    if form.scale == "before":
        queries = net.node("Mul", [queries, net.constant(np.array(0.3, np.float32))], net.shapes[queries])
    turned = net.node("Transpose", [keys], (*lead, form.depth, form.keys), perm=[0, 1, 3, 2])
    shape = (*lead, form.queries, form.keys)
    scores = net.node("MatMul", [queries, turned], shape)
    if form.scale == "after":
        scores = net.node("Div", [scores, net.constant(np.array(1.7, np.float32))], shape)
    scores = _masked(net, form, scores)
    weights = net.node("Softmax", [scores], shape, axis=-1)
    mixed = net.node("MatMul", [weights, values], (*lead, form.queries, form.columns))
    if form.rounded:
        step, zero = net.constant(np.array(0.05, np.float32)), net.constant(np.array(120, np.uint8))
        mixed = net.node("QuantizeLinear", [mixed, step, zero], net.shapes[mixed])
    if form.projected:
        wide = (form.batch, form.queries, form.heads, form.columns)
        mixed = net.node("Transpose", [mixed], wide, perm=[0, 2, 1, 3])
        flat = (form.batch, form.queries, form.heads * form.columns)
        mixed = net.node("Reshape", [mixed, net.constant(np.array(flat))], flat)
    return graph_of(net.model([mixed]))


def _operand(net: Network, form: Form, tokens: int, width: int) -> str:
    if not form.projected:
        return net.input(form.batch, form.heads, tokens, width)
    x = net.input(form.batch, tokens, form.heads * width)
    split = (form.batch, tokens, form.heads, width)
    parts = net.node("Reshape", [x, net.constant(np.array(split))], split)
    return net.node("Transpose", [parts], (form.batch, form.heads, tokens, width), perm=[0, 2, 1, 3])


def _masked(net: Network, form: Form, scores: str) -> str:
    shape, random = net.shapes[scores], np.random.default_rng(form.keys)
    if form.mask == "keys":
        return net.node("Add", [scores, net.input(form.batch, 1, 1, form.keys)], shape)
    if form.mask == "full":
        return net.node("Add", [net.input(form.queries, form.keys), scores], shape)
    if form.mask == "causal":
        allowed = net.constant(np.tril(np.ones((1, 1, form.queries, form.keys), np.bool_)))
        return net.node("Where", [allowed, scores, net.constant(np.array(LOWEST, np.float32))], shape)
    if form.mask == "hidden":
        hidden = np.where(random.random((form.queries, form.keys)) < 0.4, -np.inf, 0).astype(np.float32)
        hidden[:, -1] = 0
        return net.node("Add", [scores, net.constant(hidden)], shape)
    return scores


def fused(form: Form) -> tuple[KernelGraph, Call]:
    """The kernels of a layer, and the call that is attention."""
    kernels = fuse(graph(form)).kernels
    calls = [call for call in kernels.calls if as_attention(call.kernel)]
    assert len(calls) == 1, f"{form}\n{kernels}"
    return kernels, calls[0]


def test_attention_is_one_kernel_that_means_what_the_network_says() -> None:
    for form in draws(forms(), 30):
        kernels = agrees(graph(form))
        assert sum("Softmax" in call.kernel.family for call in kernels.calls) == 1
        assert not any(call.kernel.family in ("MatMul", "Softmax") for call in kernels.calls), f"{form}\n{kernels}"


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget) -> Case:
    """The fused kernel on buffers as the graph has them, under a tile that is proposed or any other."""
    kernels, call = fused(draw(forms()))
    assert isinstance(call.kernel, Kernel)
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    inputs = tuple(
        kernels.constants.get(id, random.normal(size=slot.type.dims).astype(np.float32))
        for id, slot in zip(call.inputs, call.kernel.inputs, strict=True)
    )
    buffers = tuple(geometry(kernels.buffers[id]) for id in (*call.inputs, *call.outputs))
    constant = tuple(at for at, id in enumerate(call.inputs) if id in kernels.constants)
    cuts = tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    case = Case(call.kernel, buffers, inputs, constant=constant, cuts=cuts)
    options = [option.tile for option in attention_tiles(case.workload, target, draw(st.sampled_from([1, 2])))]
    return replace(case, tile=draw(st.one_of(st.sampled_from(options), odd_tiles(target))))


@st.composite
def odd_tiles(draw: st.DrawFn, target: CpuTarget) -> Tile:
    """Small blocks, so that there are many of queries and of keys, of which the last ones are shorter."""
    panel = draw(st.integers(1, 3)) * target.vector_floats
    block, rows = draw(st.integers(3, 12)), draw(st.integers(1, 6))
    return Tile(
        "attention",
        (
            Level("lane", (("m", draw(st.integers(5, 40))),)),
            Level("block", (("m", block), ("n", panel * draw(st.integers(1, 2))))),
            Level("register", (("m", rows), ("n", panel))),
            Level("vector", (("m", draw(st.integers(1, 6))), ("n", draw(st.integers(1, 2)) * target.vector_floats))),
        ),
    )


def check(drawn: Sequence[Case], target: CpuTarget) -> None:
    library = Library.of(drawn, target, optimise="-O1")
    for number, case in enumerate(drawn):
        (got,), (want,) = library.run(number, case), in_float64(case.kernel, case.inputs)
        description = f"{case}\n{library.lowered[number].text}"
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * float(np.abs(want).max()), err_msg=description)


def test_attention_under_any_tile_split_anywhere_means_what_it_says() -> None:
    drawn = draws(cases(this_machine()), 40)
    blocks = [case.tile.extent("block", "n") < case.kernel.temps[0].type.dims[-1] for case in drawn]
    assert any(blocks), "no case takes its softmax online"
    check(drawn, this_machine())


@pytest.mark.parametrize("profile", ["cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_attention_is_right_with_narrower_vectors(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    check(draws(cases(target), 10), target)


@pytest.mark.parametrize("projected", [False, True])
def test_results_that_a_quantised_model_rounds_are_stored_as_bytes(projected: bool) -> None:
    """Rounding in fp32 may fall to the other side of a tie, which one element in hundreds is near to at most."""
    form = Form(1, 2, 29, 40, 16, 20, "after", "none", projected, rounded=True)
    kernels, call = fused(form)
    assert isinstance(call.kernel, Kernel)
    assert not any("Quantize" in one.kernel.family for one in kernels.calls if one is not call)
    random = np.random.default_rng(form.keys)
    inputs = tuple(
        kernels.constants.get(id, random.normal(size=slot.type.dims).astype(np.float32))
        for id, slot in zip(call.inputs, call.kernel.inputs, strict=True)
    )
    case = Case(call.kernel, tuple(kernels.buffers[id] for id in (*call.inputs, *call.outputs)), inputs)
    case = replace(case, tile=attention_tiles(case.workload, this_machine(), 1)[0].tile)
    (got,), (want,) = Library.of([case], this_machine(), "-O1").run(0, case), evaluate(case.kernel, inputs)
    apart = np.abs(got.astype(int) - want.astype(int))
    assert got.dtype == np.uint8
    assert np.ptp(want) > 20
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= apart.size // 200
