"""The oracle: the unrewritten graph evaluated operator by operator in hand-written numpy, in float64."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np

from compiler.errors import InternalError, Refusal, TilewrightError, UnsupportedModel
from compiler.ir.graph import Graph, Node
from compiler.ir.tensor import DType
from compiler.ops.operator import Arrays, Operator
from compiler.ops.pieces import InPieces, Pieces

Operators = Mapping[str, Operator]
"""Operator records by ONNX name."""
Watch = Callable[[int, float], None]
"""Is told the position of a node in the graph and how much of it is done, from 0 to 1: after each node, and after each
piece of one that is computed in pieces. What it raises ends the evaluation."""


def unwatched(position: int, part: float) -> None:
    """The `Watch` that does nothing."""


def evaluate_graph(
    graph: Graph,
    inputs: Mapping[int, np.ndarray],
    operators: Operators,
    *,
    wide: bool = True,
    mantissa: int = 0,
    keep: Collection[int] = (),
    watch: Watch = unwatched,
) -> dict[int, np.ndarray]:
    """Values of the graph's outputs, and of those in `keep`, by id.

    inputs  arrays by id, in the declared shapes; dtypes are brought to the declared ones
    wide    every float tensor (inputs, constants, results) is float64, and a Cast to a float type does not narrow;
            otherwise every value has its declared dtype, so that the result shows what rounding in that dtype costs
    mantissa  bits to which every float is rounded, the leading one counted, as it would be in memory: 11 of fp16, 8 of
              bf16; 0: none is

    `watch` is told how far the evaluation is. A value is dropped after its last reader, so memory stays near the
    model's own. Raises InternalError, naming the node, when an operator has no record, its reference fails, or a result
    does not have the declared shape; UnsupportedModel for an index of the model's that lies outside of its tensor.
    """
    wanted = {*graph.outputs, *keep}
    last = {value: position for position, node in enumerate(graph.nodes) for value in node.used}
    values: dict[int, np.ndarray] = {}

    def value_of(value: int) -> np.ndarray:
        if value not in values:
            given = inputs[value] if value in inputs else graph.constants[value]
            values[value] = _rounded(_declared(np.asarray(given), graph.type(value).dtype, wide), mantissa)
        return values[value]

    for position, node in enumerate(graph.nodes):
        arrays = tuple(None if value is None else value_of(value) for value in node.inputs)
        results = _results(graph, node, arrays, operators, wide, partial(watch, position))
        for value, result in zip(node.outputs, results, strict=False):
            if value in wanted or value in last:
                values[value] = _rounded(result, mantissa)
        watch(position, 1.0)
        for value in node.used:
            if last[value] == position and value not in wanted:
                values.pop(value, None)
    return {value: value_of(value) for value in wanted}


def _results(
    graph: Graph, node: Node, arrays: Arrays, operators: Operators, wide: bool, watch: Callable[[float], None]
) -> list[np.ndarray]:
    if node.op not in operators:
        raise InternalError(f"node {node.source!r} has operator {node.op}, of which there is no record")
    if wide and node.op in ("Cast", "CastLike") and graph.type(node.outputs[0]).dtype.is_float:
        assert arrays[0] is not None
        results: tuple[np.ndarray, ...] = (arrays[0].astype(np.float64),)
    else:
        reference = operators[node.op].reference
        with np.errstate(all="ignore"), _blamed(node, reads_indices=bool(operators[node.op].indices)):
            made = reference.pieces(node, arrays) if isinstance(reference, InPieces) else reference(node, arrays)
        results = (_assembled(node, made, watch),) if isinstance(made, Pieces) else made
    return [_checked(graph, node, value, result, wide) for value, result in zip(node.outputs, results, strict=False)]


def _assembled(node: Node, pieces: Pieces, watch: Callable[[float], None]) -> np.ndarray:
    """The result. What `watch` raises is not the node's fault."""
    assembly = pieces.assembly()
    while True:
        with np.errstate(all="ignore"), _blamed(node, reads_indices=False):
            part = next(assembly, None)
        if part is None:
            return pieces.result
        watch(part)


@contextmanager
def _blamed(node: Node, *, reads_indices: bool) -> Iterator[None]:
    """What a reference raises is our fault, at a node; but for a want of memory, and for an index of the model's."""
    try:
        yield
    except (MemoryError, TilewrightError):
        raise
    except IndexError as error:
        if not reads_indices:
            raise _ours(node, error) from error
        fix = "export the model with indices that lie within the tensor that they are of"
        refusal = Refusal(f"an index lies outside of its tensor: {error}", fix, node.source, node.op)
        raise UnsupportedModel("1 of the model's nodes cannot be computed", refusals=(refusal,)) from error
    except Exception as error:
        raise _ours(node, error) from error


def _ours(node: Node, error: Exception) -> InternalError:
    return InternalError(
        f"the reference of {node.op} failed at node {node.source!r}: {type(error).__name__}: {error}",
        details={"node": node.source, "operator": node.op},
    )


def _checked(graph: Graph, node: Node, value: int, result: np.ndarray, wide: bool) -> np.ndarray:
    declared = graph.type(value)
    if declared.is_static and result.shape != declared.shape:
        raise InternalError(
            f"the reference of {node.op} gave shape {list(result.shape)} at node {node.source!r}, declared {declared}",
            details={"node": node.source, "operator": node.op},
        )
    return _declared(result, declared.dtype, wide)


def _declared(array: np.ndarray, dtype: DType, wide: bool) -> np.ndarray:
    """An array in its declared dtype; in float64 where that is a float type and `wide` is asked for."""
    with np.errstate(all="ignore"):
        return array.astype(np.float64 if wide and dtype.is_float else dtype.numpy, copy=False)


def _rounded(array: np.ndarray, mantissa: int) -> np.ndarray:
    """Floats to the nearest with so many bits of mantissa; their range stays."""
    if not mantissa or array.dtype.kind != "f":
        return array
    fraction, exponent = np.frexp(array)
    with np.errstate(all="ignore"):
        rounded: np.ndarray = np.ldexp(np.rint(np.ldexp(fraction, mantissa)), exponent - mantissa)
    return rounded.astype(array.dtype, copy=False)
