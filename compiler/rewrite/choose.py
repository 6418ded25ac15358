"""The search over choices: programs that compute the same with other operators, compared by their costs.

Choices that touch each other's nodes, or feed each other, are a group. A group is decided on its surroundings, cut out
as a small graph. Starting from the region as it is, choices are made one after another, and the greedy rules run after
each. Regions that cost up to `slack` times the best one are searched further, since a choice that costs something may
make room for one that gains more. This is backtracking as in Jia et al., "TASO", SOSP 2019, section 5. Regions of one
structure are searched once, and what was decided is made again in all of them. Then the program is looked at anew,
until no region becomes faster by more than what its costs may be wrong by.

It ends: each round makes the program's time, summed over its regions, smaller by a fixed part of a region, and no
region that was decided is decided again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from compiler.ir.graph import Graph, Node
from compiler.ir.tile import Cost
from compiler.rewrite.bodies import with_bodies
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.program import Program
from compiler.rewrite.region import Region, around, cut, put_back, with_ids
from compiler.rewrite.rewrite import Refusal, rewrite
from compiler.rewrite.rule import Rule
from compiler.rewrite.rules import RULES
from compiler.rewrite.view import No, Rewrite

SLACK = 1.0
"""How many times the best one's time a region may take and still be searched further; 1 is plain greedy
(docs/decisions/joins-measured.md)."""
MOST_REGIONS = 32
"""Programs of one region that are costed."""
MOST_SITES = 8
"""Offers decided together; a longer chain of them is decided piece by piece."""
FINALISTS = 3
"""Of the fastest programs of a region by the estimates, those that are compared with it in the end."""
MARGINS: Mapping[str, float] = {"record": 0.02, "model": 0.13}
"""By the source of costs, the part of what a choice changes that it has to save: measurements scatter, and the model is
wrong by more."""
MOST_ROUNDS = 8


class GraphCosts(Protocol):
    """What small programs cost on the target, with the branches that may run side by side taken into account."""

    def estimates(self, regions: Sequence[Region]) -> tuple[Cost, ...]:
        """Seconds per inference of each by a model, which says the same whatever was measured meanwhile."""
        ...

    def verdicts(self, contests: Sequence[Sequence[Region]]) -> tuple[Verdict, ...]:
        """Seconds of regions that compute the same, one set of regions after the other.

        Where the regions of a set differ, all are measured or all are modelled.

        What is unknown may be measured first.
        """
        ...


@dataclass(frozen=True)
class Verdict:
    """What the regions of a contest take, all by costs of one source.

    differing_s  of each, seconds of the kernels that it and the first one do not have in common, on whichever side they
                 are more: what the difference of their seconds may be wrong by is a part of it
    """

    costs: tuple[Cost, ...]
    differing_s: tuple[float, ...]


@dataclass(frozen=True)
class Alternative:
    """A choice that could be made at a node of a program."""

    rule: Rule
    node: Node
    rewrite: Rewrite


@dataclass(frozen=True)
class Decision:
    """Choices that were evaluated as one: the costs of their region without and with them, and why they were not made.

    choice  names of the choices, in the order in which they were made
    where   the model's name of the node of the first, or its operator and value
    reason  empty where they were made
    """

    choice: str
    where: str
    why: str
    before: Cost
    after: Cost
    reason: str = ""

    def __str__(self) -> str:
        outcome = f"left: {self.reason}" if self.reason else "made"
        times = f"{1e6 * self.before.seconds:.1f} us, {1e6 * self.after.seconds:.1f} us with it ({self.after.source})"
        return f"{self.choice} at {self.where}: {self.why}; {times}; {outcome}"


@dataclass(frozen=True)
class Chosen:
    """The graph with the choices that pay, every choice that was evaluated, and why others were not offered."""

    graph: Graph
    log: tuple[Decision, ...]
    refusals: tuple[Refusal, ...]

    @property
    def made(self) -> tuple[Decision, ...]:
        """The choices that the graph has, in the order in which they were decided."""
        return tuple(one for one in self.log if not one.reason)

    def verify(self) -> None:
        """Raises VerifyError."""
        self.graph.verify()

    def __str__(self) -> str:
        """What was weighed, and what was not offered."""
        return "\n".join(map(str, (*self.log, "", "not offered:", *self.refusals)))


def alternatives(graph: Graph, choices: Sequence[Rule] = CHOICES) -> tuple[list[Alternative], list[Refusal]]:
    """Every choice that a program offers, in program order, and why others do not.

    Each one is tried by itself, on the program as it is.
    """
    program = Program(graph)
    refusals: list[Refusal] = []
    return list(_offered(program, choices, refusals)), refusals


def applied(graph: Graph, alternatives: Sequence[Alternative]) -> Graph:
    """The program with choices made that do not touch each other's nodes."""
    program = Program(graph)
    for one in alternatives:
        program.apply(one.node, one.rewrite)
    return program.graph()


def each(graph: Graph, choices: Sequence[Rule] = CHOICES) -> Iterator[Graph]:
    """The program with each choice made by itself."""
    for one in alternatives(graph, choices)[0]:
        yield applied(graph, [one])


def choose(
    graph: Graph,
    costs: GraphCosts,
    choices: Sequence[Rule] = CHOICES,
    rules: Sequence[Rule] = RULES,
    slack: float = SLACK,
) -> Chosen:
    """The program with the choices that make it faster, at a fixed point of `rules` again; verified.

    `graph` is at a fixed point of `rules`. Choices that approximate are not made. Equal graphs and costs give equal
    programs and logs. Choices within bodies of regions are made in these by themselves.
    """
    graph, inner = with_bodies(graph, lambda body: choose(body, costs, choices, rules, slack))
    exact = tuple(choice for choice in choices if not choice.kind.bound)
    search = _Search(costs, exact, rules, slack)
    refusals: list[Refusal] = []
    for _ in range(MOST_ROUNDS):
        refusals.clear()
        program = Program(graph)
        if not search.round(program, refusals):
            break
        graph = rewrite(program.graph(), rules=rules, inside=False).graph
    log = [*(one for body in inner for one in body.log), *search.log]
    refusals = [*(one for body in inner for one in body.refusals), *refusals]
    return Chosen(graph, tuple(log), tuple(refusals))


@dataclass(frozen=True)
class _Move:
    """A choice made at the node at a place of a region's graph."""

    rule: Rule
    place: int
    why: str


@dataclass(frozen=True, eq=False)
class _State:
    """A region after choices.

    rim   nodes of the surroundings, by their first outputs, at which no choice is made: others decide there
    next  the first id that no value has had
    """

    region: Region
    moves: tuple[_Move, ...]
    rim: frozenset[int]
    next: int


@dataclass(frozen=True)
class _Evaluated:
    """Choices from a region on, its cost without and with them, and why they are not made; empty where they are."""

    moves: tuple[_Move, ...]
    before: Cost
    after: Cost
    reason: str = ""

    def decision(self, start: _State) -> Decision:
        """The decision in words, for one of the regions of that structure."""
        where = _name(start.region.graph.nodes[self.moves[0].place])
        choice = " + ".join(move.rule.name for move in self.moves)
        why = "; ".join(dict.fromkeys(move.why for move in self.moves))
        return Decision(choice, where, why, self.before, self.after, self.reason)


@dataclass
class _Search:
    costs: GraphCosts
    choices: Sequence[Rule]
    rules: Sequence[Rule]
    slack: float
    log: dict[Decision, None] = field(default_factory=dict)
    decided: dict[str, tuple[_Evaluated, ...]] = field(default_factory=dict)
    """By structure, what was evaluated in a region; what is made, if anything is, comes first."""

    def round(self, program: Program, refusals: list[Refusal]) -> bool:
        """Decides every group of offers; whether the program changed."""
        sites = [_touched(program, offer) for offer in _offered(program, self.choices, refusals)]
        starts = [_start(program, touched) for touched in _groups(program, sites)]
        new = {one.region.structure: one for one in starts if one.region.structure not in self.decided}
        searched = {structure: self.searched(start) for structure, start in new.items()}
        finalists = {structure: _finalists(costs) for structure, costs in searched.items()}
        verdicts = self.costs.verdicts(
            [[start.region, *(one.region for one in finalists[key])] for key, start in new.items()]
        )
        for key, verdict in zip(new, verdicts, strict=True):
            self.decided[key] = tuple(_evaluated(searched[key], finalists[key], verdict))
        changed = [self.carry_out(program, start) for start in starts]
        return any(changed)

    def searched(self, start: _State) -> dict[str, tuple[_State, Cost]]:
        """Programs of a region by their structure, itself first, with their estimated costs: the cheapest first."""
        states = {start.region.structure: start}
        expanded: set[str] = set()
        while True:
            estimates = self.costs.estimates([state.region for state in states.values()])
            costs = dict(zip(states, estimates, strict=True))
            limit = self.slack * min(cost.seconds for cost in estimates)
            waiting = [key for key, cost in costs.items() if key not in expanded and cost.seconds <= limit]
            if not waiting or len(states) >= MOST_REGIONS:
                return {key: (state, costs[key]) for key, state in states.items()}
            key = min(waiting, key=lambda one: costs[one].seconds)
            expanded.add(key)
            for state in self.successors(states[key]):
                states.setdefault(state.region.structure, state)

    def successors(self, state: _State) -> Iterator[_State]:
        """The region with one choice more."""
        program = Program(state.region.graph)
        for place, node in enumerate(state.region.graph.nodes):
            if node.outputs[0] not in state.rim:
                for rule in self.choices:
                    if (after := self.moved(state, program, rule, place)) is not None:
                        yield after

    def moved(self, state: _State, program: Program, rule: Rule, place: int) -> _State | None:
        """The region after one choice and the greedy rules on it.

        None if `program`, the region, is not offered the choice.
        """
        graph = state.region.graph
        node = graph.nodes[place]
        if rule.ops and node.op not in rule.ops:
            return None
        answer = rule.match(program, program.made_by[node.outputs[0]])
        if not isinstance(answer, Rewrite):
            return None
        edited = Program(graph)
        edited.apply(edited.made_by[node.outputs[0]], answer)
        made = with_ids(edited.graph(), graph, state.next)
        first = max(state.next, made.next_id)
        after = with_ids(rewrite(made, rules=self.rules, inside=False).graph, made, first)
        moves = (*state.moves, _Move(rule, place, answer.why))
        return _State(Region(after, state.region.free), moves, state.rim, max(first, after.next_id))

    def carry_out(self, program: Program, start: _State) -> bool:
        """Makes in a region what was decided for its structure; whether the program changed."""
        evaluated = self.decided[start.region.structure]
        made = [one for one in evaluated if not one.reason]
        state = self.replayed(start, made[0].moves) if made else None
        if made and state is None:
            return False
        if state is not None:
            before, after = start.region.graph, state.region.graph
            if put_back(program, before, after, state.moves[0].why) is not None:
                return False  # what another group made of it is looked at in the next round
        self.log.update(dict.fromkeys(one.decision(start) for one in evaluated))
        return state is not None

    def replayed(self, start: _State, moves: Sequence[_Move]) -> _State | None:
        """The region after these choices; None where one is not offered, because of the numbers in constants."""
        state = start
        for move in moves:
            after = self.moved(state, Program(state.region.graph), move.rule, move.place)
            if after is None:
                return None
            state = after
        return state


def _touched(program: Program, offer: Alternative) -> frozenset[int]:
    """The nodes, by their first outputs, that an offer would replace."""
    return frozenset(node.outputs[0] for node in program.dying(offer.node, offer.rewrite))


def _groups(program: Program, sites: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Nodes touched by offers that touch the same nodes or feed each other, at most MOST_SITES offers in one."""
    group = list(range(len(sites)))
    owners: dict[int, list[int]] = {}
    for at, site in enumerate(sites):
        for key in site:
            owners.setdefault(key, []).append(at)
    for at, site in enumerate(sites):
        fed = {
            program.made_by[value].outputs[0]
            for key in site
            for value in program.made_by[key].used
            if value in program.made_by
        }
        for other in {other for key in site | fed for other in owners.get(key, ())}:
            _join(group, at, other)
    members: dict[int, list[frozenset[int]]] = {}
    for at, site in enumerate(sites):
        members.setdefault(_root(group, at), []).append(site)
    return [
        frozenset().union(*sites[begin : begin + MOST_SITES])
        for sites in members.values()
        for begin in range(0, len(sites), MOST_SITES)
    ]


def _root(group: list[int], at: int) -> int:
    while group[at] != at:
        at = group[at]
    return at


def _join(group: list[int], one: int, other: int) -> None:
    first, second = sorted((_root(group, one), _root(group, other)))
    group[second] = first


def _start(program: Program, touched: frozenset[int]) -> _State:
    """The region around what a group touches, as it is."""
    region = cut(program, around(program, touched))
    rim = frozenset(node.outputs[0] for node in region.graph.nodes) - touched
    return _State(region, (), rim, region.graph.next_id)


def _finalists(searched: Mapping[str, tuple[_State, Cost]]) -> list[_State]:
    """The fastest of the programs of a region that differ from it, by the estimates."""
    others = list(searched.values())[1:]
    return [state for state, _ in sorted(others, key=lambda one: one[1].seconds)[:FINALISTS]]


def _evaluated(
    searched: Mapping[str, tuple[_State, Cost]], finalists: Sequence[_State], verdict: Verdict
) -> Iterator[_Evaluated]:
    """The fastest finalist, if it is faster beyond doubt, and each single choice that is not made."""
    before, *costs = verdict.costs
    evaluated: dict[tuple[_Move, ...], _Evaluated] = {}
    for state, cost, differing in zip(finalists, costs, verdict.differing_s[1:], strict=True):
        evaluated[state.moves] = _Evaluated(state.moves, before, cost, _doubt(before, cost, differing))
    made = min((one for one in evaluated.values() if not one.reason), key=lambda one: one.after.seconds, default=None)
    if made is not None:
        yield made
    (_, estimate), *others = searched.values()
    for state, cost in others:
        if len(state.moves) == 1 and (made is None or state.moves != made.moves):
            one = evaluated.get(state.moves) or _Evaluated(state.moves, estimate, cost, _doubt(estimate, cost, 0.0))
            yield one if one.reason else replace(one, reason="others are faster")


def _doubt(before: Cost, after: Cost, differing_s: float) -> str:
    """Why a program is not faster for sure; empty where it is."""
    margin = MARGINS[after.source]
    if after.seconds >= before.seconds:
        return "it would not be faster"
    if before.seconds - after.seconds <= margin * differing_s:
        return f"it would save less than {100 * margin:.0f}% of what it changes, by which the costs may be wrong"
    return ""


def _offered(program: Program, choices: Sequence[Rule], refusals: list[Refusal]) -> Iterator[Alternative]:
    """What choices offer at each node of a program; why they do not goes into `refusals`."""
    for key in program.ordered():
        node = program.made_by[key]
        for rule in choices:
            if rule.ops and node.op not in rule.ops:
                continue
            answer = rule.match(program, node)
            if isinstance(answer, Rewrite):
                yield Alternative(rule, node, answer)
            elif isinstance(answer, No):
                refusals.append(Refusal(rule.name, _name(node), answer.reason))


def _name(node: Node) -> str:
    return repr(node.source) if node.source else f"{node.op} %{node.outputs[0]}"
