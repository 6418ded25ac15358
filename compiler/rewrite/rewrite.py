"""The worklist: rules tried at every node until nothing applies.

Nodes are visited in program order, so that what a rule reads is already in its final form. Where something was
rewritten, the new nodes, the readers of what changed and the producers of what it read are visited again. When the list
is empty, one pass over all nodes either finds nothing, which makes the result a fixed point, or goes on. At a node the
rules are tried in the order of `RULES`, the first that applies wins. Everything is deterministic: equal graphs give
equal results.

That it ends, and that it never makes a program dearer, is the business of `measure`: a rewrite that would not make the
measure smaller is refused.

A value keeps its meaning: an id that is in both graphs stands for the same tensor in both, up to the kinds of the rules
applied. New values have new ids, and graph inputs and outputs keep theirs, with their names. Comparing the two programs
value by value (`compiler.prove.bisect`) relies on this.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from compiler.ir.graph import Graph, Node
from compiler.rewrite.bodies import with_bodies
from compiler.rewrite.gain import Work
from compiler.rewrite.gain import work as work_of
from compiler.rewrite.pattern import COMMUTATIVE
from compiler.rewrite.program import Program, content_key
from compiler.rewrite.rule import EXACT, Rule
from compiler.rewrite.rules import RULES
from compiler.rewrite.view import No, Rewrite


@dataclass(frozen=True)
class Application:
    """One rule applied at one node.

    where  the model's name of the node, or its operator and value where it has none
    gain   nodes, operations and bytes that it saves, each node taken by itself: an estimate for no device in particular
    """

    rule: str
    where: str
    why: str
    kind: str
    gain: Work

    def __str__(self) -> str:
        return f"{self.rule} ({self.kind}) at {self.where}: {self.why}{'; ' * (self.gain != Work())}{self.gain}"


@dataclass(frozen=True)
class Refusal:
    """One rule whose left side is at a node, and why it was not applied there. `where` as in `Application`."""

    rule: str
    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.where}: {self.reason}"


@dataclass(frozen=True)
class Rewritten:
    """The graph at its fixed point, what was done in order, and what was not done there with its reason."""

    graph: Graph
    log: tuple[Application, ...]
    refusals: tuple[Refusal, ...]

    def verify(self) -> None:
        """Raises VerifyError."""
        self.graph.verify()

    def __str__(self) -> str:
        """What was done, and what was not."""
        return "\n".join(map(str, (*self.log, "", "refused:", *self.refusals)))


def rewrite(
    graph: Graph,
    budget: float = 0.0,
    rules: Sequence[Rule] = RULES,
    *,
    inside: bool = True,
    program: Callable[[Graph], Program] = Program,
) -> Rewritten:
    """Applies `rules` to a verified graph of static types, to a fixed point; the result is verified.

    budget  the sum of the bounds of all approximations that may be applied, each relative to the largest value of a
            result
    program what rules view the graph as; its `falls` says which rewrites are progress

    Duplicate and dead nodes are removed as well. The bodies of regions are programs of their own, each brought to its
    fixed point first; of the budget they get nothing. Without `inside` they stay as they are. Raises VerifyError where
    a rule broke the program.
    """
    if not inside:
        return _rewritten(graph, budget, rules, program)
    graph, inner = with_bodies(graph, lambda body: rewrite(body, rules=rules))
    found = _rewritten(graph, budget, rules, program)
    log = [*(one for body in inner for one in body.log), *found.log]
    refusals = [*(one for body in inner for one in body.refusals), *found.refusals]
    return Rewritten(found.graph, tuple(log), tuple(refusals))


def _rewritten(
    graph: Graph, budget: float, rules: Sequence[Rule], program: Callable[[Graph], Program] = Program
) -> Rewritten:
    work = _Work(program(graph), rules, budget)
    for node in work.program.drop_unread():
        gain = work_of([node], work.program.type)
        work.log.append(Application("dead_node", _name(node), "nothing reads it", str(EXACT), gain))
    while True:
        count = len(work.log)
        work.refusals.clear()
        work.run(work.program.ordered())
        if len(work.log) == count:
            break
    if not work.log:
        return Rewritten(graph, (), tuple(work.refusals))
    return Rewritten(work.program.graph(), tuple(work.log), tuple(work.refusals))


@dataclass
class _Work:
    program: Program
    rules: Sequence[Rule]
    budget: float
    log: list[Application] = field(default_factory=list)
    refusals: dict[Refusal, None] = field(default_factory=dict)
    seen: dict[tuple[object, ...], Node] = field(default_factory=dict)
    by_op: dict[str, tuple[Rule, ...]] = field(default_factory=dict)

    def run(self, keys: Iterable[int]) -> None:
        """Visits these nodes, and whatever changes around them, in program order."""
        pending = [(self.program.position[key], key) for key in keys]
        heapq.heapify(pending)
        waiting = {key for _, key in pending}
        while pending:
            _, key = heapq.heappop(pending)
            waiting.discard(key)
            if key not in self.program.position:
                continue
            for node in self.visit(self.program.made_by[key]):
                if (first := node.outputs[0]) not in waiting:
                    waiting.add(first)
                    heapq.heappush(pending, (self.program.position[first], first))

    def visit(self, node: Node) -> list[Node]:
        """Applies the first rule that can be applied at a node; the nodes to visit again."""
        found = self._duplicate(node)
        if found is not None and self.program.falls(node, found):
            return self._apply("duplicate_node", str(EXACT), node, found)
        for rule in self._rules(node.op):
            answer = rule.match(self.program, node)
            if isinstance(answer, Rewrite):
                answer = self._refusal(rule, node, answer) or answer
            if isinstance(answer, Rewrite):
                self.budget -= rule.kind.bound
                return self._apply(rule.name, str(rule.kind), node, answer)
            if isinstance(answer, No):
                self.refusals[Refusal(rule.name, _name(node), answer.reason)] = None
        return []

    def _refusal(self, rule: Rule, node: Node, found: Rewrite) -> No | None:
        if rule.kind.bound > self.budget:
            return No(f"its bound {rule.kind.bound:g} is above the {self.budget:g} left of the error budget")
        if not self.program.falls(node, found):
            return No(self.program.against)
        return None

    def _apply(self, name: str, kind: str, node: Node, found: Rewrite) -> list[Node]:
        self.log.append(Application(name, _name(node), found.why, kind, self.program.gain(node, found)))
        return self.program.apply(node, found)

    def _duplicate(self, node: Node) -> Rewrite | None:
        """A node that computes what another one does equals that one."""
        key = content_key(node, node.op in COMMUTATIVE)
        other = self.seen.get(key)
        if other is None or not self.program.alive(other):
            self.seen[key] = node
            return None
        if other.outputs[0] == node.outputs[0]:
            return None
        types = [(self.program.type(a), self.program.type(b)) for a, b in zip(node.outputs, other.outputs, strict=True)]
        if any(a != b for a, b in types):
            return None
        return self.program.draft(node).same(*other.outputs, why=f"it computes what {_name(other)} does")

    def _rules(self, op: str) -> tuple[Rule, ...]:
        if op not in self.by_op:
            self.by_op[op] = tuple(rule for rule in self.rules if not rule.ops or op in rule.ops)
        return self.by_op[op]


def _name(node: Node) -> str:
    return repr(node.source) if node.source else f"{node.op} %{node.outputs[0]}"
