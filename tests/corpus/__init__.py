"""Small models on which the compiler once failed, with inputs and right results, for every target and precision.

A fault that fuzzing or a user finds becomes an entry here, made as small as `tilewright minimise` makes it, beside the
test of the rule that was at fault: an entry holds for all targets what that test holds for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Fault:
    """A model in ONNX's text, without its head.

    was     what was wrong
    runs    inputs with the right outputs
    dims    of open dimensions
    within  by which a float may differ, of the largest of its output, in fp32
    """

    name: str
    was: str
    text: str
    runs: Sequence[tuple[Arrays, Arrays]]
    dims: Mapping[str, Any] = field(default_factory=dict)
    within: float = 1e-5


def of(dtype: type, *numbers: Any) -> np.ndarray:
    """An array of these."""
    return np.array(numbers[0] if len(numbers) == 1 else numbers, dtype)


F, I64, U8 = np.float32, np.int64, np.uint8
CASTS = {name: number for number, name in ((2, "u8"), (3, "i8"), (4, "u16"), (5, "i16"), (12, "u32"), (6, "i32"))}
CASTS |= {"u64": 13, "i64": 7, "b": 9}
VALUES = of(F, 1.5, -2.0, 0.25)
DOUBLED = "c2 = Identity(c) v2 = Add(v, v) s = Identity(v2)"
QUANTISED = np.pad(np.full((3, 3), 2.0), 1)
SUMS = np.stack([sum(QUANTISED[i : i + 4, j : j + 4] for i in (0, 1) for j in (0, 1)) * (100.0 - z) for z in (5, 90)])
TREE = (
    "y = ai.onnx.ml.TreeEnsembleRegressor<n_targets=1, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],"
    " nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0], nodes_modes=['BRANCH_LEQ', 'LEAF', 'LEAF'],"
    " nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], nodes_missing_value_tracks_true=[1, 0, 0],"
    " target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[10.0, 20.0]>(x)"
).replace("'", '"')

FAULTS = (
    Fault(
        "casts of what does not fit",
        "a Cast to unsigned integers that was folded gave another number than one that was run",
        f"(float[12] x) => ({', '.join(f'bool[12] {name}' for name in CASTS)})"
        f" <float[12] c = {{{', '.join('-1' for _ in range(12))}}}> {{"
        + " ".join(
            f"r_{name} = Cast<to={to}>(x) k_{name} = Cast<to={to}>(c) {name} = Equal(r_{name}, k_{name})"
            for name, to in CASTS.items()
        )
        + "}",
        [({"x": np.full(12, -1, F)}, {name: np.ones(12, np.bool_) for name in CASTS})],
    ),
    Fault(
        "one value as two outputs",
        "it was refused",
        "(float[3] x) => (float[3] y, float[3] y, float[3] k) <float[3] k = {1.5, -2, 0.25}> { y = Neg(x) }",
        [({"x": VALUES}, {"y": -VALUES, "k": VALUES})],
    ),
    Fault(
        "halves that overflow",
        "numbers beyond a half's range stayed what they were",
        "(float[3] x) => (float[3] z, float[3] w) <float[3] k = {100000, -1000000000, 1}>"
        " { h = Cast<to=10>(x) z = Cast<to=1>(h) g = Cast<to=10>(k) f = Cast<to=1>(g) w = Max(f, x) }",
        [({"x": of(F, 1e5, -1e9, 1)}, {"z": of(F, np.inf, -np.inf, 1), "w": of(F, np.inf, -1e9, 1)})],
    ),
    Fault(
        "casts there and back",
        "a pair of casts that rounds was taken for nothing",
        "(float[4] x) => (float[4] y, float[4] v)"
        " { i = Cast<to=6>(x) y = Cast<to=1>(i) b = Cast<to=9>(x) v = Cast<to=1>(b) }",
        [({"x": of(F, 2.7, -2.7, 300.5, 1e-9)}, {"y": of(F, 2, -2, 300, 0), "v": np.ones(4, F)})],
    ),
    Fault(
        "zeros of both signs",
        "constants that differ in the sign of a zero were one constant",
        "(float[2] x) => (float[2] y, float[2] z) <float[2] a = {0, 0}, float[2] b = {-0.0, -0.0}>"
        " { y = Div(x, a) z = Div(x, b) }",
        [({"x": of(F, 1, -1)}, {"y": of(F, np.inf, -np.inf), "z": of(F, -np.inf, np.inf)})],
    ),
    Fault(
        "zero points by channel",
        "padding of a quantised convolution was the number 0 and not the zero point",
        "(uint8[1,1,3,3] x) => (uint8[1,2,4,4] y) <float xs = {0.05}, uint8 xz = {128}, uint8[2,1,2,2] w = {"
        "100, 100, 100, 100, 100, 100, 100, 100}, float[2] ws = {0.02, 0.02}, uint8[2] wz = {5, 90}, float ys ="
        " {0.01}, uint8 yz = {128}> { y = QLinearConv<pads=[1, 1, 1, 1]>(x, xs, xz, w, ws, wz, ys, yz) }",
        [({"x": np.full((1, 1, 3, 3), 130, U8)}, {"y": np.clip(np.rint(SUMS * 0.1) + 128, 0, 255).astype(U8)[None]})],
    ),
    *(
        Fault(
            f"transposed convolution, {pad}",
            "the odd element of automatic padding was at the other end",
            f"(float[1,1,4] x) => (float[1,1,8] y) <float[1,1,3] w = {{1, 10, 100}}> {{ y = ConvTranspose<strides=[2],"
            f' dilations=[2], auto_pad="{pad}">(x, w) }}',
            [({"x": of(F, [[[1, 2, 3, 4]]])}, {"y": of(F, [[right]])})],
        )
        for pad, right in (
            ("SAME_UPPER", [0, 12, 0, 123, 0, 234, 0, 340]),
            ("SAME_LOWER", [12, 0, 123, 0, 234, 0, 340, 0]),
        )
    ),
    Fault(
        "a loop that does not run",
        "what it gives of each turn had a turn",
        "(float[3] x, int64 n, bool c0) => (float[3] y, float[m,3] z) { y, z = Loop<body = b"
        f" (int64 i, bool c, float[3] v) => (bool c2, float[3] v2, float[3] s) {{ {DOUBLED} }}>(n, c0, x) }}",
        [
            ({"x": VALUES, "n": of(I64, 0), "c0": of(np.bool_, True)}, {"y": VALUES, "z": np.zeros((0, 3), F)}),
            ({"x": VALUES, "n": of(I64, 3), "c0": of(np.bool_, False)}, {"y": VALUES, "z": np.zeros((0, 3), F)}),
            (
                {"x": VALUES, "n": of(I64, 2), "c0": of(np.bool_, True)},
                {"y": 4 * VALUES, "z": np.stack([2 * VALUES, 4 * VALUES])},
            ),
        ],
    ),
    Fault(
        "a tree that is given no number",
        "NaN went to the other side than the tree says",
        f"(float[4,1] x) => (float[4,1] y) {{ {TREE} }}",
        [({"x": of(F, [[0.4], [0.5], [0.6], [np.nan]])}, {"y": of(F, [[10], [10], [20], [10]])})],
    ),
    Fault(
        "an open axis that shrinks to its 300th part",
        "a scale whose size rounds to nothing was refused",
        "(float[1,1,n] x) => (float[1,1,k] y) <float[3] up = {1, 1, 300}, float[3] down = {1, 1, 0.0033333334}>"
        ' { u = Resize<mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric">(x, , up)'
        ' y = Resize<mode="linear">(u, , down) }',
        [({"x": of(F, [[[1, 2, 5]]])}, {"y": of(F, [[[1, 2, 5]]])})],
        dims={"n": {"min": 1, "max": 4}},
    ),
    Fault(
        "long sums of one sign",
        "sums of a million elements in one float32 were off by more than was promised",
        "(float[1,1048576] x) => (float[1] y) <int64[1] axes = {1}> { y = ReduceMean<keepdims=0>(x, axes) }",
        [({"x": np.full((1, 1 << 20), 0.1, F)}, {"y": of(F, [0.1])})],
    ),
)
