"""The networks of the GPU's measurements, their inputs, and the least time that an inference can take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from bench.loops.decoder import greedy_decoder
from bench.zoo import build
from bench.zoo.flops import gflop, static_shapes
from bench.zoo.operators import SAMPLES, model_of
from compiler.contract import QuantizeOptions
from compiler.devices.cuda.target import CudaTarget
from compiler.encodings.quantised import Quantised
from compiler.encodings.two_of_four import GROUP
from compiler.quantize import quantize

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


FEW_BITS_BLOCK = 32
"""Of matrices of few bits: inputs that share a scale."""
DERIVED_SAMPLES = 3
"""By which a network is quantised: nobody asks how accurate it is."""
KERNELS = tuple(sample.name for sample in SAMPLES)
"""Single operators, each a network of its own."""


def model_file(name: str, folder: Path) -> Path:
    """A network or kernel as a file, made if it is not there: the same name gives the same bytes.

    `NETWORK-2of4` has zeros at two of each four neighbouring inputs of its weights, `NETWORK-int4` matrices of 4 bits,
    `NETWORK-int8` is quantised; `decoder-STEPS` is a loop that data end.
    """
    file = folder / f"{name}.onnx"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft, (base, _, form) = file.with_suffix(".part"), name.partition("-")
        if form == "int8":
            quantize(model_file(base, folder), draft, QuantizeOptions(derived_samples=DERIVED_SAMPLES))
        elif base == "decoder":
            draft.write_bytes(greedy_decoder(128, 4, 2, 2000, int(form)))
        else:
            samples = [model_of(sample) for sample in SAMPLES if sample.name == name]
            model = samples[0] if samples else build(base)
            if form == "2of4":
                _with_zeros(model)
            if form == "int4":
                _with_few_bits(model)
            draft.write_bytes(model.SerializeToString(deterministic=True))
        draft.replace(file)
    return file


def _with_zeros(model: onnx.ModelProto) -> None:
    """Of each four neighbouring inputs of a convolution or a product the two smallest weights become zero.

    What is left is scaled, so that activations keep their size.
    """
    axis_of = _inputs_axes(model)
    for tensor in model.graph.initializer:
        axis, array = axis_of.get(tensor.name), onnx.numpy_helper.to_array(tensor)
        if axis is not None and array.ndim > 1 and array.shape[axis] % GROUP == 0:
            fours = np.moveaxis(array, axis, -1).copy().reshape(-1, GROUP)
            fours[np.arange(len(fours))[:, None], np.argsort(np.abs(fours), axis=-1)[:, : GROUP // 2]] = 0
            whole = np.moveaxis(fours.reshape(np.moveaxis(array, axis, -1).shape), -1, axis) * np.float32(2**0.5)
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(whole, array.dtype), tensor.name))


def _with_few_bits(model: onnx.ModelProto) -> None:
    """Matrices become numbers of 4 bits times a scale for each FEW_BITS_BLOCK of their inputs, written as floats."""
    axis_of = _inputs_axes(model)
    for tensor in model.graph.initializer:
        axis, array = axis_of.get(tensor.name), onnx.numpy_helper.to_array(tensor)
        if axis is not None and array.ndim == 2 and array.shape[axis] % FEW_BITS_BLOCK == 0:
            rounded = Quantised.of(4, axis, FEW_BITS_BLOCK, centred=True).pruned(array)
            tensor.CopyFrom(onnx.numpy_helper.from_array(rounded, tensor.name))


def _inputs_axes(model: onnx.ModelProto) -> dict[str, int]:
    """By the weights of convolutions and products, along which axis their inputs lie."""
    return {
        node.input[1]: 1
        if node.op_type == "Conv" or any(one.name == "transB" and one.i for one in node.attribute)
        else 0
        for node in model.graph.node
        if node.op_type in ("Conv", "Gemm", "MatMul")
    }


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
