"""Operators that sum, at lengths of choice, and what each makes of numbers of one sign."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.fuse import fuse
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.measure.memory import allocate, read_buffer, write_buffer
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.devices.cpu.library import Case
from tests.compiler.networks import Network, graph_of

Build = Callable[[Network, int], str]


def _reduced(op: str) -> Build:
    def build(net: Network, n: int) -> str:
        axes = net.constant(np.array([-1], np.int64))
        return net.node(op, [net.input(2, n), axes], (2, 1))

    return build


def _columns(net: Network, n: int) -> str:
    return net.node("ReduceMean", [net.input(n, 8), net.constant(np.array([0], np.int64))], (1, 8))


def _square(n: int) -> tuple[int, int]:
    """Two extents of about this many elements."""
    height = 1 << (n.bit_length() - 1) // 2
    return height, n // height


def _pool(op: str, channels: int) -> Build:
    def build(net: Network, n: int) -> str:
        height, width = _square(n)
        attrs = {} if op.startswith("Global") else {"kernel_shape": [height, width]}
        return net.node(op, [net.input(1, channels, height, width)], (1, channels, 1, 1), **attrs)

    return build


def _product(m: int, n: int, constant: bool = True, zeros: float = 0.0) -> Build:
    def build(net: Network, k: int) -> str:
        a = net.input(m, k)
        b = drawn(k, n)
        if zeros:
            b[np.random.default_rng(3).random((k, n)) < zeros] = 0
        return net.node("MatMul", [a, net.constant(b) if constant else net.input(k, n)], (m, n))

    return build


def _convolution(net: Network, n: int) -> str:
    channels = n // 9
    return net.node("Conv", [net.input(1, channels, 6, 6), net.constant(drawn(8, channels, 3, 3))], (1, 8, 4, 4))


def _normalised(op: str) -> Build:
    def build(net: Network, n: int) -> str:
        shape = (1, 2, *_square(n)) if op == "InstanceNormalization" else (2, n)
        sides = net.constant(np.ones(2 if len(shape) == 4 else n, np.float32))
        inputs = [net.input(*shape), *([sides, sides] if "Norm" in op else [])]
        return net.node(op, inputs, shape)

    return build


def _normalised_length(net: Network, n: int) -> str:
    return net.node("LpNormalization", [net.input(2, n)], (2, n), axis=-1, p=2)


SUMS: Mapping[str, Build] = {
    **{name: _reduced(name) for name in ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare")},
    **{name: _reduced(name) for name in ("ReduceLogSum", "ReduceLogSumExp")},
    "ReduceMean of columns": _columns,
    "GlobalAveragePool": _pool("GlobalAveragePool", 2),
    "GlobalAveragePool of channels": _pool("GlobalAveragePool", 16),
    "AveragePool": _pool("AveragePool", 16),
    "MatMul of vectors": _product(1, 1),
    "MatMul of one row": _product(1, 16),
    "MatMul of rows": _product(12, 32),
    "MatMul of inputs": _product(4, 16, constant=False),
    "MatMul with zeros": _product(4, 16, zeros=0.8),
    "Conv": _convolution,
    "LayerNormalization": _normalised("LayerNormalization"),
    "InstanceNormalization": _normalised("InstanceNormalization"),
    "Softmax": _normalised("Softmax"),
    "LogSoftmax": _normalised("LogSoftmax"),
    "LpNormalization": _normalised_length,
}
"""By name, networks of one operator that sums about so many elements."""


def drawn(*shape: int) -> np.ndarray:
    """Numbers of one sign; most of them equal, so that rounding errors have one sign too."""
    return np.where(np.random.default_rng(5).random(shape) < 0.1, 0.3, 0.1).astype(np.float32)


@dataclass(frozen=True)
class Subject:
    """A network of one operator as kernels; `name` and `length` say which, `inputs` and `wanted` are its numbers."""

    name: str
    length: int
    kernels: KernelGraph
    inputs: Mapping[int, np.ndarray]
    wanted: np.ndarray

    @staticmethod
    def of(name: str, length: int, dtype: DType = DType.F32) -> Subject:
        """The operator with the numbers of `drawn`, rounded to a dtype."""

        def rounded(array: np.ndarray) -> np.ndarray:
            return array.astype(dtype.numpy).astype(array.dtype) if array.dtype == np.float32 else array

        net = Network()
        graph = graph_of(net.model([SUMS[name](net, length)]))
        graph = replace(graph, constants={id: rounded(array) for id, array in graph.constants.items()})
        inputs = {id: rounded(drawn(*graph.type(id).dims)) for id in graph.inputs}
        (wanted,) = evaluate_graph(graph, inputs, OPERATORS).values()
        return Subject(name, length, fuse(graph).kernels, inputs, wanted)

    def case(self, call: Call) -> Case:
        """A call with buffers of its own; its inputs are those of the model, or zeros where another call makes them."""
        kernels = self.kernels
        known = {**kernels.constants, **self.inputs}
        buffers = tuple(kernels.buffers[id] for id in (*call.inputs, *call.outputs))
        types = {id: kernels.buffers[id].type for id in call.inputs}
        inputs = tuple(known.get(id, np.zeros(type.dims, type.dtype.numpy)) for id, type in types.items())
        constant = tuple(at for at, id in enumerate(call.inputs) if id in kernels.constants)
        assert isinstance(call.kernel, Kernel)
        return Case(call.kernel, buffers, inputs, constant=constant)

    def error(self, run: Callable[[int, Case], Sequence[np.ndarray]]) -> float:
        """Of the result, relative to its largest value, where `run` carries out the call at a position on a case."""
        buffers = self.kernels.buffers
        memories = {storage: allocate(count) for storage, count in self.kernels.storage_bytes.items()}

        def put(arrays: Mapping[int, np.ndarray]) -> None:
            for id, array in arrays.items():
                write_buffer(memories[buffers[id].storage], buffers[id], array)

        def get(id: int) -> np.ndarray:
            return read_buffer(memories[buffers[id].storage], buffers[id])

        put({**self.kernels.constants, **self.inputs})
        for at, call in enumerate(self.kernels.calls):
            case = replace(self.case(call), inputs=tuple(map(get, call.inputs)))
            put(dict(zip(call.outputs, run(at, case), strict=True)))
        (result,) = map(get, self.kernels.outputs)
        return float(np.max(np.abs(result - self.wanted)) / np.max(np.abs(self.wanted)))
