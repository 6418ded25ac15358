from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.contract import CompileOptions
from compiler.errors import VerifyError
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.region import Region, inner_calls, regions_of
from compiler.ir.tile import Tile
from compiler.ops import OPERATORS
from tests.compiler.frontend.open.at_sizes import model_of

LOOP = """m (float[3] x, float limit) => (float[3] y) <int64 most = {400}, float[3,3] w = {WEIGHTS}> {
    y = Loop<body = o (int64 i, bool c, float[3] v) => (bool again, float[3] z) {
        e = MatMul(v, w)
        few = Constant<value_int = 2>()
        z = Loop<body = n (int64 j, bool k, float[3] a) => (bool l, float[3] b) {
            l = Identity(k) b = Tanh(a)
        }>(j0, , e)
        j0 = Mod(i, few)
        m = ReduceMax<keepdims=0>(z)
        again = Less(m, limit)
    }>(most, , x)
}"""


def kernels_of(factor: float) -> KernelGraph:
    lines = LOOP.replace("        j0 = Mod(i, few)\n", "").replace(
        "        z = Loop", "        j0 = Mod(i, few)\n        z = Loop"
    )
    text = lines.replace("WEIGHTS", ", ".join(str(factor * place) for place in range(9)))
    return fuse(load(model_of(text), CompileOptions(), OPERATORS).graph).kernels


def region_of(kernels: KernelGraph) -> Region:
    ((_, region),) = regions_of(kernels)
    return region


def test_regions_are_equal_whose_code_is_whatever_their_constants_hold() -> None:
    one, other = region_of(kernels_of(0.1)), region_of(kernels_of(0.2))
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)
    assert one != replace(one, tiles=((Tile("loops"),) * len(one.bodies[0].calls),))
    assert one != replace(one, family="other")


def test_calls_inside_are_counted_as_often_as_they_may_run() -> None:
    found = [(body.calls[at].kernel.family, times) for body, at, times in inner_calls(kernels_of(0.1))]
    assert {"MatMul": 400, "Tanh": 400}.items() <= dict(found).items()


def test_a_region_has_its_constants_behind_its_operands() -> None:
    region = region_of(kernels_of(0.1))
    region.verify()
    assert [use.slot for use in region.uses] == [len(region.inputs) - 1]
    assert "MatMul" in str(region)


@pytest.mark.parametrize("fault", ["results", "operands", "tiles", "constants"])
def test_a_region_whose_parts_do_not_fit_is_refused(fault: str) -> None:
    region = region_of(kernels_of(0.1))
    broken = {
        "results": lambda: replace(region, outputs=region.outputs[:-1]),
        "operands": lambda: replace(region, inputs=region.inputs[1:]),
        "tiles": lambda: replace(region, tiles=((Tile("loops"),) * 99,)),
        "constants": lambda: replace(region, inputs=(*region.inputs[:-1], region.inputs[0])),
    }[fault]()
    with pytest.raises(VerifyError):
        broken.verify()
