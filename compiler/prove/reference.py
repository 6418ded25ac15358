"""The oracle: the unrewritten graph evaluated operator by operator in hand-written numpy, in float64."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import numpy as np

from compiler.errors import InputsError, InternalError, Refusal, TilewrightError, UnsupportedModel
from compiler.ir.graph import Graph, Node
from compiler.ir.tensor import DType
from compiler.ops import having
from compiler.ops.arrays import as_array
from compiler.ops.operator import Arrays, Operator
from compiler.ops.pieces import InPieces, Pieces
from compiler.ops.traits import Trait
from compiler.prove.array_module import ArrayModule
from compiler.prove.region import evaluate_region

Operators = Mapping[str, Operator]
"""Operator records by ONNX name."""
Watch = Callable[[int, float], None]
"""Gets the position of a node in the graph and how much of it is done, from 0 to 1: after each node, and after each
piece of one that is computed in pieces. What it raises ends the evaluation."""

Guard = Callable[[Graph, Node, Sequence[int]], AbstractContextManager[None]]
"""What becomes of an error of a reference, which reads positions from inputs of these numbers."""


WIDENED_LATE = having(Trait.MOVES) | {"MatMul"}
"""Operators whose large constants are not widened beforehand: what they move is widened behind them, and a product
widens a matrix piece by piece."""
LARGE_BYTES = 1 << 24
"""Of such a constant, as it is."""


def unwatched(position: int, part: float) -> None:
    """The `Watch` that does nothing."""


def evaluate_graph(
    graph: Graph,
    inputs: Mapping[int, np.ndarray],
    operators: Operators,
    *,
    wide: bool = True,
    mantissa: int = 0,
    nudge: float = 0.0,
    keep: Collection[int] = (),
    watch: Watch = unwatched,
    module: ArrayModule | None = None,
) -> dict[int, np.ndarray]:
    """Values of the graph's outputs, and of those in `keep`, by id.

    inputs  arrays by id, in the declared shapes; dtypes are brought to the declared ones
    wide    every float tensor (inputs, constants, results) is float64, and a Cast to a float type does not narrow, but
            for small floats (`compiler.ir.small`), to which every evaluation rounds;
            otherwise every value has its declared dtype, so that the result shows what rounding in that dtype costs
    mantissa  bits to which every float is rounded, the leading one counted, as it would be in memory: 11 of fp16, 8 of
              bf16; 0: none is
    nudge   added to floats before they are rounded to a small type, times the largest of them: what rounds to another
            element for a small nudge up or down lies near the middle between two
    module  in which nodes are evaluated, but for those that it refuses: they are numpy's, and counted

    `watch` gets how far the evaluation is. A value is dropped after its last reader, so memory stays near the
    model's own. Raises InternalError, naming the node, when an operator has no record, its reference fails, or a result
    does not have the declared shape; UnsupportedModel for an index of the model's that lies outside of its tensor,
    InputsError for one that is computed from its inputs.
    """
    wanted = {*graph.outputs, *keep}
    last = {value: position for position, node in enumerate(graph.nodes) for value in node.used}
    values: dict[int, np.ndarray] = {}

    def value_of(value: int) -> np.ndarray:
        if value not in values:
            given = inputs[value] if value in inputs else graph.constants[value]
            values[value] = _rounded(_declared(np.asarray(given), graph.type(value).dtype, wide), mantissa)
        return values[value]

    def here(value: int) -> np.ndarray:
        return module.downloaded(value_of(value)) if module else value_of(value)

    def there(value: int) -> np.ndarray:
        """Kept there, so that what several nodes read is copied once."""
        assert module is not None
        values[value] = module.uploaded(value_of(value))
        return values[value]

    def inner(body: Graph, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        bound = dict(zip(body.inputs, given, strict=True))
        found = evaluate_graph(body, bound, operators, wide=wide, mantissa=mantissa, nudge=nudge, module=module)
        return [found[value] for value in body.outputs]

    for position, node in enumerate(graph.nodes):

        def results(
            place: Callable[[int], np.ndarray], guard: Guard, node: Node = node, at: int = position
        ) -> tuple[np.ndarray, ...]:
            with guard(graph, node, ()):
                arrays = tuple(
                    None
                    if value is None
                    else graph.constants[value]
                    if wide and module is None and value not in values and is_widened_late(graph, node, value)
                    else place(value)
                    for value in node.inputs
                )
                if nudge and rounds_to_small(graph, node):
                    arrays = (_nudged(arrays[0], nudge), *arrays[1:])
            if node.bodies:
                made: Sequence[np.ndarray] = evaluate_region(graph, node, arrays, inner, partial(watch, at))
            else:
                made = _computed(graph, node, arrays, operators, wide, guard, partial(watch, at))
            with guard(graph, node, ()):
                given = zip(node.outputs, made, strict=bool(node.bodies))
                return tuple(_rounded(_checked(graph, node, value, one, wide), mantissa) for value, one in given)

        found = _attempted(module, node, partial(results, there)) if module else None
        for value, result in zip(node.outputs, found or results(here, _blamed), strict=False):
            if value in wanted or value in last:
                values[value] = result
        watch(position, 1.0)
        for value in node.used:
            if last[value] == position and value not in wanted:
                values.pop(value, None)
    return {value: here(value) for value in wanted}


def is_widened_late(graph: Graph, node: Node, value: int) -> bool:
    """Whether the float64 evaluation reads a constant of a node as it is, which may lie in a file."""
    type = graph.type(value)
    if value not in graph.constants or not _widens(type.dtype) or type.bytes < LARGE_BYTES:
        return False
    return node.op in WIDENED_LATE and (node.op != "MatMul" or (type.rank == 2 and value == node.inputs[1]))


def rounds_to_small(graph: Graph, node: Node) -> bool:
    """Whether a node makes elements of a small type (`compiler.ir.small`) of floats."""
    source = node.inputs[0] if node.inputs else None
    return source is not None and graph.type(node.outputs[0]).dtype.is_small and _widens(graph.type(source).dtype)


def _nudged(array: np.ndarray | None, nudge: float) -> np.ndarray:
    assert array is not None
    if not array.size:
        return array
    largest = np.max(np.where(np.isfinite(array), np.abs(array), 0.0))
    return as_array(array + nudge * largest).astype(array.dtype)


class _Refused(Exception):
    """What a module does not do of a reference."""


@contextmanager
def _refusing(graph: Graph, node: Node, indices: Sequence[int]) -> Iterator[None]:
    """Whatever fails in a module: numpy, which evaluates the node then, has the last word on it."""
    try:
        yield
    except Exception as error:
        raise _Refused(f"{type(error).__name__}: {error}") from error


def _attempted(
    module: ArrayModule, node: Node, results: Callable[[Guard], tuple[np.ndarray, ...]]
) -> tuple[np.ndarray, ...] | None:
    """The results of a node in a module; None where it refuses, or there is nothing that it would work on."""
    if node.bodies or not node.used:
        return None
    try:
        found = results(_refusing)
    except _Refused as refused:
        module.refused(node.op, str(refused))
        return None
    module.there[node.op] += 1
    return found


def _computed(
    graph: Graph,
    node: Node,
    arrays: Arrays,
    operators: Operators,
    wide: bool,
    guard: Guard,
    watch: Callable[[float], None],
) -> tuple[np.ndarray, ...]:
    """What a reference gives, under the `guard`. What `watch` raises is not the node's fault."""
    if node.op not in operators:
        raise InternalError(f"node {node.source!r} has operator {node.op}, of which there is no record")
    if wide and node.op in ("Cast", "CastLike") and _widens(graph.type(node.outputs[0]).dtype):
        assert arrays[0] is not None
        return (arrays[0].astype(np.float64),)
    reference = operators[node.op].reference
    with np.errstate(all="ignore"), guard(graph, node, operators[node.op].indices):
        made = reference.pieces(node, arrays) if isinstance(reference, InPieces) else reference(node, arrays)
    if not isinstance(made, Pieces):
        return made
    assembly = made.assembly()
    while True:
        with np.errstate(all="ignore"), guard(graph, node, ()):
            part = next(assembly, None)
        if part is None:
            return (made.result,)
        watch(part)


@contextmanager
def _blamed(graph: Graph, node: Node, indices: Sequence[int]) -> Iterator[None]:
    """What a reference raises is our fault, at a node; but for a want of memory, and for an index that lies outside.

    `indices` are the positions of those among what the node reads. The model is to blame for constant ones, and its
    inputs for others.
    """
    try:
        yield
    except (MemoryError, TilewrightError):
        raise
    except IndexError as error:
        read = [node.inputs[place] for place in indices if place < len(node.inputs)]
        if not read:
            raise _ours(node, error) from error
        if _from_inputs(graph, read):
            raise InputsError(
                f"these inputs lead node {node.source!r} ({node.op}) to a position that is not there: {error}",
                fix="give samples of inputs that the model takes",
                details={"node": node.source, "operator": node.op},
            ) from error
        fix = "export the model with indices that lie within the tensor that they are of"
        refusal = Refusal(f"an index lies outside of its tensor: {error}", fix, node.source, node.op)
        raise UnsupportedModel("1 of the model's nodes cannot be computed", refusals=(refusal,)) from error
    except Exception as error:
        raise _ours(node, error) from error


def _from_inputs(graph: Graph, values: Iterable[int | None]) -> bool:
    """Whether any of these values is computed from an input of the graph's."""
    waiting = [value for value in values if value is not None]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        node = graph.producer.get(value)
        waiting += node.used if node else ()
    return not seen.isdisjoint(graph.inputs)


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
        return array.astype(np.float64 if wide and _widens(dtype) else dtype.numpy, copy=False)


def _widens(dtype: DType) -> bool:
    """Whether the oracle computes in float64 instead: small floats are what values are rounded to, as integers are."""
    return dtype.is_float and not dtype.is_small


def _rounded(array: np.ndarray, mantissa: int) -> np.ndarray:
    """Floats to the nearest with so many bits of mantissa; their range stays."""
    if not mantissa or array.dtype.kind != "f" or DType.of(array.dtype).is_small:
        return array
    fraction, exponent = np.frexp(array)
    with np.errstate(all="ignore"):
        rounded: np.ndarray = np.ldexp(np.rint(np.ldexp(fraction, mantissa)), exponent - mantissa)
    return rounded.astype(array.dtype, copy=False)
