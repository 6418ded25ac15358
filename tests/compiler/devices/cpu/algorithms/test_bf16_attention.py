"""Attention by dot products of pairs of bf16: operands of both products are rounded, nothing else is lost."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.codegen.build import find_toolchain
from compiler.codegen.calls import geometry
from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.algorithms.bf16_attention import bf16_attention_tiles
from compiler.devices.cpu.attention.cuts import KEYS
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here
from compiler.forms.attention import as_attention
from compiler.ir.expr import Expr, Load
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.algorithms import test_attention
from tests.compiler.devices.cpu.algorithms.test_attention import Form, fused, odd_tiles
from tests.compiler.devices.cpu.algorithms.test_bf16 import BF16_STEP, bf16
from tests.compiler.devices.cpu.library import Case, Library, bound, draws, loaded
from tests.compiler.devices.cpu.wide import in_float64
from tests.parse import parse_kernel

ABLE = [profile for profile in PROFILES if profile.multiplies_bf16 and not profile.has_tiles]
HERE = [profile.name for profile in ABLE if runs_here(profile)]
EXPONENTIAL = 2e-4
"""By how much a weight may be off, relative to it, beside its rounding: two exponentials, each off by 8e-5."""
PARTS = """
kernel Attention(in q: f32[2, 21, 3, 5], in k: f32[2, 37, 3, 5], in v: f32[2, 37, 19]; temp s: f32[2, 21, 37],
                 temp m: f32[2, 21], temp t: f32[2, 21], temp p: f32[2, 21, 37], temp w: f32[2, 21, 37];
                 out y: f32[2, 21, 19])
  for b:2, i:21
    for j:37: s[b, i, j] = sum<f32> c:3, d:5 . mul(q[b, i, c, d], k[b, j, c, d])
    m[b, i] = max<f32> j:37 . s[b, i, j]
    for j:37: p[b, i, j] = exp(sub(s[b, i, j], m[b, i]))
    t[b, i] = sum<f32> j:37 . p[b, i, j]
    for j:37: w[b, i, j] = mul(p[b, i, j], reciprocal(t[b, i]))
    for e:19: y[b, i, e] = sum<f32> j:37 . mul(w[b, i, j], v[b, j, e])
"""
"""A score is a sum over two axes."""


def networks(target: CpuTarget) -> st.SearchStrategy[Case]:
    """Attention as networks have it, under tiles of `attention`."""
    return test_attention.cases(target).map(lambda case: replace(case, tile=renamed(case.tile)))


@st.composite
def in_parts(draw: st.DrawFn, target: CpuTarget) -> Case:
    """Attention of two axes of depth, in buffers of any layout, under a tile that is proposed or any other."""
    case = replace(draw(bound(parse_kernel(PARTS))), cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))
    options = bf16_attention_tiles(case.workload, target, draw(st.sampled_from([1, 2, 7])))
    return replace(case, tile=draw(st.one_of(st.sampled_from(options).map(lambda one: one.tile), odd(target))))


def odd(target: CpuTarget) -> st.SearchStrategy[Tile]:
    """Small blocks of queries and keys."""
    return odd_tiles(target).map(renamed)


def renamed(tile: Tile) -> Tile:
    return replace(tile, algorithm="bf16_attention")


def check(drawn: Sequence[Case], target: CpuTarget) -> None:
    """Results are off by the rounding of operands; where these are bf16 as they are read, by that of weights alone."""
    plain = [all(isinstance(part, Load) for part in operands(case)) for case in drawn]
    assert {*plain} == {True, False}
    drawn = [rounded(case, short=at % 2 == 0) if plain[at] else case for at, case in enumerate(drawn)]
    library = Library.of(drawn, target, optimise="-O1")
    for number, case in enumerate(drawn):
        (got,), (want,) = library.run(number, case), in_float64(case.kernel, case.inputs)
        slack = 8 * BF16_STEP * np.abs(want).max()
        if plain[number]:
            slack = (BF16_STEP + EXPONENTIAL) * np.abs(values_of(case)).max()
        description = f"{case}\n{library.lowered[number].text}"
        np.testing.assert_allclose(got, want, rtol=0, atol=float(slack), err_msg=description)


def operands(case: Case) -> tuple[Expr, Expr, Expr]:
    """Queries, keys and values."""
    view = as_attention(case.kernel)
    assert view is not None
    return view.q, view.k, view.v


def rounded(case: Case, *, short: bool) -> Case:
    """With operands that are bf16, in memory too if `short` holds."""
    read = {load.slot for part in operands(case) for load in part.loads}
    at = {number for number, slot in enumerate(case.kernel.inputs) if slot.name in read}
    inputs = tuple(bf16(array) if number in at else array for number, array in enumerate(case.inputs))
    if not short:
        return replace(case, inputs=inputs)
    buffers = tuple(
        replace(one, element=DType.BF16) if number in at - {*case.constant} else one
        for number, one in enumerate(case.buffers)
    )
    return replace(case, inputs=inputs, buffers=buffers)


def values_of(case: Case) -> np.ndarray:
    """The input that is the values."""
    (slot,) = {load.slot for load in operands(case)[2].loads}
    return case.inputs[[one.name for one in case.kernel.inputs].index(slot)]


@pytest.mark.parametrize("name", HERE)
def test_attention_under_any_tile_split_anywhere_is_off_by_its_roundings(name: str) -> None:
    target = resolve(name)
    drawn = [*draws(networks(target), 18), *draws(in_parts(target), 8)]
    texts = [lower("k0_case", case.workload, case.tile, target).text for case in drawn]
    assert {"tw_transpose(square)" in text for text in texts} == {True, False}, "keys lie along either axis"
    assert any("expf(" in text for text in texts), "no case takes its softmax online"
    check(drawn, target)


def masked(hidden: np.ndarray) -> Case:
    """Queries of keys, of which some are hidden from some; without a tile."""
    queries, keys = hidden.shape
    kernels, call = fused(Form(1, 1, queries, keys, 16, 20, "none", "full", False))
    assert isinstance(call.kernel, Kernel)
    random = np.random.default_rng(1)
    inputs = tuple(
        np.where(hidden, -np.inf, 0).astype(np.float32)
        if slot.type.dims == hidden.shape
        else random.normal(size=slot.type.dims).astype(np.float32)
        for slot in call.kernel.inputs
    )
    return Case(call.kernel, tuple(geometry(kernels.buffers[id]) for id in (*call.inputs, *call.outputs)), inputs)


@pytest.mark.parametrize("name", HERE)
def test_hidden_keys_add_nothing_and_a_row_of_them_is_no_number(name: str) -> None:
    """Values of hidden keys may be as large as they like; keys of the first block may all be hidden."""
    target = resolve(name)
    hidden = np.zeros((40, 100), np.bool_)
    hidden[:, 1:64] = hidden[5, :99] = hidden[9] = True
    hidden[:, 0] = np.arange(40) % 2
    case = masked(hidden)
    options = [one.tile for one in bf16_attention_tiles(case.workload, target, 1)]
    tiles = [options[0], draws(odd(target), 1)[0]]
    assert tiles[1].extent("block", "n") < 100
    found = [replace(case, tile=tile) for tile in tiles]
    values = values_of(case)
    values[..., 1:64, :] = 1e30
    library = Library.of(found, target, "-O1")
    for number, one in enumerate(found):
        (got,), (want,) = library.run(number, one), in_float64(one.kernel, one.inputs)
        assert np.isnan(got[0, 0, 9]).all()
        np.testing.assert_allclose(got, want, rtol=0, atol=0.1)
        np.testing.assert_allclose(got[0, 0, 5], values[0, 0, 99], rtol=BF16_STEP)


@pytest.mark.parametrize("name", HERE)
def test_exponentials_are_as_near_as_the_header_says(name: str) -> None:
    target = resolve(name)
    source = """#include "tw_kernel.h"
    #include "tw_short_exp.h"
    __attribute__((visibility("default"))) void map(const float *x, float *y, long n) {
        for (long i = 0; i < n; i += TW_LANES) tw_store(y + i, tw_exp_bf16(tw_load(x + i)));
    }"""
    library = loaded(build_library({"map.c": source}, target, find_toolchain(machine=target.machine)))
    x = np.concatenate([-np.geomspace(1e-30, 87, 4080), np.zeros(16)]).astype(np.float32)
    beyond = np.array([-87.5, -1e4, -3e38, -np.inf] * 4, np.float32)
    ends = np.concatenate([x, beyond, np.full(16, np.nan, np.float32)])
    y = np.empty_like(ends)
    library.map(*(ctypes.c_void_p(array.ctypes.data) for array in (ends, y)), ctypes.c_long(ends.size))
    assert (np.abs(y[: x.size] / np.exp(x.astype(np.float64)) - 1) <= 8e-5 - 7e-8 * x).all()
    assert (y[x.size : -16] == 0).all()
    assert np.isnan(y[-16:]).all()


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_targets_that_multiply_pairs_and_no_tiles_are_offered_it_in_bf16_alone(profile: CpuTarget) -> None:
    workload = masked(np.zeros((197, 197), np.bool_)).workload
    assert bool(bf16_attention_tiles(workload, profile, 1)) == (profile in ABLE)
    names = {one.tile.algorithm for one in legal_tiles(workload, profile, 1, "fp32")}
    assert names == {"attention"}


@pytest.mark.parametrize("profile", ABLE, ids=lambda profile: profile.name)
@pytest.mark.parametrize("keys", [197, 3000])
def test_tiles_fit_registers_and_blocks_of_keys_and_are_cheaper_than_in_fp32(profile: CpuTarget, keys: int) -> None:
    workload = masked(np.zeros((197, keys), np.bool_)).workload
    options = bf16_attention_tiles(workload, profile, 2)
    for option in options:
        assert option.tile.extent("block", "n") <= KEYS + 4 * profile.vector_floats
        for level in ("register", "vector"):
            rows, panel = option.tile.extent(level, "m"), option.tile.extent(level, "n")
            assert panel % profile.vector_floats == 0
            assert (rows + 1) * (panel // profile.vector_floats) < profile.vector_registers
    best = min(legal_tiles(workload, profile, 2, "bf16"), key=lambda option: option.seconds)
    assert best.tile.algorithm == "bf16_attention"
