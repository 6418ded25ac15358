"""ONNX Runtime as a reference, whatever the processor.

On x86 without VNNI it multiplies uint8 by int8 with `vpmaddubsw`, whose sums of two products saturate at 16 bits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime


def signed_weights(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights in int8 of which no two, with any uint8 values, have a sum of products beyond 16 bits: -64 to 63."""
    return random.integers(-64, 64, shape).astype(np.int8)


def exact_session(model: bytes | Path) -> onnxruntime.InferenceSession:
    """A session that computes what lies between DequantizeLinear and QuantizeLinear in float32, as they say."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
