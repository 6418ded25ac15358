"""The kernels of onnx's conformance suite as C: each compiled and run beside what its definition means."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.emit.program import kernel_sources
from compiler.devices.cpu.target import this_machine
from compiler.devices.kinds import propose
from compiler.errors import ModelError
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Graph, Node
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.ops import OPERATORS
from tests.compiler.backend_cases import by_definition, by_operator
from tests.compiler.backend_cases import loaded as loaded_case
from tests.compiler.devices.cpu.library import Case, Library, loaded

OPTIMISE = "-O1"
"""Vectors are explicit in the C: what more the compiler does is for speed, and its time is most of this test's."""
KERNELS_PER_LIBRARY = 200
LANES = 2
HERE = this_machine()
TOLERANCE: Mapping[DType, float] = {DType.F64: 1e-12, DType.F32: 2e-6, DType.F16: 2**-12, DType.BF16: 2**-9}
"""Relative to the largest element: a few units in the last place, sums being taken in another order than numpy's.

Half precision is computed in fp32 and rounded, to equal results."""


@dataclass(frozen=True)
class Subject:
    """One way to compute one node of one case."""

    operator: str
    source: str
    case: Case
    expected: tuple[np.ndarray, ...]


@dataclass
class Tally:
    """What became of an operator's kernels."""

    kernels: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def subjects() -> Iterator[Subject]:
    """Every node of the cases that load, once for each distinct kernel, in each way of lowering it."""
    seen: set[Kernel] = set()
    for cases in by_operator().values():
        for case in cases:
            try:
                graph, feeds, _ = loaded_case(case, case.data_sets[0][0])
            except ModelError:
                continue
            values = by_definition(graph, feeds)
            for node in graph.nodes:
                kernel = kernel_of(graph, node)
                if (nameless := replace(kernel, family="")) not in seen:
                    seen.add(nameless)
                    yield from ways(graph, node, kernel, values, case.name)


def kernel_of(graph: Graph, node: Node) -> Kernel:
    """What the operator is defined as."""
    types = tuple(None if id is None else graph.type(id) for id in node.inputs)
    return cast(Kernel, OPERATORS[node.op].define(node, types, tuple(graph.type(id) for id in node.outputs)))


def ways(graph: Graph, node: Node, kernel: Kernel, values: Mapping[int, np.ndarray], source: str) -> Iterator[Subject]:
    """The first proposal.

    For a contraction also the one with its second operand packed ahead of time, and plain loops.
    """
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    case = Case(kernel, buffers, tuple(np.asarray(values[id]) for id in node.used))
    expected = tuple(np.asarray(values[id]) for id in node.outputs)
    proposed = _first_tile(case.workload)
    yield Subject(node.op, source, replace(case, tile=proposed), expected)
    if proposed.algorithm == "contraction":
        yield Subject(node.op, source, case, expected)
        packed = replace(case, constant=(1,))
        yield Subject(node.op, source, replace(packed, tile=_first_tile(packed.workload)), expected)


def _first_tile(workload: Workload) -> Tile:
    return propose(workload, HERE, LANES)[0].tile


def lowered(all: Sequence[Subject], tallies: dict[str, Tally]) -> list[tuple[Subject, Lowered]]:
    """Each subject in C; what codegen refuses is noted with its reason."""
    found: list[tuple[Subject, Lowered]] = []
    for subject in all:
        tally = tallies.setdefault(subject.operator, Tally())
        tally.kernels += 1
        try:
            name = f"k{len(found)}_{subject.operator.lower()}"
            found.append((subject, lower(name, subject.case.workload, subject.case.tile, HERE)))
        except Exception as error:
            tally.refused.append(f"{subject.source} as {subject.case.tile.algorithm}: {type(error).__name__} {error}")
    return found


def fault(got: np.ndarray, want: np.ndarray) -> str:
    """How a result differs from the definition's beyond TOLERANCE; empty where it does not."""
    if DType.of(want.dtype).is_small:
        return "" if np.array_equal(got.astype(np.float64), want.astype(np.float64), equal_nan=True) else "off"
    if not DType.of(want.dtype).is_float:
        return "" if np.array_equal(got, want) else f"{np.sum(got != want)} of {got.size} elements differ"
    slack = TOLERANCE[DType.of(want.dtype)]
    wide, right = got.astype(np.float64), want.astype(np.float64)
    largest = float(np.max(np.abs(right), initial=1e-30, where=np.isfinite(right)))
    if np.allclose(wide, right, slack, slack * largest, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        return f"off by up to {np.nanmax(np.abs(wide - right)) / largest:.3g} of the largest element"


def judge(batch: Sequence[tuple[Subject, Lowered]], tallies: Mapping[str, Tally]) -> None:
    """Compiles a batch into one library, and runs it."""
    code = [one for _, one in batch]
    built = build_library(kernel_sources(code), HERE, find_toolchain(), optimise=OPTIMISE)
    library = Library(code, loaded(built))
    for number, (subject, _) in enumerate(batch):
        for got, want in zip(library.run(number, subject.case), subject.expected, strict=True):
            if reason := fault(got, want):
                description = f"{subject.source} as {subject.case.tile.algorithm}: {reason}"
                tallies[subject.operator].wrong.append(description)


def table(tallies: Mapping[str, Tally]) -> str:
    lines = [f"{'operator':28}{'kernels':>9}{'wrong':>9}{'refused':>9}"]
    for name, tally in sorted(tallies.items()):
        lines.append(f"{name:28}{tally.kernels:9}{len(tally.wrong):9}{len(tally.refused):9}")
        lines += [f"    WRONG {reason}" for reason in tally.wrong] + [
            f"    refused {reason}" for reason in tally.refused
        ]
    return "\n".join(lines)


def test_every_node_of_the_suite_computes_in_c_what_its_definition_says() -> None:
    """Never wrong, never rejected by the C compiler, never refused."""
    tallies: dict[str, Tally] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of onnx's own making
        found = lowered(list(subjects()), tallies)
    for first in range(0, len(found), KERNELS_PER_LIBRARY):
        judge(found[first : first + KERNELS_PER_LIBRARY], tallies)
    print(table(tallies))
    assert len(found) > 1000, "the suite has shrunk"
    assert not any(tally.wrong or tally.refused for tally in tallies.values()), table(tallies)
