"""Random models of operators over two open axes, each at several sizes beside the model bound to them.

python -m tests.compiler.frontend.open.test_random_models SEED COUNT
"""

from __future__ import annotations

import random
import sys

import pytest

from tests.compiler.frontend.open.at_sizes import agree_at, model_of, opened

STEPS = (
    "{s} = Sigmoid({x}) {y} = Exp({s})",
    "{y} = Add({x}, {o})",
    "{y} = Mul({x}, {o})",
    "{s} = Cos({x}) {y} = Max({s}, {o})",
    "{y} = Softmax<axis={axis}>({x})",
    "{s} = Abs({x}) {y} = LogSoftmax<axis={axis}>({s})",
    "{y} = MatMul({x}, w)",
    "{y} = LayerNormalization({x}, g, g)",
    "{s} = Transpose<perm=[1,0,2]>({x}) {t} = Softmax<axis=0>({s}) {y} = Transpose<perm=[1,0,2]>({t})",
    "{s} = {reduce}<keepdims=1>({x}, a{axis}) {t} = Cos({s}) {y} = Sub({x}, {t})",
    "{s} = Cos({x}) {y} = CumSum({s}, c{axis})",
    "{s} = Cos({x}) {t} = Concat<axis={axis}>({s}, {o}) {u} = Shape({x}) {v} = Gather({u}, c{axis})"
    " {p} = Unsqueeze({v}, a0) {r} = Add({p}, {p}) {y} = Slice({t}, {p}, {r}, a{axis})",
    "{u} = Shape({x}) {s} = Cos({x}) {t} = Reshape({s}, rows) {v} = MatMul({t}, w) {y} = Reshape({v}, {u})",
    "{u} = Shape({x}) {t} = Reshape({x}, line) {s} = Cos({t}) {y} = Reshape({s}, {u})",
    "{s} = Cos({x}) {t} = Pad({s}, pads) {y} = Slice({t}, a1, ends, a1)",
    '{t} = Pad<mode="edge">({x}, pads) {y} = Slice({t}, a0, less, a1)',
    "{t} = Transpose<perm=[0,2,1]>({x}) {s} = MatMul({x}, {t}) {p} = Softmax({s}) {y} = MatMul({p}, {o})",
    "{t} = Slice({x}, last, first, a{axis}, last) {y} = Add({t}, {o})",
    "{t} = Gather<axis={axis}>({x}, last) {y} = Mul({t}, {x})",
    "{u} = Shape({x}) {t} = ConstantOfShape<value = float[1] {{0.75}}>({u}) {y} = Add({x}, {t})",
    "{u} = Shape({x}) {v} = Gather({u}, c1) {r} = Range(c0, {v}, c1) {f} = Cast<to=1>({r}) {p} = Unsqueeze({f}, a1)"
    " {y} = Mul({x}, {p})",
    "{s} = ReduceMax<keepdims=1>({x}, a{axis}) {t} = Equal({x}, {s}) {y} = Where({t}, {o}, {x})",
    "{t}, {i} = TopK<axis={axis}>({x}, a1) {s} = Sign({t}) {y} = Add({x}, {s})",
)
"""Each makes a value of shape [n, m, 4] of one or two of them."""
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp")
CONSTANTS = (
    "float[4,4] w = {" + ", ".join(f"{((7 * i) % 11 - 5) / 10}" for i in range(16)) + "}, "
    "float[4] g = {1.0, 0.5, -0.5, 0.25}, int64[1] a0 = {0}, int64[1] a1 = {1}, int64[1] a2 = {2}, int64 c0 = {0}, "
    "int64 c1 = {1}, int64 c2 = {2}, int64[1] two = {2}, int64[2] rows = {-1, 4}, int64[1] line = {-1}, "
    "int64[6] pads = {0, 1, 0, 0, 2, 0}, int64[1] ends = {-2}, int64[1] less = {-3}, int64[1] last = {-1}, "
    "int64[1] first = {-9223372036854775807}"
)
RANGES = {"n": (1, 5), "m": (1, 6)}


def drawn(seed: int) -> str:
    """A model of three to eight steps."""
    chance = random.Random(seed)
    values, lines = ["x"], []
    for number in range(chance.randint(3, 8)):
        x, other = chance.choice(values[-3:]), chance.choice(values)
        names = {letter: f"{letter}{number}" for letter in "stuvpqrfi"}
        step = chance.choice(STEPS)
        lines.append(
            step.format(
                x=x, o=other, y=f"y{number}", axis=chance.randrange(3), reduce=chance.choice(REDUCTIONS), **names
            )
        )
        values.append(f"y{number}")
    return f"m (float[n,m,4] x) => (float[n,m,4] {values[-1]}) <{CONSTANTS}> {{ {' '.join(lines)} }}"


def check(seed: int) -> None:
    """Raises AssertionError where a model means something else with its dimensions open."""
    model = model_of(drawn(seed))
    loaded = opened(model, RANGES)
    chance = random.Random(seed)
    for number in range(3):
        agree_at(loaded, model, {name: chance.randint(*ends) for name, ends in RANGES.items()}, seed=number)


@pytest.mark.parametrize("part", range(4))
def test_random_models_mean_with_open_dimensions_what_they_mean_at_sizes(part: int) -> None:
    for seed in range(15 * part, 15 * part + 15):
        try:
            check(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {drawn(seed)}") from error


if __name__ == "__main__":
    begin, count = map(int, sys.argv[1:])
    for one in range(begin, begin + count):
        try:
            check(one)
        except Exception as fault:
            print(one, type(fault).__name__, str(fault)[:300].replace("\n", " "), "\n   ", drawn(one)[-900:])
