"""What a person would write as one call of a framework, and ONNX states in pieces: attention and GELU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isclose, sqrt
from typing import Any

from bench.gpu.translation import Program, Ref, Step

Producer = Callable[[Any, str], Step | None]
"""The step of an operator that makes an operand, if nothing else reads it."""


def with_idioms(program: Program) -> Program:
    """The same program with `Attention(q, k^T, v, mask, scale=)` and `Gelu(x)` where its steps say that in pieces.

    A piece that something else reads is left as it is.
    """
    uses = Counter(one.name for step in program.steps for one in step.operands if isinstance(one, Ref))
    uses.update(program.outputs)
    made = {step.outputs[0]: step for step in program.steps}
    taken: set[str] = set()
    changed: dict[str, Step] = {}

    def producer(operand: Any, op: str) -> Step | None:
        step = made.get(operand.name) if isinstance(operand, Ref) else None
        return step if step is not None and step.op == op and uses[step.outputs[0]] == 1 else None

    for step in program.steps:
        found = _attention(step, producer) or _gelu(step, producer)
        if found is not None:
            inner, new = found
            taken |= {piece.outputs[0] for piece in inner}
            changed[step.outputs[0]] = new
    steps = tuple(changed.get(step.outputs[0], step) for step in program.steps if step.outputs[0] not in taken)
    return replace(program, steps=steps)


def _attention(step: Step, producer: Producer) -> tuple[Sequence[Step], Step] | None:
    """MatMul(Softmax([Add](Div|Mul(MatMul(q, k^T), s), mask)), v)."""
    if step.op != "MatMul" or (softmax := producer(step.operands[0], "Softmax")) is None:
        return None
    if softmax.attributes.get("axis", -1) not in (-1, 3):
        return None
    inner, scores, mask = [softmax], softmax.operands[0], None
    if (added := producer(scores, "Add")) is not None:
        inner.append(added)
        scores, mask = added.operands
    scale = 1.0
    for op in ("Div", "Mul"):
        scaled = producer(scores, op)
        if scaled is not None and isinstance(scaled.operands[1], float):
            inner.append(scaled)
            scores, factor = scaled.operands
            scale = 1 / factor if op == "Div" else factor
    product = producer(scores, "MatMul")
    if product is None:
        return None
    q, k = product.operands
    return [*inner, product], Step("Attention", (q, k, step.operands[1], mask), {"scale": scale}, step.outputs)


def _gelu(step: Step, producer: Producer) -> tuple[Sequence[Step], Step] | None:
    """Mul(Mul(x, Add(Erf(Div(x, sqrt(2))), 1)), 0.5)."""
    for outer, constant in _both(step, "Mul"):
        if not _is(constant, 0.5) or (product := producer(outer, "Mul")) is None:
            continue
        for x, shifted in _both(product, "Mul"):
            one = producer(shifted, "Add")
            if one is None or not _is(one.operands[1], 1.0) or (erf := producer(one.operands[0], "Erf")) is None:
                continue
            scaled = producer(erf.operands[0], "Div")
            if scaled is not None and scaled.operands[0] == x and _is(scaled.operands[1], sqrt(2)):
                return [product, one, erf, scaled], Step("Gelu", (x,), {}, step.outputs)
    return None


def _both(step: Step, op: str) -> Sequence[tuple[Any, Any]]:
    """The operands of a commutative step, either way round."""
    if step.op != op:
        return []
    one, other = step.operands
    return [(one, other), (other, one)]


def _is(operand: Any, value: float) -> bool:
    return isinstance(operand, float) and isclose(operand, value, rel_tol=1e-6)
