from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.bf16 import bf16_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here
from compiler.forms.contraction import as_contraction
from compiler.ir.kernel import Kernel
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms.test_contraction import convolutions, kernels, products
from tests.compiler.devices.cpu.library import LOOPS, Case, bound, check, draws

HERE = [profile.name for profile in PROFILES if profile.multiplies_bf16 and runs_here(profile)]
NOWHERE = [profile.name for profile in PROFILES if not profile.multiplies_bf16]
BF16_STEP = 2.0**-8
"""What rounding an operand to bf16 costs, relative to it, for both operands of a product together."""


def bf16(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget, drawn: st.SearchStrategy[Kernel]) -> Case:
    case = draw(bound(draw(drawn)))
    constant = draw(st.sampled_from([(), (1,), (1,)]))
    if constant:  # a constant lies as its layout says, without room between its rows
        dense = [type(b).whole(b.id, b.type, b.layout) if at in constant else b for at, b in enumerate(case.buffers)]
        case = replace(case, buffers=tuple(dense), constant=constant)
    case = replace(case, cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))
    view = as_contraction(case.workload)
    if view is None:
        return replace(case, tile=LOOPS)
    if draw(st.booleans()):
        return replace(
            case, tile=draw(st.sampled_from(bf16_tiles(case.workload, target, draw(st.integers(1, 4))))).tile
        )
    rows, vectors = min(draw(st.sampled_from([1, 2, 3, 5])), view.rows), draw(st.integers(1, 3))
    panel = vectors * target.vector_floats
    levels = (
        Level("block", (("m", rows * draw(st.integers(1, 3))), ("n", panel * draw(st.integers(1, 2))))),
        Level("register", (("m", rows), ("n", panel))),
    )
    return replace(case, tile=Tile("bf16", levels))


@pytest.mark.parametrize("name", HERE)
def test_products_of_rounded_operands_are_off_by_their_rounding(name: str) -> None:
    target = resolve(name)
    drawn = [replace(case, tolerance=4 * BF16_STEP) for case in draws(cases(target, kernels()), 60)]
    assert sum(case.tile.algorithm == "bf16" for case in drawn) > len(drawn) // 3
    check(drawn, target, "-O1")


def is_plain(kernel: Kernel) -> bool:
    """Whether both operands are tensors, perhaps padded, with nothing fused into them."""
    return all(
        part.function == "mul" or part.dtype.is_integer or part.dtype.value == "bool" for part in applied(kernel)
    )


def applied(kernel: Kernel) -> list:  # type: ignore[type-arg]
    return [part for part in kernel.blocks[0].values[0].walk() if hasattr(part, "function")]


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("family", [convolutions, products], ids=lambda family: family.__name__)
def test_operands_that_are_bf16_lose_nothing_but_what_fp32_sums_do(name: str, family) -> None:  # type: ignore[no-untyped-def]
    target = resolve(name)
    drawn = [
        replace(case, inputs=(*map(bf16, case.inputs[:2]), *case.inputs[2:]), tolerance=1e-5)
        for case in draws(cases(target, family().filter(is_plain)), 40)
    ]
    assert sum(case.tile.algorithm == "bf16" for case in drawn) > len(drawn) // 3
    check(drawn, target, "-O1")


@pytest.mark.parametrize("name", NOWHERE)
def test_a_target_without_the_instruction_is_offered_no_tile(name: str) -> None:
    target = next(profile for profile in PROFILES if profile.name == name)
    for case in draws(kernels().flatmap(bound), 5):
        assert bf16_tiles(case.workload, target, 1) == []


def test_the_code_names_the_instruction_it_is_written_with() -> None:
    target = next(profile for profile in PROFILES if profile.multiplies_bf16)
    case = draws(cases(target, products()).filter(lambda one: one.tile.algorithm == "bf16"), 1)[0]
    assert "tw_dot_bf16(" in lower("k0_product", case.workload, case.tile, target).text
