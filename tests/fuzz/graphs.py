"""Random graphs whose sizes, branches, iterations, strings and random numbers are only known while running.

Model number N is the same in every run. Each step makes a value [n, m, 4] of one or two of them.
"""

from __future__ import annotations

import random

import numpy as np
from onnx import parser

from tests.compiler.frontend.open.test_random_models import CONSTANTS, REDUCTIONS, STEPS

OF_OPEN_AXES = tuple(step.replace("Cos({s})", "Sigmoid({s})") for step in STEPS)
"""A cosine of a sum may be off by as much as the sum is: in float32 that is no fault."""
WORDS = ("red", "green", "blue", "")
SHAPE = "float[n,m,4]"
LOOP = (
    f"{{y}} = Loop<body = b{{k}} (int64 i{{k}}, bool g{{k}}, {SHAPE} in{{k}}) => (bool h{{k}}, {SHAPE} out{{k}})"
    " {{ s{k} = Cos(in{k}) {inner} e{k} = ReduceMax<keepdims=0>(out{k}) h{k} = Less(e{k}, limit) }}>({trips}, yes, {x})"
)
INNER = (
    "out{k} = Add(s{k}, {o})",
    "z{k} = Constant<value_float = 0.5>() out{k} = Mul(s{k}, z{k})",
    f"q{{k}} = ReduceSum<keepdims=0>(s{{k}}) r{{k}} = Greater(q{{k}}, limit) out{{k}} = If<"
    f"then_branch = t{{k}} () => ({SHAPE} ot{{k}}) {{{{ ot{{k}} = Neg(s{{k}}) }}}}, "
    f"else_branch = f{{k}} () => ({SHAPE} of{{k}}) {{{{ of{{k}} = Sub(s{{k}}, {{o}}) }}}}>(r{{k}})",
)
BY_DATA = (
    f"{{s}} = ReduceSum<keepdims=0>({{x}}) {{r}} = Greater({{s}}, limit) {{y}} = If<"
    f"then_branch = t{{k}} () => ({SHAPE} ot{{k}}) {{{{ ot{{k}} = Cos({{x}}) }}}}, "
    f"else_branch = f{{k}} () => ({SHAPE} of{{k}}) {{{{ u{{k}} = Tanh({{x}}) of{{k}} = Add(u{{k}}, {{o}}) }}}}>({{r}})",
    "{y} = Scan<num_scan_inputs=1, body = b{k} (float[m,4] row{k}) => (float[m,4] new{k})"
    " {{ new{k} = Sin(row{k}) }}>({x})",
    "{r} = Greater({x}, limit) {i} = NonZero({r}) {t} = Transpose({i}) {v} = GatherND({x}, {t})"
    " {s} = ReduceSum<keepdims=0>({v}) {u} = Sigmoid({s}) {y} = Add({x}, {u})",
    "{s} = ReduceMax<keepdims=0>({x}, flat) {r} = Greater({s}, limit) {t} = Compress<axis=0>({x}, {r})"
    " {u} = ReduceSum<keepdims=0>({t}) {v} = Sigmoid({u}) {y} = Mul({x}, {v})",
    "{i} = ArgMax<axis=0, keepdims=0>({x}) {s} = ReduceMax<keepdims=0>({i}) {t} = Add({s}, c1) {p} = Unsqueeze({t}, a0)"
    " {u} = Slice({x}, a0, {p}, a0) {v} = ReduceMean<keepdims=1>({u}, a0) {y} = Sub({x}, {v})",
    "{i} = ArgMin<axis=2, keepdims=0>({x}) {s} = ReduceMax<keepdims=0>({i}) {p} = Unsqueeze({s}, a0)"
    " {t}, {f} = TopK<axis=2>({x}, {p}) {u} = ReduceSum<keepdims=1>({t}, a2) {v} = Sigmoid({u}) {y} = Add({x}, {v})",
    "{s} = Round({x}) {t} = Cast<to=7>({s}) {p} = Reshape({t}, line) {u} = Unique({p}) {f} = Cast<to=1>({u})"
    " {v} = ReduceMean<keepdims=0>({f}) {r} = Sin({v}) {y} = Add({o}, {r})",
    "{s} = RandomUniformLike({x}) {t} = Floor({s}) {y} = Add({t}, {x})",
    "{s} = SplitToSequence<axis=2>({x}, pair) {t} = SequenceAt({s}, c0) {u} = SequenceAt({s}, c1)"
    " {y} = Concat<axis=2>({u}, {t})",
    '{s} = ai.onnx.ml.LabelEncoder<keys_strings=["red", "blue"], values_floats=[0.5, -2.0], default_float=1.5>(words)'
    " {t} = Unsqueeze({s}, inner) {y} = Mul({x}, {t})",
    "{s} = Equal(words, names) {t} = Unsqueeze({s}, inner) {y} = Where({t}, {x}, {o})",
    "{s} = Where(flags, words, names) {r} = Equal({s}, words) {t} = Unsqueeze({r}, inner) {y} = Where({t}, {o}, {x})",
)
RANGES = {"n": (1, 5), "m": (1, 6)}
HELD = (
    f"{CONSTANTS}, float limit = {{0.4}}, bool yes = {{1}}, int64 long = {{300}}, int64[2] flat = {{1, 2}}, "
    "int64[2] inner = {1, 2}, int64[2] pair = {2, 2}, int64 three = {3}"
)

Feeds = dict[str, np.ndarray]


def drawn(number: int) -> tuple[bytes, dict[str, object], list[Feeds]]:
    """A model of two to six steps, its open dimensions, and inputs at three sizes."""
    chance = random.Random(number)
    values, lines, used = ["x"], [], set()
    for step in range(chance.randint(2, 6)):
        names = {letter: f"{letter}{step}" for letter in "stuvpqrfi"}
        names |= {"k": str(step), "y": f"y{step}", "x": chance.choice(values[-3:]), "o": chance.choice(values)}
        line = chance.choice(BY_DATA if chance.random() < 0.6 else OF_OPEN_AXES)
        if chance.random() < 0.25:
            trips = chance.choice(("turns", "three", "long"))
            line = LOOP.replace("{inner}", chance.choice(INNER)).replace("{trips}", trips)
        lines.append(line.format(axis=chance.randrange(3), reduce=chance.choice(REDUCTIONS), **names))
        values.append(f"y{step}")
    body = " ".join(lines)
    inputs = {"x": SHAPE, "turns": "int64", "words": "string[n]", "names": "string[n]", "flags": "bool[n]"}
    used = {name for name in inputs if name == "x" or f"({name}" in body or f" {name}" in body}
    listed = ", ".join(f"{kind} {name}" for name, kind in inputs.items() if name in used)
    text = f"m ({listed}) => ({SHAPE} {values[-1]}) <{HELD}> {{ {body} }}"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]> {text}')
    fixed = {name: chance.randint(*ends) for name, ends in RANGES.items() if chance.random() < 0.3}
    dims: dict[str, object] = {
        name: fixed.get(name) or {"min": low, "max": high} for name, (low, high) in RANGES.items()
    }
    return bytes(model.SerializeToString()), dims, [_feeds(number, at, fixed, used) for at in range(3)]


def _feeds(number: int, at: int, fixed: dict[str, int], used: set[str]) -> Feeds:
    chance = np.random.default_rng((number, at))
    n, m = (fixed.get(name) or int(chance.integers(low, high + 1)) for name, (low, high) in RANGES.items())
    found: Feeds = {
        "x": chance.standard_normal((n, m, 4)).astype(np.float32),
        "turns": np.array(chance.integers(0, 7)),
        "words": np.array(chance.choice(WORDS, n), object),
        "names": np.array(chance.choice(WORDS, n), object),
        "flags": chance.random(n) < 0.5,
    }
    return {name: array for name, array in found.items() if name in used}
