"""A translated graph as a PyTorch module: straight-line code over `torch.nn.functional`, with the file's weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - what PyTorch calls it everywhere
from torch import Tensor, fx

from bench.gpu.idioms import with_idioms
from bench.gpu.translation import Program, Ref

FLOAT = 1
KINDS = {6: torch.int32, 7: torch.int64, 9: torch.bool}
"""Dtypes by ONNX's number."""


def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    group: int = 1,
    **_: Any,
) -> Tensor:
    """x [N, C, H, W] by w [K, C / group, h, w]; pads are [top, left, bottom, right]."""
    before, after = tuple(pads[:2]), tuple(pads[2:])
    if before != after:
        x, before = F.pad(x, (before[1], after[1], before[0], after[0])), (0, 0)
    return F.conv2d(x, w, b, tuple(strides), before, tuple(dilations), group)


def batch_norm(x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """ONNX BatchNormalization with fixed statistics, float32[c] each."""
    return F.batch_norm(x, mean, var, scale, shift, training=False, eps=epsilon)


def max_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    ceil_mode: int = 0,
    **_: Any,
) -> Tensor:
    """x [N, C, H, W]; pads are [top, left, bottom, right] and never the maximum."""
    before, after = tuple(pads[:2]), tuple(pads[2:])
    if before != after:
        x, before = F.pad(x, (before[1], after[1], before[0], after[0]), value=float("-inf")), (0, 0)
    return F.max_pool2d(x, tuple(kernel_shape), tuple(strides), before, ceil_mode=bool(ceil_mode))


def avg_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    **_: Any,
) -> Tensor:
    """x [N, C, H, W]; without `count_include_pad` the mean is over the elements inside alone."""
    before, after = tuple(pads[:2]), tuple(pads[2:])
    if before == after:
        counted = bool(count_include_pad)
        return F.avg_pool2d(x, tuple(kernel_shape), tuple(strides), before, bool(ceil_mode), counted)
    around = (before[1], after[1], before[0], after[0])
    sums = F.avg_pool2d(F.pad(x, around), tuple(kernel_shape), tuple(strides), 0, bool(ceil_mode))
    if count_include_pad:
        return sums
    inside = F.pad(torch.ones_like(x[:1, :1]), around)
    return sums / F.avg_pool2d(inside, tuple(kernel_shape), tuple(strides), 0, bool(ceil_mode))


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - ONNX's name
    transB: int = 0,  # noqa: N803 - ONNX's name
) -> Tensor:
    """alpha a b + beta c for a [M, K] and b [K, N], each given transposed where `transA` or `transB` says so."""
    a = a.t() if transA else a
    if alpha == beta == 1.0:
        return F.linear(a, b if transB else b.t(), c)
    product = alpha * (a @ (b.t() if transB else b))
    return product if c is None else product + beta * c


def layer_norm(
    x: Tensor, scale: Tensor, shift: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5, **_: Any
) -> Tensor:
    """Over the dimensions from `axis` on."""
    return F.layer_norm(x, x.shape[axis:], scale, shift, epsilon)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float) -> Tensor:
    """softmax(q k^T scale + mask) v; `k` is given transposed."""
    return F.scaled_dot_product_attention(q, k.transpose(-1, -2), v, mask, scale=scale)


def pad(
    x: Tensor, pads: Sequence[int], value: float | None = None, axes: object = None, *, mode: str = "constant"
) -> Tensor:
    """`pads` are all beginnings, then all ends; only constants, on every axis."""
    assert axes is None
    assert mode == "constant"
    rank = len(pads) // 2
    around = [amount for axis in reversed(range(rank)) for amount in (pads[axis], pads[rank + axis])]
    return F.pad(x, around, value=value or 0.0)


def cut(
    x: Tensor,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:
    """Slice, with positive steps."""
    whole: list[slice] = [slice(None)] * x.dim()
    for at, axis in enumerate(axes or range(len(starts))):
        whole[axis] = slice(starts[at], ends[at], steps[at] if steps else 1)
    return x[tuple(whole)]


def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """ONNX Gather; rows of a matrix as PyTorch's embedding."""
    if axis == 0 and x.dim() == 2:
        return F.embedding(indices, x)
    return x.index_select(axis, indices.reshape(-1)).reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def reshape(x: Tensor, shape: Sequence[int], **_: Any) -> Tensor:
    """0 in `shape` is the extent of x there, -1 what is left over."""
    return x.reshape([x.shape[axis] if extent == 0 else extent for axis, extent in enumerate(shape)])


def split(x: Tensor, parts: Sequence[int] | None = None, *, axis: int = 0, num_outputs: int = 0) -> tuple[Tensor, ...]:
    """Into `parts` along `axis`; without them into `num_outputs` equal ones, the last perhaps smaller."""
    return tuple(torch.split(x, list(parts) if parts else -(-x.shape[axis] // num_outputs), axis))


def unsqueeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    """`axes` count in the result, from 0."""
    for axis in sorted(axes):
        x = x.unsqueeze(axis)
    return x


TORCH: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Attention": attention,
    "AveragePool": avg_pool,
    "BatchNormalization": batch_norm,
    "Clip": lambda x, low=None, high=None: torch.clamp(x, low, high),
    "Concat": lambda *parts, axis: torch.cat(parts, axis),
    "Conv": conv,
    "Div": lambda a, b: a / b,
    "Dropout": lambda x, *_: x,
    "Erf": torch.erf,
    "Flatten": lambda x, *, axis=1: x.flatten(axis),
    "Gather": gather,
    "Gelu": lambda x, *, approximate="none": F.gelu(x, approximate=approximate),
    "Gemm": gemm,
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: torch.clamp(alpha * x + beta, 0, 1),
    "HardSwish": F.hardswish,
    "Identity": lambda x: x,
    "LayerNormalization": layer_norm,
    "LeakyRelu": lambda x, *, alpha=0.01: F.leaky_relu(x, alpha),
    "MatMul": torch.matmul,
    "MaxPool": max_pool,
    "Mul": lambda a, b: a * b,
    "Pad": pad,
    "Pow": lambda a, b: a**b,
    "ReduceMean": lambda x, over=None, *, axes=None, keepdims=1, **_: x.mean(
        tuple(over or axes), keepdim=bool(keepdims)
    ),
    "Relu": F.relu,
    "Reshape": reshape,
    "Sigmoid": torch.sigmoid,
    "Slice": cut,
    "Softmax": lambda x, *, axis=-1: torch.softmax(x, axis),
    "Split": split,
    "Squeeze": lambda x, axes=None: x.squeeze(tuple(axes)) if axes else x.squeeze(),
    "Sub": lambda a, b: a - b,
    "Sum": lambda *parts: sum(parts[1:], parts[0]),
    "Tanh": torch.tanh,
    "Transpose": lambda x, *, perm: x.permute(perm),
    "Unsqueeze": unsqueeze,
}
"""`bench.gpu.translation.Table` of PyTorch, but for Cast."""


def network(program: Program, dtype: torch.dtype, device: str, *, channels_last: bool) -> fx.GraphModule:
    """The module: inputs in the program's order, a tuple of outputs. Float weights are kept as `dtype`."""
    root = torch.nn.Module()
    graph = fx.Graph()
    table = {**TORCH, "Cast": lambda x, *, to, **_: x.to(dtype if to == FLOAT else KINDS[to])}
    values: dict[str, fx.Node] = {name: graph.placeholder(f"x{at}") for at, name in enumerate(program.inputs)}
    for at, (name, array) in enumerate(program.weights.items()):
        root.register_buffer(f"w{at}", weight(array, dtype, device, channels_last=channels_last))
        values[name] = graph.get_attr(f"w{at}")
    for step in with_idioms(program).steps:
        operands = tuple(values[one.name] if isinstance(one, Ref) else one for one in step.operands)
        result = graph.call_function(table[step.op], operands, dict(step.attributes))
        if step.op == "Split":
            parts = {name: graph.call_function(_item, (result, at)) for at, name in enumerate(step.outputs)}
            values.update(parts)
        else:
            values[step.outputs[0]] = result
    graph.output(tuple(values[name] for name in program.outputs))
    return fx.GraphModule(root, graph).eval()


def weight(array: np.ndarray, dtype: torch.dtype, device: str, *, channels_last: bool) -> Tensor:
    """A weight on the device; filters with channels innermost where asked."""
    tensor = torch.from_numpy(np.array(array)).to(device)
    if tensor.is_floating_point():
        tensor = tensor.to(dtype)
    return tensor.contiguous(memory_format=torch.channels_last) if channels_last and tensor.dim() == 4 else tensor


def _item(values: Sequence[Tensor], at: int) -> Tensor:
    return values[at]
