"""Keys of records whose kernels read constants of every encoding: what was measured on them must stay found."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from compiler.codegen.calls import workload_of
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.tuning.tune import workload_key

DEPTH, COLUMNS = 1024, 320
PRODUCT = """workload
  kernel MatMul(in x: {type}[{rows}, 1024], in w: {type}[1024, 320]; out y: {sum}[{rows}, 320])
    for m:{rows}, n:320
      y[m, n] = sum<{sum}> k:1024 . mul({left}x[m, k]{right}, {left}w[k, n]{right})
  input b0: {type}[{rows}, 1024] plain
  constant b0: {type}[1024, 320] plain
  output b0: {sum}[{rows}, 320] plain"""


def floats() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(DEPTH, COLUMNS)).astype(np.float32)


def anywhere() -> np.ndarray:
    return np.asarray(floats() * (np.random.default_rng(2).random((DEPTH, COLUMNS)) < 0.1), np.float32)


def blocks() -> np.ndarray:
    """Of 2 elements of a column by 16 columns."""
    kept = np.random.default_rng(3).random((DEPTH // 2, COLUMNS // 16)) < 0.2
    return np.asarray(floats() * kept.repeat(2, 0).repeat(16, 1), np.float32)


def combined() -> np.ndarray:
    """Each group of four rows has one element for each column."""
    taken = np.random.default_rng(4).integers(0, 4, (DEPTH // 4, 1, COLUMNS)) == np.arange(4)[:, None]
    return np.asarray(floats() * taken.reshape(DEPTH, COLUMNS), np.float32)


def two_of_four() -> np.ndarray:
    return np.asarray(floats() * (np.arange(DEPTH) % 4 < 2)[:, None], np.float32)


def clustered() -> np.ndarray:
    return np.asarray(np.rint(4 * floats()).clip(-8, 7) / np.float32(4))


def octets() -> np.ndarray:
    return np.asarray(np.rint(40 * anywhere()).clip(-128, 127), np.int8)


def graph_of(rows: int, constant: np.ndarray, *, halves: bool) -> KernelGraph:
    """A product of so many rows by a constant."""
    whole = constant.dtype == np.int8
    words = ("i8", "i32", "cast(", "):i32") if whole else ("f32", "f32", "", "")
    text = PRODUCT.format(rows=rows, **dict(zip(("type", "sum", "left", "right"), words, strict=True)))
    product = parse_workload(text)
    buffers = {at: replace(one, id=at, storage=at) for at, one in enumerate((*product.inputs, *product.outputs))}
    return KernelGraph(buffers, (Call(product.kernel, (0, 1), (2,)),), (0,), (2,), {1: constant}, halves)


def workloads_of(constant: np.ndarray) -> list[Workload]:
    """A product of 1, 16 and 64 rows, for CPUs without and with bf16, and for a GPU."""
    graphs = [graph_of(rows, constant, halves=halves) for rows in (1, 16, 64) for halves in (False, True)]
    return [
        *(workload_of(graph, graph.calls[0]) for graph in graphs),
        *(cuda_workload_of(graph, graph.calls[0]) for graph in graphs[::2]),
    ]


KEYS: tuple[tuple[Callable[[], np.ndarray], str, str], ...] = (
    (floats, "329b1bc8c31d1215", "772506d1dbd2faa0"),
    (anywhere, "cd22a07194665bbf", "49ac30245857aa1c"),
    (octets, "c862eb5de7585b28", "ffe1516aa49345b8"),
    (blocks, "6d50016138a7e4ca", "8fd6151f038ca3ba"),
    (combined, "2f1cbfb0f69f0802", "8cb842e4623be556"),
    (two_of_four, "ede3a616621a8ea8", "63e27bb31a1deda1"),
    (clustered, "c1fec666d6cdcdd8", "22cbde74b64f22d3"),
)
"""Constants with digests of the keys of their workloads, and of what Python prints of them."""


@pytest.mark.parametrize(("constant", "keys", "printed"), KEYS, ids=[one.__name__ for one, *_ in KEYS])
def test_keys_of_encoded_constants_stay_what_they_were(
    constant: Callable[[], np.ndarray], keys: str, printed: str
) -> None:
    workloads = workloads_of(constant())
    for workload in workloads:
        workload.verify()
        assert parse_workload(str(workload)) == workload
    assert (digest(list(map(workload_key, workloads))), digest(workloads)) == (keys, printed)


def digest(of: object) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:16]
