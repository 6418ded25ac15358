"""Order and liveness of calls.

The topological sort is our own, since files come unsorted, cyclic and with parts that nothing needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.errors import MalformedModel, Refusal
from compiler.frontend.reading.model import Call, quoted


@dataclass(frozen=True)
class Ordered:
    """Live calls, each after those it reads, in the file's order where that is one; and the names defined outside."""

    calls: tuple[Call, ...]
    captured: frozenset[str]


def order(calls: Sequence[Call], given: Iterable[str], outputs: Iterable[str]) -> Ordered:
    """Sorts `calls` and drops those that no output needs; `given` are names defined without a call.

    Raises MalformedModel for a name defined twice and for a cycle, naming a node in it.
    """
    known = set(given)
    producer = _producers(calls, known)
    ordered = _sorted(calls, producer)
    wanted = set(outputs)
    live: list[Call] = []
    for call in reversed(ordered):
        if any(name in wanted for name in call.outputs if name):
            live.append(call)
            wanted.update(call.reads)
    captured = frozenset(name for name in wanted if name not in producer and name not in known)
    return Ordered(tuple(reversed(live)), captured)


def _producers(calls: Sequence[Call], known: set[str]) -> dict[str, int]:
    producer: dict[str, int] = {}
    for position, call in enumerate(calls):
        for name in call.outputs:
            if not name:
                continue
            if name in producer or name in known:
                raise MalformedModel(
                    f"tensor {quoted(name)} is defined twice",
                    fix="give every node output a name of its own",
                    refusals=(Refusal("defines it again", "", call.source, call.operator),),
                )
            producer[name] = position
    return producer


def _sorted(calls: Sequence[Call], producer: dict[str, int]) -> list[Call]:
    """Depth-first over producers, in file order; iterative, since a chain may be as long as the file."""
    waiting, open_, done = 0, 1, 2
    state = [waiting] * len(calls)
    result: list[Call] = []
    for root in range(len(calls)):
        stack = [root]
        while stack:
            position = stack[-1]
            if state[position] != waiting:
                stack.pop()
                if state[position] == open_:
                    state[position] = done
                    result.append(calls[position])
                continue
            state[position] = open_
            for name in reversed(calls[position].reads):
                needed = producer.get(name)
                if needed is None or state[needed] == done:
                    continue
                if state[needed] == open_:
                    call = calls[position]
                    raise MalformedModel(
                        f"the graph has a cycle through tensor {quoted(name)}",
                        fix="export the model again; ONNX graphs have no cycles outside Loop and Scan",
                        refusals=(
                            Refusal("reads what is computed from its own output", "", call.source, call.operator),
                        ),
                    )
                stack.append(needed)
    return result
