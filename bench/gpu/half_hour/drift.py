"""How far long sums of products drift on this machine's tensor cores, and which account of how they add that fits.

An instruction shifts its products and the sum so far to the largest exponent among them, cuts them off and adds; so
sums of positive terms come out too small. Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores"
(arXiv 2512.07004), say how many products an A100 and an H100 take at a time and how many bits they keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms import legal_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.measure.apart import BenchApart, Lost
from compiler.devices.cuda.measure.bench import Operand, Refused, Subject
from compiler.devices.cuda.target import CudaTarget
from compiler.errors import ToolchainFailed
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.measure.results import computed

TERMS = 4608
"""Of a sum: 512 channels of a window of 3 by 3."""
SIDE = 64
PRODUCT = """workload
  kernel MatMul(in x: f32[{side}, {k}], in w: f32[{k}, {side}]; out y: f32[{side}, {side}])
    for i:{side}, j:{side}
      y[i, j] = sum<f32> k:{k} . mul(x[i, k], w[k, j])
  input b0: f32[{side}, {k}] plain
  constant b0: f32[{k}, {side}] plain
  output b0: f32[{side}, {side}] plain"""
PRECISIONS: Mapping[str, DType | None] = MappingProxyType({"fp16": DType.F16, "tf32": None, "fp32": None})
"""With the dtype of operands in memory."""
MODELS: Mapping[str, tuple[int, int]] = MappingProxyType({"A100": (8, 1), "H100": (16, 2)})
"""By GPU: products of 16 bits that are added at a time, in tf32 half as many, and bits kept behind the last of a
float."""


def drifts(target: CudaTarget) -> list[dict[str, Any]]:
    """For each algorithm of each precision the mean error of its sums, as a part of them; None where it did not run."""
    found = []
    for precision, workload, tile in trials(target):
        x, w = operands_of(workload)
        row: dict[str, Any] = {"precision": precision, "algorithm": tile.algorithm, "terms": x.shape[1]}
        try:
            row["drift"] = drift_of(_sums(workload, tile, target, (x, w)), x, w)
        except (ToolchainFailed, Refused, Lost) as error:
            row |= {"drift": None, "problem": str(error)[-300:]}
        if precision != "fp32":
            row["expected"] = {gpu: drift_of(added(x, w, precision, gpu), x, w[:, :1]) for gpu in MODELS}
        found.append(row)
    return found


def trials(target: CudaTarget) -> Iterator[tuple[str, Workload, Tile]]:
    """The cheapest tile by the model of each algorithm of a product."""
    dense = parse_workload(PRODUCT.format(side=SIDE, k=TERMS))
    for precision, element in PRECISIONS.items():
        workload = replace(dense, inputs=tuple(replace(one, element=element) for one in dense.inputs))
        best: dict[str, Tile] = {}
        for one in sorted(legal_tiles(workload, target, 1, precision), key=lambda one: one.seconds):
            best.setdefault(one.tile.algorithm, one.tile)
        for tile in best.values():
            yield precision, workload, tile


def operands_of(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Positive numbers of 11 bits, exact in every dtype but bf16, so that sums alone are rounded."""
    random = np.random.default_rng(0)
    x, w = (random.integers(1024, 2048, buffer.type.dims) / np.float32(2048) for buffer in workload.inputs)
    return x.astype(np.float32), w.astype(np.float32)


def _sums(workload: Workload, tile: Tile, target: CudaTarget, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """In a process of its own: a kernel that faults takes no other with it."""
    lowered = lower_cuda("drift", workload, tile, target)
    image = nvrtc.compile_cuda(PREAMBLE + lowered.text, target.architecture, "drift.cu").image
    buffers = (*workload.inputs, *workload.outputs)
    subject = Subject(
        image,
        lowered.name,
        lowered.grid,
        lowered.block,
        tuple(Operand(one.dtype, one.span, written=at >= len(inputs)) for at, one in enumerate(buffers)),
        lowered.shared_bytes,
        lowered.scratch_bytes,
        lowered.counters,
        lowered.cluster,
    )
    with closing(BenchApart()) as bench:
        (sums,) = computed(workload, lowered.packings, inputs, lambda operands: bench.compute(subject, operands))
    return sums


def drift_of(sums: np.ndarray, x: np.ndarray, w: np.ndarray) -> float:
    """The mean of the sums' relative errors, with its sign."""
    exact = x.astype(np.float64) @ w.astype(np.float64)
    return float(np.mean((sums.astype(np.float64) - exact) / exact))


def added(x: np.ndarray, w: np.ndarray, precision: str, gpu: str) -> np.ndarray:
    """The first column of the product as the tensor cores of a GPU are said to add it, in instructions one by one."""
    at_once, bits = MODELS[gpu]
    at_once //= 1 + (precision == "tf32")
    products = x.astype(np.float64) * w[:, 0].astype(np.float64)
    total = np.zeros(len(x))
    for begin in range(0, products.shape[1], at_once):
        terms = np.column_stack([total, products[:, begin : begin + at_once]])
        last = np.frexp(np.abs(terms).max(axis=1, keepdims=True))[1] - 24
        total = _cut(_cut(terms, last - bits).sum(axis=1, keepdims=True), None)[:, 0]
    return total[:, None]


def _cut(values: np.ndarray, last: np.ndarray | None) -> np.ndarray:
    """Toward zero at 2^last; None: to a float."""
    unit = np.exp2(np.frexp(values)[1] - 24 if last is None else last)
    result: np.ndarray = np.trunc(values / unit) * unit
    return result


def told_drifts(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each row."""
    lines = []
    for row in found:
        name = f"sums of {row['terms']} products, {row['algorithm']} in {row['precision']}"
        if row["drift"] is None:
            lines.append(f"{name}: did not run: {row['problem']}")
            continue
        expected = ", ".join(f"{gpu} {drift:+.1e}" for gpu, drift in row.get("expected", {}).items())
        lines.append(f"{name}: {row['drift']:+.1e} of the sum{f' (as described: {expected})' if expected else ''}")
    return lines
