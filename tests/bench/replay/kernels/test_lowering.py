"""The drawn models have kernels of every algorithm."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.drawn.layers import Model, models
from bench.replay.kernels.lowering import chosen, found_in, proposed_in
from bench.zoo.builder import GraphBuilder
from compiler.devices.cpu.algorithms import BY_NAME as ON_CPUS
from compiler.devices.cuda.algorithms import BY_NAME as ON_GPUS


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "names"), [("cpu:", ON_CPUS), ("cuda:", ON_GPUS)], ids=["cpu", "cuda"])
def test_every_algorithm_is_drawn(kind: str, names: Mapping[str, object]) -> None:
    missing = {*names}
    for one in models():
        asked = [each for each in one.asked if each[0].startswith(kind)]
        for call in proposed_in(one.data, one.name, asked, inner=one.inner):
            missing -= {tile.algorithm for tile in chosen(call.name, [each.tile for each in call.proposals])}
        if not missing:
            return
    assert not missing, "no drawn model has a kernel of these algorithms: add a family, or an entry of ALSO"


def dense() -> Model:
    g = GraphBuilder("dense", seed=3)
    g.output("y", g.relu(g.gemm(g.input("x", (40, 256)), 192)))
    return Model("dense", g.finish().SerializeToString(), (("cpu:x86-64-v3", "fp32"), ("cuda:sm_80", "tf32")), True)


def test_the_same_is_drawn_and_found_each_time() -> None:
    one, other = (list(models(1)) for _ in range(2))
    assert one == other
    model = dense()
    first, second = (list(found_in(model.data, model.name, model.asked, inner=True)) for _ in range(2))
    assert first == second
    assert len({found.name for found, _ in first}) == len(first)


def test_a_kernel_has_its_text_its_launch_and_its_packed_constants() -> None:
    model = dense()
    found = list(found_in(model.data, model.name, model.asked[:1], inner=False))
    kernels = [(one, text) for one, text in found if one.algorithm == "contraction"]
    assert kernels
    for one, text in kernels:
        assert {*one.digests} == {"text", "launch", "packed"}
        assert text.startswith('// {"tiles": ')
        assert "\n// packed 1 f32 " in text
        assert "void k0(void *const *p" in text
    (proposals,) = [text for one, text in found if not one.algorithm]
    assert proposals.startswith("workload")


def test_which_tiles_are_chosen_does_not_depend_on_the_others() -> None:
    model = dense()
    call = next(proposed_in(model.data, model.name, model.asked[:1], inner=False))
    tiles = [one.tile for one in call.proposals]
    kept = chosen(call.name, tiles)
    assert len(kept) < len(tiles)
    assert {*chosen(call.name, tiles[::-1])} == {*kept}
    dropped = next(tile for tile in tiles if tile not in kept)
    assert chosen(call.name, [tile for tile in tiles if tile != dropped]) == kept
