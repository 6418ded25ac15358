"""A translated graph over arrays of NumPy's interface: with `jax.numpy` it is what XLA compiles.

Convolution and pooling, which that interface lacks, come as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gpu.translation import Table

Array = Any
"""Of the library that `Arrays.xp` is."""
Around = Sequence[tuple[int, int]]
"""Padding before and after, of each axis."""
FLOAT = 1
KINDS = {6: "int32", 7: "int64", 9: "bool"}
"""Dtypes by ONNX's number."""


@dataclass(frozen=True)
class Arrays:
    """An array library.

    convolve  (x[N, C, *in], w[K, C / groups, *kernel], strides, around, dilations, groups) -> [N, K, *out]
    pool      (x[N, C, *in], kernel, strides, around, "max" or "sum") -> [N, C, *out]; what lies around does not count
    """

    xp: Any
    erf: Callable[[Array], Array]
    convolve: Callable[..., Array]
    pool: Callable[..., Array]
    floating: Any
    """The dtype that activations and weights have."""


def array_table(arrays: Arrays) -> Table:  # noqa: C901 - a table of short functions
    """The functions of all operators."""
    xp = arrays.xp

    def conv(
        x: Array,
        w: Array,
        b: Array | None = None,
        *,
        strides: Sequence[int] = (1, 1),
        pads: Sequence[int] = (0, 0, 0, 0),
        dilations: Sequence[int] = (1, 1),
        group: int = 1,
        **_: Any,
    ) -> Array:
        y = arrays.convolve(x, w, tuple(strides), _around(pads), tuple(dilations), group)
        return y if b is None else y + b.reshape(1, -1, 1, 1)

    def batch_norm(x: Array, scale: Array, shift: Array, mean: Array, var: Array, *, epsilon: float = 1e-5) -> Array:
        factor = scale / xp.sqrt(var + epsilon)
        return x * factor.reshape(1, -1, 1, 1) + (shift - mean * factor).reshape(1, -1, 1, 1)

    def pooled(kind: str, x: Array, attributes: dict[str, Any]) -> tuple[Array, Array | None]:
        """Maxima or sums of windows; for sums also how many elements each has, as an average counts them."""
        kernel, strides = tuple(attributes["kernel_shape"]), tuple(attributes.get("strides", (1, 1)))
        around = _around(attributes.get("pads", (0, 0, 0, 0)))
        beyond = [
            _beyond(extent, *edge, size, stride) if attributes.get("ceil_mode") else 0
            for extent, edge, size, stride in zip(x.shape[2:], around, kernel, strides, strict=True)
        ]
        wide = [(first, last + more) for (first, last), more in zip(around, beyond, strict=True)]
        if kind == "max":
            return arrays.pool(x, kernel, strides, wide, "max"), None
        ones = xp.ones((1, 1, *x.shape[2:]), x.dtype)
        if attributes.get("count_include_pad"):
            # Padding counts, but not what a rounded-up last window reaches beyond it.
            ones = xp.ones((1, 1, *(n + a + b for n, (a, b) in zip(x.shape[2:], around, strict=True))), x.dtype)
            counts = arrays.pool(ones, kernel, strides, [(0, more) for more in beyond], "sum")
        else:
            counts = arrays.pool(ones, kernel, strides, wide, "sum")
        return arrays.pool(x, kernel, strides, wide, "sum"), counts

    def max_pool(x: Array, **attributes: Any) -> Array:
        return pooled("max", x, attributes)[0]

    def avg_pool(x: Array, **attributes: Any) -> Array:
        sums, counts = pooled("sum", x, attributes)
        return sums / counts

    def gemm(
        a: Array,
        b: Array,
        c: Array | None = None,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,  # noqa: N803 - ONNX's name
        transB: int = 0,  # noqa: N803 - ONNX's name
    ) -> Array:
        product = alpha * ((a.T if transA else a) @ (b.T if transB else b))
        return product if c is None else product + beta * c

    def layer_norm(
        x: Array, scale: Array, shift: Array | None = None, *, axis: int = -1, epsilon: float = 1e-5, **_: Any
    ) -> Array:
        axes = tuple(range(axis % x.ndim, x.ndim))
        wide = x.astype("float32")
        centred = wide - wide.mean(axes, keepdims=True)
        y = (centred / xp.sqrt((centred * centred).mean(axes, keepdims=True) + epsilon)).astype(x.dtype) * scale
        return y if shift is None else y + shift

    def softmax(x: Array, *, axis: int = -1) -> Array:
        e = xp.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    def pad(
        x: Array, pads: Sequence[int], value: float | None = None, axes: object = None, *, mode: str = "constant"
    ) -> Array:
        assert axes is None
        assert mode == "constant"
        rank = len(pads) // 2
        return xp.pad(x, [(pads[axis], pads[rank + axis]) for axis in range(rank)], constant_values=value or 0.0)

    def cut(
        x: Array,
        starts: Sequence[int],
        ends: Sequence[int],
        axes: Sequence[int] | None = None,
        steps: Sequence[int] | None = None,
    ) -> Array:
        whole = [slice(None)] * x.ndim
        for at, axis in enumerate(axes or range(len(starts))):
            whole[axis] = slice(starts[at], ends[at], steps[at] if steps else 1)
        return x[tuple(whole)]

    def unsqueeze(x: Array, axes: Sequence[int]) -> Array:
        for axis in sorted(axes):
            x = xp.expand_dims(x, axis)
        return x

    return {
        "Add": lambda a, b: a + b,
        "AveragePool": avg_pool,
        "BatchNormalization": batch_norm,
        "Cast": lambda x, *, to, **_: x.astype(arrays.floating if to == FLOAT else KINDS[to]),
        "Clip": lambda x, low=None, high=None: xp.clip(x, low, high),
        "Concat": lambda *parts, axis: xp.concatenate(parts, axis),
        "Conv": conv,
        "Div": lambda a, b: a / b,
        "Dropout": lambda x, *_: x,
        "Erf": arrays.erf,
        "Flatten": lambda x, *, axis=1: x.reshape(*x.shape[:axis], -1),
        "Gather": lambda x, indices, *, axis=0: xp.take(x, indices, axis),
        "Gemm": gemm,
        "GlobalAveragePool": lambda x: x.mean((2, 3), keepdims=True),
        "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: xp.clip(alpha * x + beta, 0, 1),
        "HardSwish": lambda x: x * xp.clip(x / 6 + 0.5, 0, 1),
        "Identity": lambda x: x,
        "LayerNormalization": layer_norm,
        "LeakyRelu": lambda x, *, alpha=0.01: xp.where(x > 0, x, alpha * x),
        "MatMul": xp.matmul,
        "MaxPool": max_pool,
        "Mul": lambda a, b: a * b,
        "Pad": pad,
        "ReduceMean": lambda x, over=None, *, axes=None, keepdims=1, **_: x.mean(
            tuple(over or axes or ()), keepdims=bool(keepdims)
        ),
        "Relu": lambda x: xp.maximum(x, 0),
        "Reshape": lambda x, shape, **_: x.reshape(
            [x.shape[axis] if extent == 0 else extent for axis, extent in enumerate(shape)]
        ),
        "Sigmoid": lambda x: 1 / (1 + xp.exp(-x)),
        "Slice": cut,
        "Softmax": softmax,
        "Sub": lambda a, b: a - b,
        "Tanh": xp.tanh,
        "Transpose": lambda x, *, perm: x.transpose(perm),
        "Unsqueeze": unsqueeze,
    }


def _around(pads: Sequence[int]) -> list[tuple[int, int]]:
    rank = len(pads) // 2
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _beyond(extent: int, before: int, after: int, size: int, stride: int) -> int:
    """How far the last window reaches beyond the padding where their number is rounded up.

    A window that would begin there is none.
    """
    room = extent + before + after - size
    windows = -(-room // stride)
    if windows * stride >= extent + before:
        windows -= 1
    return max(windows * stride - room, 0)
