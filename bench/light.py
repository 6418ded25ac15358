"""The light models inside the installed onnx package: real graphs, constant weights replaced by random ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from bench.zoo import moments
from bench.zoo.moments import Moments
from bench.zoo.weights import he_filters

LIGHT: tuple[tuple[str, str], ...] = (
    ("light_bvlc_alexnet", "2afa78cef5a88aed9d6e3d63fb92bd330c9177ac150d19189c6b3e7204ba0212"),
    ("light_densenet121", "49ddb5712797d6164f1d864bedaad927de4f3909ad1b4ba390a92c2f8150e9f6"),
    ("light_inception_v1", "bb7a0e6c370c709f5615eeef961b43628de13d0009ae4d6f4bfb0d5aea5d8270"),
    ("light_inception_v2", "224d77d55b26559a959db627c3f417a623fbf3b3000d25f0939327aa935d933f"),
    ("light_resnet50", "05e77a5c9c9ce0913f549a50d6ebaced5e0ff6817b61e09bae26e4c5bd9055e4"),
    ("light_shufflenet", "c6f406d62be36d6b4572542c0950a2abd59f56237068793290680bba89fbafe5"),
    ("light_squeezenet", "770b0f3c8623e18bf58b53754d710051b4c268248422142980a132bbe6dfe908"),
    ("light_vgg19", "8e547d732b3a3d66eeb8fa64a026adb994d3db552f0bbd52e436d06300d89afe"),
    ("light_zfnet512", "6444bb58b98c3d14f551a3bdb83eea9e5db7e147790db3115c447e9c9a8338b0"),
)
"""Names and SHA-256 of the files (onnx, Apache-2.0)."""

Array = npt.NDArray[np.float32]


class NotTheLightModel(ValueError):
    """There is no light model of that name, or the installed onnx package holds another file under it."""


def light(name: str, seed: int = 0, widths: Mapping[int, int] | None = None) -> onnx.ModelProto:
    """The light model `name` with every weight drawn anew from `seed`; raises NotTheLightModel.

    `widths` gives sizes of layers that are to be others: 4096, say, is only that of hidden fully connected layers.
    Filters are He-normal, batch norms have scattered statistics; as they come, most weights are
    ConstantOfShape nodes, so that every class is equally likely.
    """
    digests = dict(LIGHT)
    if name not in digests:
        raise NotTheLightModel(f"no light model {name!r}; there are {', '.join(digests)}")
    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"{name}.onnx"
    if not path.is_file():
        raise NotTheLightModel(f"the installed onnx {onnx.__version__} has no {path.name}")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digests[name]:
        raise NotTheLightModel(f"{path.name} of the installed onnx {onnx.__version__} is not the one recorded")
    model = onnx.load_model_from_string(data)
    Weights(model.graph, np.random.default_rng(seed), widths or {}).fill()
    # Below IR version 4 every initialiser has to be a graph input as well, and the new ones are not.
    model.ir_version = max(model.ir_version, 4)
    return model


class Weights:
    """Walks a graph in order and draws each weight for the node that reads it.

    It keeps an estimate of each value's moments.
    """

    def __init__(self, graph: onnx.GraphProto, rng: np.random.Generator, widths: Mapping[int, int]) -> None:
        self.graph = graph
        self.rng = rng
        self.widths = widths
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.sources: dict[str, str] = {}
        self.drawn: dict[str, Array] = {}
        self.estimates: dict[str, Moments] = {}

    def fill(self) -> None:
        """Redraws every weight that a node reads; the ConstantOfShape nodes become initialisers."""
        constants = {t.name: numpy_helper.to_array(t) for t in self.graph.initializer}
        filled = [node for node in self.graph.node if node.op_type == "ConstantOfShape"]
        self.shapes = {name: array.shape for name, array in constants.items() if array.dtype == np.float32}
        self.shapes |= {node.output[0]: tuple(map(int, constants[node.input[0]])) for node in filled}
        self.shapes = {
            name: tuple(self.widths.get(size, size) for size in shape) for name, shape in self.shapes.items()
        }
        self.sources = {name: name for name in self.shapes}
        for node in self.graph.node:
            if node.op_type in ("Unsqueeze", "Reshape") and node.input[0] in self.sources:
                self.sources[node.output[0]] = self.sources[node.input[0]]
            elif node.op_type != "ConstantOfShape":
                self._visit(node)
        if unread := [node.output[0] for node in filled if node.output[0] not in self.drawn]:
            raise NotTheLightModel(f"nothing tells what these weights are for: {', '.join(unread)}")
        self._replace(filled)

    def _replace(self, filled: list[onnx.NodeProto]) -> None:
        """Puts the drawn weights in, and takes out the nodes and shapes that made the constant ones."""
        gone = {node.input[0] for node in filled} | self.drawn.keys()
        kept = [tensor for tensor in self.graph.initializer if tensor.name not in gone]
        targets = {node.input[1] for node in self.graph.node if node.op_type == "Reshape"}
        kept = [self._narrowed(tensor) if tensor.name in targets else tensor for tensor in kept]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        self.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in self.drawn.items())
        inputs = [value for value in self.graph.input if value.name not in gone]
        del self.graph.input[:]
        self.graph.input.extend(inputs)
        nodes = [node for node in self.graph.node if node.op_type != "ConstantOfShape"]
        del self.graph.node[:]
        self.graph.node.extend(nodes)

    def _narrowed(self, target: onnx.TensorProto) -> onnx.TensorProto:
        """The shape that a Reshape gives, with the sizes that layers have now."""
        sizes = numpy_helper.to_array(target)
        return numpy_helper.from_array(np.array([self.widths.get(int(size), int(size)) for size in sizes]), target.name)

    def _visit(self, node: onnx.NodeProto) -> None:
        activations = [name for name in node.input if name not in self.sources]
        x = [self.estimates.get(name, moments.UNIT) for name in activations]
        weights = [self.sources[name] for name in node.input if name in self.sources]
        self.estimates[node.output[0]] = self._after(node.op_type, x, weights)

    def _after(self, op: str, x: list[Moments], weights: list[str]) -> Moments:
        """Draws the weights that the node reads; the estimated moments of its output."""
        if op == "Conv":
            return self._linear(x[0], weights, self.shapes[weights[0]], 2.0)
        if op == "Gemm":
            # Fully connected layers bring values back to unit variance: a saturated softmax would hide every error.
            return self._linear(x[0], weights, (-1, self.shapes[weights[0]][-1]), 1.0 / x[0].power)
        if op == "BatchNormalization":
            return self._norm(x[0], weights)
        if op == "Mul" and weights:
            self._draw(weights[0], lambda shape: self.rng.uniform(0.5, 1.5, shape))
            return Moments(x[0].mean, 1.083 * x[0].power - x[0].mean ** 2)
        if op == "Add" and weights:
            self._draw(weights[0], lambda shape: self.rng.normal(0.0, 0.2, shape))
            return Moments(x[0].mean, x[0].var + 0.04)
        if op in ("Sum", "Add"):
            return Moments(sum(m.mean for m in x), sum(m.var for m in x))
        if op == "Relu":
            return moments.relu(x[0])
        if op == "MaxPool":
            return moments.max_pool(x[0])
        if op in ("AveragePool", "GlobalAveragePool"):
            return moments.avg_pool(x[0], 3)
        if op == "Concat":
            return moments.mixture([(1, m) for m in x])
        return x[0]

    def _linear(self, x: Moments, weights: list[str], filters: tuple[int, ...], gain: float) -> Moments:
        """A matrix drawn as `filters` (the rows of a Gemm, transB = 1 in all of these models), and a small bias."""
        matrix, *bias = weights
        shape = self.shapes[matrix]
        rows = math.prod(shape) // math.prod(filters[1:])
        array, power = he_filters(self.rng, (rows, *filters[1:]), gain, x)
        self.drawn[matrix] = array.reshape(shape)
        for name in bias:
            self._draw(name, lambda shape: self.rng.normal(0.0, 0.05, shape))
        return Moments(0.0, power)

    def _norm(self, x: Moments, weights: list[str]) -> Moments:
        scale, shift, mean, var = weights
        self._draw(scale, lambda shape: self.rng.uniform(0.5, 1.5, shape))
        self._draw(shift, lambda shape: self.rng.normal(0.0, 0.2, shape))
        self._draw(mean, lambda shape: self.rng.normal(x.mean, 0.2 * math.sqrt(x.var), shape))
        self._draw(var, lambda shape: self.rng.uniform(0.6 * x.var, 1.6 * x.var, shape))
        return moments.AFTER_NORM

    def _draw(self, name: str, values: Callable[[tuple[int, ...]], npt.NDArray[np.float64]]) -> None:
        self.drawn[name] = values(self.shapes[name]).astype(np.float32)
