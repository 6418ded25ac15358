from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from compiler.compress.alone import SCALE, model_of
from compiler.compress.factors import Factorer
from compiler.compress.layers import layers_of
from compiler.compress.parts import parts_of
from compiler.contract import CompressOptions
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.network import open_network
from tests.compiler.quantize.models import Drawn, saved


def test_two_parts_compute_what_their_product_does(tmp_path: Path) -> None:
    d = Drawn()
    window = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
    d.node("Conv", ["x", d.weights("w0", 32, 8, 3, 3), d.weights("b0", 32)], "a", "window", **window)
    d.node("Flatten", [d.node("GlobalAveragePool", ["a"], "gap")], "flat")
    d.node("Gemm", ["flat", d.weights("w1", 48, 32), d.weights("b1", 48)], "b", "gemm", transB=1, alpha=0.5)
    d.node("MatMul", ["b", d.weights("w2", 48, 40)], "y", "product")
    path = saved(d.model({"x": (2, 8, 9, 10)}, {"y": (2, 40)}), tmp_path)
    _, network = open_network(path)
    sample = {"x": np.zeros((2, 8, 9, 10), np.float32)}
    layers, _ = layers_of(network, Evaluated(path, CompressOptions(sparsity=0.5)).loaded(sample).graph, (), ends=True)
    random = np.random.default_rng(5)
    for layer, x in zip(layers, ((2, 8, 9, 10), (2, 32), (2, 48)), strict=True):
        rows = layer.rows(layer.weights)
        factors = Factorer(rows, np.eye(rows.shape[1]), "magnitude").at(6)
        whole, parts = (parts_of(layer, layer.shaped(factors.u @ factors.v), each) for each in (None, factors))
        assert [len(whole), len(parts), parts[0].weights.shape[parts[0].axis]] == [1, 2, 6]
        given = random.integers(0, 256, [x[0], *x[2:], x[1]] if len(x) > 2 else x).astype(np.uint8)
        results = []
        for one, in_bytes in ((whole, False), (parts, False), (parts, True)):
            session = onnxruntime.InferenceSession(
                model_of(layer, x, one, in_bytes=in_bytes), providers=["CPUExecutionProvider"]
            )
            read = given if in_bytes else (given.astype(np.float32) - 128) * SCALE
            results.append(np.asarray(session.run(None, {"x": read})[0]))
        assert np.allclose(results[0], results[1], rtol=1e-4, atol=1e-5)
        assert (results[2].dtype.name, results[2].shape) == ("uint8", results[0].shape)
        assert np.abs(results[0]).max() > 0.1
