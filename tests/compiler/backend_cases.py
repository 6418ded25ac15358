"""onnx's conformance suite through the front end.

Each case computed by references and by definitions, against what it expects.

`python -m tests.compiler.backend_cases` prints the table and every reason for a refusal; with a file name it writes the
table there.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from compiler.contract import CompileOptions
from compiler.errors import ModelError, UnsupportedModel
from compiler.frontend import Loaded, load
from compiler.ir.border import RANDOM_STATE
from compiler.ir.evaluate import evaluate
from compiler.ir.graph import Graph
from compiler.ir.kernel import Kernel
from compiler.ir.open_shapes import OpenShapes
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.prove.sizes import cut, own_outputs
from tests.conformance import collected

TABLE = Path(__file__).with_name("backend_cases.txt")

FED = ("CumProd", "CumSum", "ReduceMax", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze", "Trilu", "Unsqueeze")
"""Operators of which every input is fed as the suite feeds it: results at capacity are small enough for this."""
CONSTANT_INPUTS: Mapping[str, tuple[int, ...]] = {
    **{
        name: tuple(position for position, _ in record.parameters)
        for name, record in OPERATORS.items()
        if name not in FED
    },
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonZero": (0,),
    "Range": (0, 1, 2),
    "STFT": (1, 3),
    "Upsample": (1,),
}
"""Inputs that the suite feeds and that models mostly write as constants: they are made initializers."""


@dataclass(frozen=True)
class Verdict:
    """What became of one case: `refused` and `wrong` hold the reason, both empty where it is computed."""

    case: str
    refused: str = ""
    wrong: str = ""


@functools.cache
def by_operator() -> Mapping[str, tuple[Any, ...]]:
    """The suite's cases, those over expanded functions left out, by the operator of their first node."""
    found: dict[str, list[Any]] = {}
    for case in collected():
        if "_expanded" not in case.name and case.model is not None and case.data_sets:
            found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return {name: tuple(cases) for name, cases in sorted(found.items())}


def judge(case: Any) -> Verdict:
    """Loads a case's model and computes it both ways, for each of its data sets."""
    for inputs, outputs in case.data_sets:
        try:
            read, feeds = _read(case, inputs)
            graph, shapes = read.graph, read.open_shapes
        except ModelError as refusal:
            return Verdict(case.name, refused="; ".join(r.reason for r in refusal.refusals) or refusal.message)
        for way, values in (
            ("reference", evaluate_graph(graph, feeds, OPERATORS)),
            ("definition", by_definition(graph, feeds)),
        ):
            wanted = [one for given in outputs for one in (given if isinstance(given, list) else [given])]
            found = zip(own_outputs(graph, shapes), cut(graph, shapes, values), wanted, strict=True)
            if shapes and (broken := shapes.broken(graph.outputs, values)):
                return Verdict(case.name, wrong=f"{way}: {broken}")
            for value, array, expected in found:
                with np.errstate(all="ignore"):
                    got = np.asarray(array).astype(value.type.dtype.numpy)
                right = np.asarray(_array(expected))
                if value.name in read.border.outputs:
                    right = _numbers(right, read.border.words)
                if read.border.random:
                    got, right = np.zeros_like(got), np.zeros_like(right)  # no two draw the same
                if fault := _fault(got, right, case.rtol, case.atol):
                    return Verdict(case.name, wrong=f"{way}: {fault}")
    return Verdict(case.name)


def loaded(case: Any, inputs: Sequence[Any]) -> tuple[Graph, dict[int, np.ndarray], OpenShapes | None]:
    """A case's graph, one of its data sets as what to feed it, and its outputs whose sizes data decide.

    Raises ModelError for a model that is refused.
    """
    read, feeds = _read(case, inputs)
    return read.graph, feeds, read.open_shapes


def _read(case: Any, inputs: Sequence[Any]) -> tuple[Loaded, dict[int, np.ndarray]]:
    names = [info.name for info in case.model.graph.input]
    given = dict(zip(names, map(_array, inputs), strict=False))
    read = load(_with_constants(case.model, given).SerializeToString(), CompileOptions(), OPERATORS)
    outside = read.border.outside
    if outside.steps or outside.sequences or outside.absent:
        raise UnsupportedModel("callers give in another form what the program takes: the suite runs it as an artifact")
    numbers = {**read.border.coded(given), RANDOM_STATE: np.array([7, 0])}
    return read, {id: np.asarray(numbers[read.graph.values[id].name]) for id in read.graph.inputs}


def by_definition(graph: Graph, feeds: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Every value of a graph, node by node in its declared dtype.

    A Routine, which has no meaning in numpy, by its reference.
    """
    values = {**graph.constants, **feeds}
    for node in graph.nodes:
        operator = OPERATORS[node.op]
        arrays = tuple(None if id is None else np.asarray(values[id]) for id in node.inputs)
        types = tuple(None if id is None else graph.type(id) for id in node.inputs)
        results = tuple(graph.type(id) for id in node.outputs)
        kernel = operator.define(node, types, results)
        kernel.verify()
        computed: Sequence[np.ndarray]
        if isinstance(kernel, Kernel):
            computed = evaluate(kernel, [array for array in arrays if array is not None])
        else:
            computed = operator.reference(node, arrays)
        for id, type, array in zip(node.outputs, results, computed, strict=False):
            values[id] = array.astype(type.dtype.numpy, copy=False)
    return values


def _with_constants(model: onnx.ModelProto, given: Mapping[str, Any]) -> onnx.ModelProto:
    """The model with CONSTANT_INPUTS as initializers."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    wanted = {
        node.input[position]
        for node in model.graph.node
        for position in CONSTANT_INPUTS.get(node.op_type, ())
        if position < len(node.input)
    }
    kept = [
        info for info in model.graph.input if not (info.name in wanted and isinstance(given[info.name], np.ndarray))
    ]
    for name in {info.name for info in model.graph.input} - {info.name for info in kept}:
        fixed.graph.initializer.append(numpy_helper.from_array(given[name], name))
    del fixed.graph.input[:]
    fixed.graph.input.extend(kept)
    return fixed


def _array(item: Any) -> Any:
    """A tensor as an array; sequences and optionals as they are."""
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    return np.asarray(item) if isinstance(item, np.generic) else item


def _numbers(strings: np.ndarray, words: Sequence[str]) -> np.ndarray:
    """Strings that a model itself holds, as a program has them."""
    return np.array([words.index(str(item)) for item in strings.flat], np.int64).reshape(strings.shape)


def _fault(got: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    """How a result differs from what the case expects, beyond the case's tolerance; empty where it does not."""
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"{got.dtype}{list(got.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if got.dtype.kind in "biu":
        return "" if np.array_equal(got, expected) else f"{np.sum(got != expected)} of {got.size} elements differ"
    if got.dtype in (np.float16, ml_dtypes.bfloat16):
        rtol, atol = max(rtol, 1e-2), max(atol, 1e-3)
    wide, right = got.astype(np.float64), expected.astype(np.float64)
    if np.allclose(wide, right, rtol, max(atol, 1e-6), equal_nan=True):
        return ""
    return f"off by up to {np.nanmax(np.abs(wide - right)):.3g}"


@dataclass(frozen=True)
class Row:
    """One operator's counts."""

    operator: str
    computed: int
    refused: int

    def __str__(self) -> str:
        return f"{self.operator:28}{self.computed:9}{self.refused:9}"


HEAD = f"{'operator':28}{'computed':>9}{'refused':>9}"


def recorded() -> dict[str, Row]:
    """The table as it was written."""
    rows = [line.split() for line in TABLE.read_text().splitlines()[1:]]
    return {name: Row(name, int(computed), int(refused)) for name, computed, refused in rows}


def row(operator: str, verdicts: Sequence[Verdict]) -> Row:
    return Row(operator, sum(not v.refused and not v.wrong for v in verdicts), sum(bool(v.refused) for v in verdicts))


def main(arguments: Sequence[str]) -> int:
    """Judges every case; returns how many were computed wrongly."""
    rows, wrong = [], 0
    for operator, cases in by_operator().items():
        verdicts = [judge(case) for case in cases]
        rows.append(row(operator, verdicts))
        print(rows[-1])
        for verdict in verdicts:
            wrong += bool(verdict.wrong)
            if verdict.wrong or verdict.refused:
                kind = "WRONG" if verdict.wrong else "refused"
                print(f"    {kind} {verdict.case}: {verdict.wrong or verdict.refused}")
    total = Row("total", sum(row.computed for row in rows), sum(row.refused for row in rows))
    print(f"{HEAD}\n{total}\n{wrong} wrong")
    for name in arguments:
        Path(name).write_text("\n".join([HEAD, *map(str, rows)]) + "\n")
    return wrong


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(bool(main(sys.argv[1:])))
