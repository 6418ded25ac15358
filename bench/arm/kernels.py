"""Kernels of known networks as small models, and what is judged of them: target, precision, algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from compiler.codegen.calls import workload_of
from compiler.contract import CompileOptions
from compiler.devices.cpu.target import CpuTarget
from compiler.devices.kinds import propose
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite


@dataclass(frozen=True)
class Judged:
    """A kernel, the target that it is compiled for, and the algorithm whose best tile by the cost model is taken."""

    name: str
    model: Callable[[], bytes]
    target: str
    algorithm: str
    precision: str = "fp32"

    def tiled(self, target: CpuTarget) -> tuple[Workload, Tile]:
        """The workload and its tile. Raises LookupError where the algorithm does not take it."""
        kernels = fuse(rewrite(load(self.model(), CompileOptions(), OPERATORS).graph).graph).kernels
        half = len(kernels.calls) // 2
        for call in (*kernels.calls[half:], *kernels.calls[:half]):
            workload = workload_of(kernels, call)
            for option in propose(workload, target, 1, error=1.0, precision=self.precision):
                if option.tile.algorithm == self.algorithm:
                    return workload, option.tile
        raise LookupError(f"no kernel of {self.name} is one for {self.algorithm} on {target.name}")


def _model(nodes: list, x: tuple[int, ...], y: tuple[int, ...], constants: dict[str, np.ndarray], kind: int) -> bytes:  # type: ignore[type-arg]
    graph = helper.make_graph(
        nodes,
        "kernel",
        [helper.make_tensor_value_info("x", kind, x)],
        [helper.make_tensor_value_info("y", kind, y)],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())


def _chain(fits: bool) -> list[tuple[str, str]]:
    """Inputs and outputs of an operator, thrice if it fits behind itself: the middle one lies as in a network."""
    return [("x", "u"), ("u", "v"), ("v", "y")] if fits else [("x", "y")]


def _convolution(channels: int, filters: int, side: int, kernel: int, group: int = 1) -> Callable[[], bytes]:
    def make() -> bytes:
        pads = [kernel // 2] * 4
        weights = np.random.default_rng(1).standard_normal((filters, channels // group, kernel, kernel))
        nodes = [
            helper.make_node("Conv", [one, "w"], [other], pads=pads, group=group)
            for one, other in _chain(channels == filters)
        ]
        shapes = (1, channels, side, side), (1, filters, side, side)
        return _model(nodes, *shapes, {"w": weights.astype(np.float32)}, TensorProto.FLOAT)

    return make


def _product(rows: int, depth: int, columns: int) -> Callable[[], bytes]:
    def make() -> bytes:
        weights = np.random.default_rng(1).standard_normal((depth, columns)).astype(np.float32)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        return _model([node], (rows, depth), (rows, columns), {"w": weights}, TensorProto.FLOAT)

    return make


def _quantised(channels: int, filters: int, side: int, kernel: int) -> Callable[[], bytes]:
    def make() -> bytes:
        weights = np.random.default_rng(1).integers(-127, 128, (filters, channels, kernel, kernel)).astype(np.int8)
        constants: dict[str, np.ndarray] = {
            "scale": np.asarray(0.02, np.float32),
            "zero": np.asarray(120, np.uint8),
            "w": weights,
            "w_scale": np.full(filters, 0.001, np.float32),
            "w_zero": np.zeros(filters, np.int8),
        }
        given = ["scale", "zero", "w", "w_scale", "w_zero", "scale", "zero"]
        nodes = [
            helper.make_node("QLinearConv", [one, *given], [other], pads=[kernel // 2] * 4)
            for one, other in _chain(channels == filters)
        ]
        return _model(nodes, (1, channels, side, side), (1, filters, side, side), constants, TensorProto.UINT8)

    return make


CONV_3X3 = _convolution(64, 64, 56, 3)
CONV_1X1 = _convolution(96, 24, 56, 1)
DEPTHWISE = _convolution(96, 96, 56, 3, group=96)
QUANTISED = _quantised(64, 64, 56, 3)
CORES = ("cpu:cortex-a76", "cpu:neoverse-n1")
JUDGED: tuple[Judged, ...] = (
    *(
        judged
        for core in CORES
        for judged in (
            Judged("ResNet-18 3x3, 64 to 64, 56x56", CONV_3X3, core, "contraction"),
            Judged("ResNet-18 3x3, 64 to 64, 56x56", CONV_3X3, core, "winograd"),
            Judged("MobileNet V2 1x1, 96 to 24, 56x56", CONV_1X1, core, "contraction"),
            Judged("MobileNet V2 depthwise 3x3, 96, 56x56", DEPTHWISE, core, "window"),
            Judged("one row by 1280 x 1000", _product(1, 1280, 1000), core, "gemv"),
            Judged("3x3 of bytes, 64 to 64, 56x56", QUANTISED, core, "integer"),
        )
    ),
    Judged("3x3 of bytes, 64 to 64, 56x56", QUANTISED, "cpu:aarch64", "integer"),
    Judged("3x3 of bytes, 64 to 64, 56x56", QUANTISED, "cpu:neoverse-v1", "integer"),
    Judged("MobileNet V2 1x1, 96 to 24, 56x56", CONV_1X1, "cpu:neoverse-v1", "bf16", "bf16"),
)
