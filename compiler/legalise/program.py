"""The graph while it is legalised: what rules ask beside the graph, and when a rewrite counts as progress.

Rewriting ends because every application makes a measure smaller. Here it is not the size of the program, which grows:
a node that the accelerator does not carry out is replaced only by nodes that it does, or that rules bring there in at
most `DEPTH` steps. That is tried out on the right side by itself, before it is taken: what is written is then the
beginning of a way that ends, and the number of steps to its end falls with every application. So no rule is applied
that leads nowhere, and a node that no rule can bring to the accelerator stays as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps

from compiler.errors import InternalError
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.tensor import TensorType
from compiler.legalise.derived import Map
from compiler.legalise.profile import Profile
from compiler.legalise.ranges import EVERYTHING, Range, of_array, transfer
from compiler.rewrite.program import Program
from compiler.rewrite.rewrite import Rewritten, rewrite
from compiler.rewrite.rule import Rule
from compiler.rewrite.view import No, Rewrite, View

DEPTH = 8
"""Rules applied one within the other's right side, at most."""


ASKING = frozenset({"sigmoid_form", "relu_sum", "product_by_squares", "reciprocal_by_roots", "root_by_reciprocal_root"})
"""Rules that ask for ranges or terms: what they refuse inside a right side is reported of the node that it replaces."""


@dataclass(frozen=True)
class Approximation:
    """A node that was replaced by something that differs by at most `bound`, wherever its input is in `domain`.

    method  `sigmoid form` or `relu sum`; `terms` of the sum, else 0
    proof   how the bound was proved
    joined  where maps before the node went with it: what they are together, and the value that they read
    """

    node: Node
    method: str
    bound: float
    domain: Range
    terms: int = 0
    proof: str = ""
    joined: tuple[Map, int] | None = None


@dataclass(frozen=True)
class Budget:
    """What approximations may cost.

    error  of each by itself, at most
    terms  of a sum of ReLUs, at most
    exact  whether there may be none
    forms  whether sigmoid forms may be taken, and `sums` those of ReLUs
    """

    error: float = 0.01
    terms: int = 16
    forms: bool = True
    sums: bool = True
    fixed: bool = False
    """Sums have exactly `terms`, whatever their error is."""


@dataclass
class Context:
    """What a legalisation carries along.

    equal           rules whose sides are equal over the reals; `approximate`: the others
    ranges          of values, where more is known than what follows from the operators
    approximations  by the first output of the node replaced
    """

    profile: Profile
    equal: Sequence[Rule]
    approximate: Sequence[Rule]
    budget: Budget
    ranges: dict[int, Range] = field(default_factory=dict)
    approximations: dict[int, Approximation] = field(default_factory=dict)
    depth: int = DEPTH
    notes: dict[str, None] = field(default_factory=dict)
    """Why approximations were not taken, anywhere on the way."""
    tried: dict[tuple[object, ...], bool] = field(default_factory=dict)
    """Which right sides lead to the accelerator, by what they are."""


class Legalising(Program):
    """A program under legalisation."""

    against = "what it writes cannot be brought to the accelerator"

    def __init__(self, graph: Graph, context: Context) -> None:
        super().__init__(graph)
        self.context = context
        self.strict = False
        self._offered: tuple[Rewrite, Approximation] | None = None
        self._carried_out: dict[int, tuple[Node, bool]] = {}
        self._found_ranges: dict[int, Range] = {}

    def refusal(self, node: Node) -> str | None:
        """Why the accelerator does not carry out a node; None where it does."""
        return self.context.profile.refusal(node, Types(self.values), self.constants)

    def is_carried_out(self, node: Node) -> bool:
        """Whether the accelerator carries out a node; asked anew only where the node is another one."""
        key = node.outputs[0]
        known = self._carried_out.get(key)
        if known is None or known[0] is not node:
            known = self._carried_out[key] = node, self.refusal(node) is None
        return known[1]

    def range_of(self, value: int) -> Range:
        """What a value may hold."""
        if value in self.context.ranges:
            return self.context.ranges[value]
        if value not in self._found_ranges:
            if value in self.constants:
                self._found_ranges[value] = of_array(self.constants[value])
            elif (node := self.made_by.get(value)) is None:
                self._found_ranges[value] = EVERYTHING
            else:
                self._found_ranges[value] = EVERYTHING
                given = tuple(None if one is None else self.range_of(one) for one in node.inputs)
                found = transfer(node, given, self.dims, self.constants)
                self._found_ranges[value] = EVERYTHING if any(map(math.isnan, found)) else found
        return self._found_ranges[value]

    def offer(self, rewrite: Rewrite, approximation: Approximation) -> Rewrite:
        """The rewrite of a rule that approximates; what it is counts once it is applied."""
        self._offered = rewrite, approximation
        return rewrite

    def has(self, op: str) -> bool:
        """Whether the profile lists an operator, whatever its constraints: for rules that undo each other."""
        return op in self.context.profile.operators

    def falls(self, root: Node, rewrite: Rewrite) -> bool:
        """Whether every new node is carried out by the accelerator, or can be brought there."""
        if not rewrite.nodes:
            return True  # a duplicate, or a value that is there already
        if self.refusal(root) is None or self.context.depth <= 0:
            return False
        types = {**{key: value.type for key, value in self.values.items()}, **rewrite.types}
        constants = {**self.constants, **rewrite.constants}
        profile = self.context.profile
        if all(profile.refusal(node, types, constants) is None for node in rewrite.nodes):
            return True
        return self._leads_there(root, rewrite)

    def apply(self, root: Node, rewrite: Rewrite) -> list[Node]:
        """As `Program.apply`; an approximation that was offered for the node counts from now on."""
        if self._offered is not None and self._offered[0] is rewrite:
            self.context.approximations[root.outputs[0]] = self._offered[1]
        self._offered = None
        return super().apply(root, rewrite)

    def _leads_there(self, root: Node, rewrite: Rewrite) -> bool:
        made = {value for node in rewrite.nodes for value in node.outputs}
        read = {value for node in rewrite.nodes for value in node.used} - made
        constants = {value: rewrite.constants.get(value, self.constants.get(value)) for value in read}
        types = {**{key: self.type(key) for key in read if key not in rewrite.types}, **rewrite.types}
        types |= {value: self.type(value) for value in root.outputs}
        known = {key: array for key, array in constants.items() if array is not None}
        graph = Graph(
            {key: Value(key, type) for key, type in types.items() if key in made or key in read},
            rewrite.nodes,
            tuple(sorted(read - known.keys())),
            tuple(value for value in root.outputs if value in made),
            known,
        )
        ranges = {key: self.range_of(key) for key in read - known.keys()}
        key = self._content(graph, ranges)
        if key in self.context.tried:
            return self.context.tried[key]
        inner = replace(self.context, ranges=ranges, approximations={}, depth=self.context.depth - 1)
        if self.strict:
            inner = replace(inner, approximate=())
        found = legalised(graph, inner)
        answer = all(
            inner.profile.refusal(node, Types(found.graph.values), found.graph.constants) is None
            for node in found.graph.nodes
        )
        self.context.tried[key] = answer
        if not answer:
            self.context.notes.update(dict.fromkeys(one.reason for one in found.refusals if one.rule in ASKING))
        return answer

    def _content(self, graph: Graph, ranges: Mapping[int, Range]) -> tuple[object, ...]:
        """Equal for right sides that are the same but for the numbers of their values."""
        place: dict[int, int] = {}
        said: list[object] = [self.strict, self.context.approximate == (), self.context.depth > 0]
        for node in graph.nodes:
            for value in node.used:
                if value not in place:
                    place[value] = len(place)
                    array = graph.constants.get(value)
                    small = array is not None and array.nbytes <= 4096
                    said += [
                        str(graph.type(value)),
                        ranges.get(value),
                        array.tobytes() if small and array is not None else None,
                    ]
            place.update({value: len(place) + at for at, value in enumerate(node.outputs)})
            inputs = tuple(None if value is None else place[value] for value in node.inputs)
            said += [node.op, inputs, repr(sorted(node.attrs.items()))]
        return tuple(said)


class Types(Mapping[int, TensorType]):
    """The types of values, by id."""

    def __init__(self, values: Mapping[int, Value]) -> None:
        self._values = values

    def __getitem__(self, key: int) -> TensorType:
        return self._values[key].type

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def legalised(graph: Graph, context: Context) -> Rewritten:
    """The graph with every node that can be brought to the accelerator in a form that it carries out.

    At a node first rules are tried that lead there without any approximation, then an approximation of the node itself,
    then a right side that is equal, but of which parts have to be approximated.
    """
    rules = [
        *(_where_refused(rule, strict=True) for rule in context.equal),
        *(_where_refused(rule, strict=True) for rule in context.approximate),
    ]
    if context.approximate:
        rules += [_where_refused(rule, strict=False) for rule in context.equal]
    return rewrite(graph, rules=rules, inside=False, program=lambda given: Legalising(given, context))


def _where_refused(rule: Rule, *, strict: bool) -> Rule:
    """The rule, tried at nodes alone that the accelerator does not carry out."""

    @wraps(rule.match)
    def match(view: View, node: Node) -> Rewrite | No | None:
        program = context_of(view)
        if program.is_carried_out(node):
            return None
        program.strict = strict
        return rule.match(view, node)

    return replace(rule, match=match)


def context_of(view: View) -> Legalising:
    """The program that a rule of this room is applied in. Raises InternalError for any other."""
    if not isinstance(view, Legalising):
        raise InternalError("a rule of legalisation is applied outside of it")
    return view
