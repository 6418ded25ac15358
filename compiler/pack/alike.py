"""Whether a graph is the one that an artifact was compiled from, but for the values of its constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from compiler.errors import Refusal
from compiler.ir.graph import Graph
from compiler.pack.graphs import Step, steps_json


def difference(packed: Mapping[str, Any], graph: Graph) -> Refusal | None:
    """The first thing in which `graph` is another than the one that was loaded, as a graph.json (`packed`) tells it.

    None where only values of constants can differ, and names of nodes and of what lies between inputs and outputs.
    Attributes are compared as far as graph.json has them; constants inside the bodies of loops and branches count as
    attributes.
    """
    (before, *_) = packed["steps"]
    now = steps_json([Step(before["name"], graph)])
    return next(_Pairs(packed["values"], now["values"]).differences(before, now["steps"][0]), None)


class _Pairs:
    """Values of two graphs, each of which is to stand for one of the other."""

    def __init__(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        self._before, self._now = before, now
        self._to: dict[int, int] = {}
        self._from: dict[int, int] = {}

    def differences(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Refusal]:
        """What differs of two steps of graphs, in the order of their nodes."""
        yield from self._ports("input", before["inputs"], now["inputs"])
        for at, (old, new) in enumerate(zip(before["nodes"], now["nodes"], strict=False)):
            if reason := self._of_node(old, new):
                yield Refusal(reason, node=new.get("name") or f"number {at}", operator=new["op"])
        for word, nodes in (("has no more", before["nodes"]), ("has", now["nodes"])):
            for extra in nodes[min(len(before["nodes"]), len(now["nodes"])) :]:
                yield Refusal(f"the new model {word} such a node", node=extra.get("name", ""), operator=extra["op"])
        yield from self._ports("output", before["outputs"], now["outputs"])

    def _ports(self, what: str, before: list[int], now: list[int]) -> Iterator[Refusal]:
        if len(before) != len(now):
            yield Refusal(f"the new model has {len(now)} {what}s, and the artifact {len(before)}")
        for old, new in zip(before, now, strict=False):
            names = [self._before[str(old)].get("name", ""), self._now[str(new)].get("name", "")]
            if names[0] != names[1]:
                yield Refusal(f"{what} {names[1]!r} is {names[0]!r} in the artifact")
            elif reason := self._of_value(old, new):
                yield Refusal(f"{what} {names[1]!r} {reason}")

    def _of_node(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
        """In what two nodes differ; empty where they do not."""
        if old["op"] != new["op"]:
            return f"in the artifact it is {old['op']} {old.get('name', '')!r}"
        attributes, others = old.get("attributes", {}), new.get("attributes", {})
        for name in sorted({*attributes, *others}):
            if attributes.get(name) != others.get(name):
                return f"its {name} is {others.get(name)}, and {attributes.get(name)} in the artifact"
        for does in ("reads", "writes"):
            if len(old[does]) != len(new[does]):
                return f"it {does} {len(new[does])} tensors, and {len(old[does])} in the artifact"
            for at, (one, other) in enumerate(zip(old[does], new[does], strict=True)):
                if reason := self._of_value(one, other):
                    return f"tensor {at} that it {does} {reason}"
        return ""

    def _of_value(self, old: int | None, new: int | None) -> str:
        """In what two values differ; empty where one stands for the other."""
        if old is None or new is None:
            return "" if old is new else "is left out in one of both"
        before, now = self._before[str(old)], self._now[str(new)]
        if before["type"] != now["type"]:
            return f"is {now['type']}, and {before['type']} in the artifact"
        if ("constant" in before) != ("constant" in now):
            return "is a constant in one of both alone"
        if self._to.setdefault(old, new) != new or self._from.setdefault(new, old) != old:
            return "is another one of the graph"
        return ""
