"""The networks of the GPU's measurements, their inputs, and the least time that an inference can take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from bench.zoo import build
from bench.zoo.flops import gflop, static_shapes
from bench.zoo.operators import SAMPLES, model_of
from compiler.devices.cuda.target import CudaTarget

NETWORKS = (
    "squeezenet1_0",
    "inception_v3",
    "resnet50",
    "mobilenet_v2",
    "bert_base",
    "nasnet_a_mobile",
    "randwire_small",
    "nasnet_a_large",
)
"""Of `bench.zoo`, in the order in which they are measured."""
PRECISIONS = ("fp16", "tf32")
WIDTH: Mapping[str, int] = {"fp16": 2, "tf32": 4}
"""Bytes of a weight in memory."""
TOLERANCE: Mapping[str, float] = {"fp16": 2e-2, "tf32": 5e-3}
"""Relative norm by which two engines' outputs may differ. Each alone is some 1e-3 and 3e-4 from the float64 reference,
deep networks more."""
SMALL_NUMBERS = 2
"""Integer inputs are drawn below this: token types of BERT know no other, words and masks take them too."""


KERNELS = tuple(sample.name for sample in SAMPLES)
"""Single operators, each a network of its own."""


def model_file(name: str, folder: Path) -> Path:
    """A network or kernel as a file, made if it is not there: the same name gives the same bytes."""
    file = folder / f"{name}.onnx"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".part")
        samples = [model_of(sample) for sample in SAMPLES if sample.name == name]
        model = samples[0] if samples else build(name)
        draft.write_bytes(model.SerializeToString(deterministic=True))
        draft.replace(file)
    return file


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Random values for each input.

    Normal floats; integers 0 and 1, the first of each row 1, so that no mask hides everything.
    """
    random, shapes = np.random.default_rng(seed), static_shapes(model)
    initialised = {tensor.name for tensor in model.graph.initializer}
    drawn = {}
    for value in model.graph.input:
        if value.name in initialised:
            continue
        shape, dtype = shapes[value.name], onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype.kind == "f":
            drawn[value.name] = random.standard_normal(shape).astype(dtype)
        else:
            drawn[value.name] = random.integers(0, SMALL_NUMBERS, shape).astype(dtype)
            drawn[value.name][..., :1] = 1
    return drawn


def floor_ms(model: onnx.ModelProto, precision: str, target: CudaTarget) -> float:
    """max(bytes / bandwidth, operations / rate), in milliseconds: what no implementation at batch 1 can beat.

    Bytes are weights, inputs and outputs, each once. Between inferences weights stay in L2 where they fit into it; then
    its bandwidth counts.
    """
    shapes = static_shapes(model)
    weights = sum(math.prod(tensor.dims) for tensor in model.graph.initializer)
    ends = sum(math.prod(shapes[value.name]) for value in (*model.graph.input, *model.graph.output))
    nbytes = WIDTH[precision] * (weights + ends)
    per_ns = target.l2_per_ns if nbytes <= target.l2_bytes else target.dram_per_ns
    per_clock = max(target.mma_per_clock, target.wgmma_per_clock) / (WIDTH[precision] // 2)
    rate = 2 * per_clock * target.multiprocessors * target.clock_ghz  # operations per nanosecond
    return float(1e-6 * max(nbytes / per_ns, 1e9 * gflop(model) / rate))
