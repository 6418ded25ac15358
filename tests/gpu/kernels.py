"""Every algorithm of CUDA targets on kernels of small networks.

What each tile computes, beside what the kernel means.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.zoo import build
from compiler.codegen.calls import workload_of
from compiler.contract import CompileOptions
from compiler.devices.cuda.algorithms import ALGORITHMS, ALWAYS, BY_NAME, READ_CODES
from compiler.devices.cuda.algorithms.gemv import GEMV
from compiler.devices.cuda.algorithms.quantised import QUANTISED
from compiler.devices.cuda.algorithms.sparse import SPARSE, SPARSE_WGMMA
from compiler.devices.cuda.algorithms.vector_sparse import VECTOR_SPARSE
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit import lower
from compiler.devices.cuda.target import CudaTarget
from compiler.encodings.blocks import Blocks
from compiler.encodings.encoding import DENSE, pruned
from compiler.encodings.quantised import Quantised
from compiler.encodings.two_of_four import GROUP, TwoOfFour
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.fuse.joins import joins
from compiler.fuse.storage import with_storage
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.evaluate import evaluate
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Tile
from compiler.measure.memory import allocate, read_buffer, write_buffer
from compiler.measure.pattern import reads_indices
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from compiler.tuning.proposal import Proposal
from tests.cuda_double.double import Device
from tests.gpu.family import Family, Outcome, Trial

T = TypeVar("T")
NETWORKS: tuple[tuple[str, dict[str, int]], ...] = (
    ("tiny_cnn", {}),
    ("tiny_inception", {}),
    ("tiny_mobile", {}),
    ("tiny_transformer", {}),
    ("tiny_detector", {}),
    ("tiny_lstm", {}),
    ("squeezenet1_0", {"size": 64}),
    ("mobilenet_v2", {"size": 64}),
)
"""Their kernels are what algorithms are tried on."""
OF_BYTES = (
    """workload
  kernel MatMulInteger(in x: i8[{m}, {k}], in w: i8[{k}, {n}]; out y: i32[{m}, {n}])
    for m:{m}, n:{n}
      y[m, n] = sum<i32> k:{k} . mul(sub(cast(x[m, k]):i32, 3:i32), cast(w[k, n]):i32)
  input b0: i8[{m}, {k}] plain
  constant b0: i8[{k}, {n}] plain
  output b0: i32[{m}, {n}] plain""",
    """workload
  kernel ConvInteger(in x: u8[1, 32, 90], in w: i8[40, 32, 3]; out y: i32[1, 40, 90])
    for n:1, k:40, o:90
      y[0, k, o] = sum<i32> c:32, r:3 . mul(where(and(ge(#(o + r - 1):i64, 0:i64), lt(#(o + r - 1):i64, 90:i64)),
        sub(cast(x[0, c, o + r - 1]):i32, {zero}:i32), 0:i32), cast(w[k, c, r]):i32)
  input b0: u8[1, 32, 90] <0 2 1>
  constant b0: i8[40, 32, 3] plain
  output b0: i32[1, 40, 90] <0 2 1>""",
)
"""Products of bytes, which those networks have none of: the product also with rows in whole pieces of 16 bytes, the
convolution with a zero point of 0 and another."""
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
ELEMENTS = {"fp16": DType.F16, "bf16": DType.BF16}
TOLERANCE = {"fp32": 1e-5, "tf32": 1e-3, "fp16": 2e-3, "bf16": 1.6e-2}
"""Relative norm of an output's error: float32 sums in another order, operands of products rounded to tf32, results
rounded to 16 bits.
"""
MOST_POINTS = 2**25
"""Of a kernel whose meaning is worked out in numpy."""
TILES, SUBJECTS = 3, 40
"""Tiles of one kernel and algorithm that are tried: the cheapest by the model, the dearest, one between; kernels and
tiles of one family.
"""
SPARSE_KERNELS = 4
"""Kernels that are also tried with weights that are zero at two of each four places; those of bytes all are."""
VECTOR_KERNELS = 2
"""Kernels that are also tried with weights that neighbouring columns keep together, for each of VECTOR_GROUPS; of
those of bytes each that has whole groups of all sizes."""
VECTOR_GROUPS = (1, 8)
"""Neighbours along k that are kept together: read one by one, and in pieces of 16 bytes."""
CODED_KERNELS = 3
"""Matrices that are also tried as codes of 4 bits, in blocks of CODED_BLOCK along each axis."""
CODED_BLOCK = 32
VECTOR_FILLS = (16, 24, 32)
"""What is kept by 8, 16 and 32 columns together, in 64ths."""
SLACK = 256
"""Bytes after an operand that no kernel may touch."""


@dataclass(frozen=True)
class Subject:
    """A kernel, how it is carried out, and what makes the code for that: not before it is asked for."""

    workload: Workload
    tile: Tile
    lower: Callable[[], CudaLowered]
    precision: str

    @cached_property
    def lowered(self) -> CudaLowered:
        """The code, made once."""
        return self.lower()

    def __str__(self) -> str:
        return f"{self.lowered.name} {self.workload.kernel.family} {self.tile}"


def names() -> list[str]:
    """Of all families: each algorithm in each precision, whether or not it has something to do there."""
    return [f"{algorithm} {precision}" for precision in PRECISIONS for algorithm in sorted(BY_NAME)]


def families(target: CudaTarget, asked: Sequence[str]) -> Iterator[Family]:
    """Those of `names()` that are asked for; one without trials where an algorithm has nothing to do in a precision."""
    for precision in PRECISIONS:
        wanted = {name.rpartition(" ")[0] for name in asked if name.endswith(f" {precision}")}
        if not wanted:
            continue
        by_algorithm: dict[str, list[Subject]] = {}
        for subject in subjects(target, precision):
            by_algorithm.setdefault(subject.tile.algorithm, []).append(subject)
        for algorithm in sorted(wanted):
            chosen = _spread(by_algorithm.get(algorithm, []), SUBJECTS)
            source = PREAMBLE + "\n".join(subject.lowered.text for subject in chosen)
            trials = tuple(Trial(str(subject), partial(run, subject=subject)) for subject in chosen)
            needs = "sm_90a" if "TW_SM90A" in source else "sm_90" if "TW_SM90" in source else "sm_80"
            yield Family(f"{algorithm} {precision}", source, trials, (), needs)


def run(device: Device, subject: Subject) -> list[Outcome]:
    """The outputs beside what the kernel means; what must not be written is compared bit for bit.

    Raises AssertionError where a counter is left that is not zero.
    """
    workload, lowered = subject.workload, subject.lowered
    buffers = (*workload.inputs, *workload.outputs)
    inputs = inputs_of(workload)
    memories = [allocate(buffer.span * buffer.dtype.bytes + SLACK) for buffer in buffers]
    for memory, buffer, array in zip(memories, buffers, inputs, strict=False):
        write_buffer(memory, buffer, array)
    uploaded = [device.upload(memory) for memory in memories]
    arguments = [
        np.uint64(at.address + buffer.offset * buffer.dtype.bytes) for at, buffer in zip(uploaded, buffers, strict=True)
    ]
    for position, packing in lowered.packings.items():
        arguments[position] = np.uint64(device.upload(packing.pack(inputs[position])).address)
    if lowered.scratch_bytes:
        arguments.append(np.uint64(device.allocate(lowered.scratch_bytes).address))
    counters = device.upload(np.zeros(max(lowered.counters, 1), np.uint32))
    if lowered.counters:
        arguments.append(np.uint64(counters.address))
    for _ in range(2 if lowered.counters else 1):  # the second launch finds the counters as the first left them
        device.launch(lowered.name, [lowered.grid], [lowered.block], arguments, lowered.shared_bytes, [lowered.cluster])
    assert not device.download(counters, [max(lowered.counters, 1)], np.uint32).any(), "counters stay"
    outcomes = []
    assert isinstance(workload.kernel, Kernel)
    wanted = evaluate(workload.kernel, [_rounded(array, at) for array, at in zip(inputs, buffers, strict=False)])
    expected = iter(wanted)
    for at, (memory, buffer) in enumerate(zip(memories, buffers, strict=True)):
        after = device.download(uploaded[at], memory.shape, memory.dtype)
        kept = after
        if at >= len(inputs):
            want, got = next(expected), read_buffer(after, buffer)
            outcomes.append(Outcome(got, want, TOLERANCE[subject.precision] if want.dtype.kind == "f" else 0.0))
            kept = after.copy()
            octets = _octets(buffer)
            write_buffer(kept, octets, read_buffer(memory, octets))
        outcomes.append(Outcome(kept, memory))
    return outcomes


def inputs_of(workload: Workload) -> tuple[np.ndarray, ...]:
    """Random arrays by what a kernel does with them.

    Floats in [-1, 1), zero where a constant is known to be; integers that may be indices all zero, bytes any, others
    small.
    """
    random = np.random.default_rng(0)
    zero = reads_indices(workload.kernel)
    arrays = [_array(buffer.type, random, zero=zero) for buffer in workload.inputs]
    return tuple(pruned(array, encodings) for array, encodings in zip(arrays, workload.encodings, strict=True))


def _array(type: TensorType, random: np.random.Generator, *, zero: bool) -> np.ndarray:
    if type.dtype.is_float:
        return random.uniform(-1, 1, type.dims).astype(type.dtype.numpy)
    if type.dtype is DType.BOOL:
        return random.integers(0, 2, type.dims).astype(np.bool_)
    if zero:
        return np.zeros(type.dims, type.dtype.numpy)
    limits = np.iinfo(type.dtype.numpy)
    least, most = (limits.min, limits.max) if type.dtype.bytes == 1 else (1, 9)
    return random.integers(least, most + 1, type.dims).astype(type.dtype.numpy)


def _rounded(array: np.ndarray, buffer: Buffer) -> np.ndarray:
    """An input as it lies in memory."""
    return array.astype(buffer.dtype.numpy).astype(array.dtype) if buffer.element else array


def _octets(buffer: Buffer) -> Buffer:
    """The same bytes, in a dtype that takes any of them as they are."""
    dtype = {DType.BOOL: DType.U8, DType.F16: DType.I16, DType.BF16: DType.I16}.get(buffer.dtype, buffer.dtype)
    return replace(buffer, type=TensorType(dtype, buffer.type.shape), element=None)


def subjects(target: CudaTarget, precision: str) -> Iterator[Subject]:
    """Kernels of all networks under a few tiles of each algorithm."""
    number, sparse_left, vectors_left = 0, SPARSE_KERNELS, len(VECTOR_GROUPS) * VECTOR_KERNELS
    coded_left = dict.fromkeys(READ_CODES, CODED_KERNELS)
    for dense in _workloads(ELEMENTS.get(precision)):
        by_algorithm: dict[tuple[str, Workload], list[Proposal]] = {}
        for proposal in proposals(dense, target, precision):
            by_algorithm.setdefault((proposal.tile.algorithm, dense), []).append(proposal)
        if (sparse_left and precision in ELEMENTS) or dense in of_bytes():
            for sparse in _zero_at_two_of_four(dense):
                for one in (SPARSE, SPARSE_WGMMA):
                    if found := one.tiles(sparse, target, precision):
                        by_algorithm[found[0].tile.algorithm, sparse] = found
                        sparse_left -= one is SPARSE
        in_vectors = tuple(_zero_in_vectors(dense))
        if vectors_left or (dense in of_bytes() and len(in_vectors) == len(VECTOR_GROUPS)):
            for sparse in in_vectors:
                for proposal in VECTOR_SPARSE.tiles(sparse, target, precision):
                    by_algorithm.setdefault((proposal.tile.algorithm, sparse), []).append(proposal)
                taken = any(workload == sparse for _, workload in by_algorithm)
                vectors_left -= taken and dense not in of_bytes()
        by_algorithm |= _from_codes(dense, target, precision, coded_left)
        for (_, workload), found in by_algorithm.items():
            ranked = sorted(found, key=lambda proposal: proposal.seconds)
            for tile in dict.fromkeys(one.tile for one in _spread(ranked, TILES)):
                number += 1
                code = partial(lower.lower_cuda, f"k{number}", workload, tile, target)
                yield Subject(workload, tile, code, precision)


def _zero_at_two_of_four(workload: Workload) -> Iterator[Workload]:
    """The same by weights that sparse tensor cores may take: each constant along each of its dimensions."""
    dense = tuple((DENSE,) for _ in workload.inputs)
    for at, (buffer, constant) in enumerate(zip(workload.inputs, workload.constant, strict=True)):
        if constant and buffer.type.rank > 1:
            for axis in (axis for axis, dim in enumerate(buffer.type.dims) if dim % GROUP == 0):
                found = (DENSE, TwoOfFour.of(axis))
                yield replace(workload, encodings=(*dense[:at], found, *dense[at + 1 :]))


def _zero_in_vectors(workload: Workload) -> Iterator[Workload]:
    """The same by weights that neighbouring columns keep together, in groups of each size; filters, or a matrix."""
    dense = tuple((DENSE,) for _ in workload.inputs)
    for at, (buffer, constant) in enumerate(zip(workload.inputs, workload.constant, strict=True)):
        if constant and buffer.type.rank in (2, 4):
            lines = 0 if buffer.type.rank == 4 else 1
            for group in VECTOR_GROUPS:
                one = Blocks.of(lines, 1 - lines, group, VECTOR_FILLS)
                if one.fits(buffer.type.dims):
                    yield replace(workload, encodings=(*dense[:at], (DENSE, one), *dense[at + 1 :]))


def _from_codes(
    dense: Workload, target: CudaTarget, precision: str, left: dict[str, int]
) -> dict[tuple[str, Workload], list[Proposal]]:
    """What reads codes proposes for a kernel's matrices, as long as there are kernels `left` to try an algorithm on."""
    found: dict[tuple[str, Workload], list[Proposal]] = {}
    for coded in _in_codes(dense):
        for proposal in (one for each in (GEMV, QUANTISED) for one in each.tiles(coded, target, precision)):
            if left.get(proposal.tile.algorithm, 0) > 0:
                found.setdefault((proposal.tile.algorithm, coded), []).append(proposal)
    for algorithm, _ in found:
        left[algorithm] -= 1
    return found


def _in_codes(workload: Workload) -> Iterator[Workload]:
    """The same by matrices of few bits, along each axis that has whole blocks."""
    dense = tuple((DENSE,) for _ in workload.inputs)
    for at, (buffer, constant) in enumerate(zip(workload.inputs, workload.constant, strict=True)):
        if constant and buffer.type.rank == 2 and buffer.type.dtype is DType.F32:
            for axis, one in ((axis, Quantised.of(4, axis, CODED_BLOCK, centred=axis == 0)) for axis in (0, 1)):
                if buffer.type.dims[axis] % CODED_BLOCK == 0:
                    yield replace(workload, encodings=(*dense[:at], (DENSE, one), *dense[at + 1 :]))


def proposals(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """All legal tiles, plain loops among them whatever else there is."""
    return [proposal for one in (*ALGORITHMS, *ALWAYS) for proposal in one.tiles(workload, target, precision)]


@lru_cache(maxsize=4)
def _workloads(element: DType | None) -> tuple[Workload, ...]:
    """The distinct kernels of all networks whose meaning is quickly worked out."""
    found: dict[Workload, None] = {} if element else dict.fromkeys(of_bytes())
    for name, options in NETWORKS:
        graph = kernel_graph(name, element, **options)
        for call in (*graph.calls, *(join.call for join in joins(graph))):
            if isinstance(call.kernel, Kernel) and _points(call.kernel) <= MOST_POINTS:
                found[workload_of(graph, call)] = None
    return tuple(found)


@lru_cache(maxsize=1)
def of_bytes() -> tuple[Workload, ...]:
    """Those of OF_BYTES."""
    product, convolution = OF_BYTES
    products = (product.format(m=70, k=516, n=72), product.format(m=24, k=272, n=72))
    texts = (*products, *(convolution.replace("{zero}", str(zero)) for zero in (0, 7)))
    return tuple(map(parse_workload, texts))


def kernel_graph(name: str, element: DType | None, **options: int) -> KernelGraph:
    """A network of the zoo as fused kernels, its fp32 tensors in memory as `element`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.onnx"
        file.write_bytes(build(name, **options).SerializeToString())
        graph = load(file, CompileOptions(), OPERATORS).graph
    fused = fuse(rewrite(graph).graph).kernels
    return with_storage(fused, element) if element else fused


def _points(kernel: Kernel) -> int:
    """Points of a kernel's largest block, reductions included."""
    return max(prod(axis.extent for axis in (*kernel.shared, *block.axes, *block.reduction)) for block in kernel.blocks)


def _spread(items: Sequence[T], count: int) -> list[T]:
    """At most `count` items, evenly chosen, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[round(at * (len(items) - 1) / (count - 1))] for at in range(count)]
