"""Ways to carry out several calls as one of which only costs can say whether they pay.

`joins` lists them, `promising` keeps those that the model of costs does not rule out. They are tiled and measured
beside the calls that they would replace. `choose_joins` then takes those that make the model faster.

A model takes at least the work of all its calls shared by the lanes. It also takes at least as long as the longest path
through it, on which every call runs on one lane or is shared by all as far as its tile tasks go. A join is taken if the
larger of the two falls, or the work alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from compiler.fuse.attention.bytes import byte_attentions
from compiler.fuse.attention.few_queries import few_query_attentions
from compiler.fuse.attention.key_ends import ended_attentions, ends_keys
from compiler.fuse.excitation import excitations
from compiler.fuse.normalised import normalisations
from compiler.fuse.refusal import name_of
from compiler.fuse.separable import separables
from compiler.fuse.sizes.unread import with_unread
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Costs
from compiler.ir.tile import Cost, Menu

FINDERS: Mapping[str, Callable[[KernelGraph], tuple[tuple[tuple[int, ...], Call], ...]]] = {
    "separable": separables,
    "excitation": excitations,
    "normalised": normalisations,
    "byte_attention": byte_attentions,
    "few_queries": few_query_attentions,
    "key_ends": ended_attentions,
}
"""What calls are joined to: a window and the product that follows it, a pool with the products that make a gate of
it, a normalisation of rows and a product of them, two products with the softmax between them of bytes or few rows,
attention and the mask of places that it makes itself."""
KINDS = frozenset(FINDERS)
BY_MODEL: Mapping[str, float] = {"byte_attention": 0.75, "few_queries": 0.75, "key_ends": 0.75}
"""Kinds of join that are taken where not all was measured, if by the model they take less than this part of what their
calls take: a network has as many kernels of attention as layers, each with scales of its own, and three calls and the
join of each are more than most budgets measure."""
USUAL_KEYS = 0.7
"""Of what attention takes with all of its keys, where a mask says at which its rows end: what it takes on average over
the tokens of a cache that fills, which kernels are not timed with."""
HOPE = 1.25
"""A join is tiled where by the model it takes less than this times what its calls take apart: by as much the model may
err."""
MOST_VISITS = 1 << 22
"""Calls visited to see what joins do to the longest path: seconds; in a model with more, those that save most are
evaluated."""
ERROR = 0.03
"""Of what calls take apart: a join that saves less is left, since what is measured kernel by kernel errs by as much."""
SHARED_ERROR = 0.15
"""The same where lanes share calls: kernels are measured on one lane, and joins that saved a few percent there cost as
much on two."""


@dataclass(frozen=True)
class Join:
    """One call instead of those at `calls`, in ascending order, in the place of the last one; `kind` names the way.

    `foreseen` is which part of the time of its calls it takes by the model, once that was asked.
    """

    kind: str
    calls: tuple[int, ...]
    call: Call
    foreseen: float = 1.0

    @property
    def usual(self) -> float:
        """Which part of the time of its call, with all of its work, it takes in a usual run."""
        return USUAL_KEYS if self.kind in ("few_queries", "key_ends") and ends_keys(self.call) else 1.0

    @property
    def where(self) -> str:
        """The model's name of an operator, or what operators they are."""
        return name_of(self.call.sources, self.call.kernel.family)


@dataclass(frozen=True)
class Verdict:
    """What became of a join: seconds of its calls apart and as one, on one lane, and the reason for not taking it.

    `reason` is empty if it was taken.
    """

    join: Join
    apart: tuple[Cost, ...]
    joined: Cost
    reason: str = ""

    def __str__(self) -> str:
        apart = " + ".join(f"{1e6 * cost.seconds:.1f}" for cost in self.apart)
        outcome = f"left apart: {self.reason}" if self.reason else "joined"
        kernel = self.join.call.kernel.family
        as_one = f"{1e6 * self.joined.seconds:.1f} us as one ({self.joined.source})"
        return f"{self.join.kind} {kernel} at {self.join.where}: {apart} us apart, {as_one}; {outcome}"


@dataclass(frozen=True)
class ChosenJoins:
    """The kernels with the joins that were taken, a menu for each call, and what became of each join."""

    kernels: KernelGraph
    menus: tuple[Menu, ...]
    log: tuple[Verdict, ...]


def joins(kernels: KernelGraph, kinds: frozenset[str] = KINDS) -> tuple[Join, ...]:
    """Every join of some kinds that there may be, by the position of its last call."""
    found = [Join(kind, at, call) for kind in FINDERS if kind in kinds for at, call in FINDERS[kind](kernels)]
    return tuple(sorted(found, key=lambda join: join.calls[-1]))


def promising(kernels: KernelGraph, found: Sequence[Join], costs: Costs) -> tuple[Join, ...]:
    """Those that may pay, by costs of which none is measured."""
    calls = [call for join in found for call in (join.call, *(kernels.calls[at] for at in join.calls))]
    seconds = iter(cost.seconds for cost in costs.of(kernels, calls))
    kept = []
    for join in found:
        joined, *apart = (next(seconds) for _ in (join.call, *join.calls))
        usual = join.usual * joined
        if usual < HOPE * sum(apart):
            kept.append(replace(join, foreseen=usual / sum(apart)))
    return tuple(kept)


def replaced(kernels: KernelGraph, chosen: Sequence[Join]) -> KernelGraph:
    """The kernels with the calls of some joins, no two of which share one, carried out as the joins say.

    Buffers that nothing needs are gone, and calls whose results joins compute for themselves.
    """
    instead = {join.calls[-1]: join.call for join in chosen}
    gone = {call for join in chosen for call in join.calls[:-1]}
    calls = tuple(instead.get(at, call) for at, call in enumerate(kernels.calls) if at not in gone)
    calls = _without_unread(
        kernels, calls, {id for join in chosen for at in join.calls for id in kernels.calls[at].inputs}
    )
    bound = {id for call in kernels.calls for id in (*call.inputs, *call.outputs)}
    needed = {*kernels.inputs, *(id for call in calls for id in (*call.inputs, *call.outputs))}
    buffers = {id: buffer for id, buffer in kernels.buffers.items() if id in needed or id not in bound}
    constants = {id: array for id, array in kernels.constants.items() if id in buffers}
    cut = [id for id in kernels.outputs if id in buffers and (buffers[id].unread or buffers[id].margins)]
    return with_unread(replace(kernels, buffers=buffers, calls=calls, constants=constants), frozenset(cut))


def _without_unread(kernels: KernelGraph, calls: Sequence[Call], once_read: Set[int]) -> tuple[Call, ...]:
    """The calls but for those whose results, each in a storage of its own, were read and no longer are."""
    while True:
        read = {id for call in calls for id in call.inputs} | {*kernels.outputs}
        kept = tuple(
            call
            for call in calls
            if any(id in read or id not in once_read or not _is_alone(kernels, id) for id in call.outputs)
        )
        if len(kept) == len(calls):
            return kept
        once_read |= {id for call in calls if call not in kept for id in call.inputs}
        calls = kept


def _is_alone(kernels: KernelGraph, id: int) -> bool:
    """Whether no other buffer lies in a buffer's storage."""
    return len(kernels.lying_in[kernels.buffers[id].storage]) == 1


def choose_joins(
    kernels: KernelGraph,
    found: Sequence[Join],
    menus: Sequence[Menu],
    joined: Sequence[Menu],
    lanes: int,
    sync_s: float = 0.0,
) -> ChosenJoins:
    """Takes the joins that pay, in the order of the work that they save.

    `menus` are those of the calls, `joined` those of the joins. `sync_s` is the synchronisation overhead, in seconds,
    of sharing a call between lanes. What was measured is compared only with what was measured, what was modelled
    with what was modelled; where some of both would be, the model decides on kinds in BY_MODEL.
    """
    candidates = [
        _Candidate(at, join, tuple(menus[call] for call in join.calls), menu)
        for at, (join, menu) in enumerate(zip(found, joined, strict=True))
    ]
    by_call: Mapping[tuple[int, ...], Menu] = {
        call.outputs: menu for call, menu in zip(kernels.calls, menus, strict=True)
    }
    best = _length(kernels, by_call, lanes, sync_s)
    taken: list[_Candidate] = []
    left = MOST_VISITS // max(len(kernels.calls), 1)
    log: dict[int, Verdict] = {}
    for one in sorted(candidates, key=lambda one: (-one.saved, one.at)):
        reason = one.refusal(taken, sync_s, ERROR if lanes == 1 else SHARED_ERROR)
        if not reason and not left:
            reason = "the model has too many calls to weigh them all"
        if not reason:
            left -= 1
            with_it = [*taken, one]
            length = _length(*_with(kernels, by_call, with_it, usual=True), lanes, sync_s)
            if length < best:
                taken, best = with_it, length
            else:
                reason = "it would lengthen the longest path"
        log[one.at] = one.verdict(reason)
    kept, by_call = _with(kernels, by_call, taken)
    return ChosenJoins(kept, tuple(by_call[call.outputs] for call in kept.calls), tuple(log[at] for at in sorted(log)))


@dataclass(frozen=True)
class _Candidate:
    """A join with its own menu and those of the calls that it would replace."""

    at: int
    join: Join
    apart: tuple[Menu, ...]
    menu: Menu

    @property
    def costs(self) -> tuple[Cost, ...]:
        return tuple(menu.best.cost for menu in self.apart)

    @property
    def usual_menu(self) -> Menu:
        """With what its variants take in a usual run."""
        part = self.join.usual
        return replace(
            self.menu,
            variants=tuple(
                replace(one, cost=replace(one.cost, seconds=part * one.cost.seconds)) for one in self.menu.variants
            ),
        )

    @property
    def saved(self) -> float:
        """Seconds of one lane."""
        return sum(cost.seconds for cost in self.costs) - self.join.usual * self.menu.best.cost.seconds

    def refusal(self, taken: Sequence[_Candidate], sync_s: float, error: float) -> str:
        """Why it is not taken whatever the path; empty when it may be."""
        if any(set(self.join.calls) & set(other.join.calls) for other in taken):
            return "another join has taken one of its calls"
        if len({cost.is_modelled for cost in (*self.costs, self.menu.best.cost)}) > 1:
            surely = self.join.foreseen < BY_MODEL.get(self.join.kind, 0.0)
            return "" if surely else "not all of them were measured"
        saved = self.saved + sync_s * (len(self.apart) - 1)
        if saved <= 0:
            return "it is no less work"
        return "it saves less than measurements err by" if saved < error * sum(c.seconds for c in self.costs) else ""

    def verdict(self, reason: str) -> Verdict:
        return Verdict(self.join, self.costs, self.menu.best.cost, reason)


def _with(
    kernels: KernelGraph, menus: Mapping[tuple[int, ...], Menu], taken: Sequence[_Candidate], *, usual: bool = False
) -> tuple[KernelGraph, Mapping[tuple[int, ...], Menu]]:
    """The kernels with some joins, and the menu of each call by its outputs, perhaps with what usual runs take."""
    joined = replaced(kernels, [one.join for one in taken])
    return joined, {**menus, **{one.join.call.outputs: one.usual_menu if usual else one.menu for one in taken}}


def _length(
    kernels: KernelGraph, menus: Mapping[tuple[int, ...], Menu], lanes: int, sync_s: float
) -> tuple[float, float]:
    """What a model takes at least, by its work and its longest path, and its work on one lane.

    The second decides between models that are equal in the first.
    """
    work, longest = 0.0, 0.0
    ready: dict[int, float] = {}
    for call in kernels.calls:
        menu = menus[call.outputs]
        begin = max((ready.get(kernels.buffers[id].storage, 0.0) for id in call.inputs), default=0.0)
        end = begin + min(menu.best.cost.seconds, _shared(menu, lanes) + sync_s)
        for id in call.outputs:
            storage = kernels.buffers[id].storage
            ready[storage] = max(end, ready.get(storage, 0.0))
        work += menu.best.cost.seconds
        longest = max(longest, end)
    return max(work / lanes, longest), work


def _shared(menu: Menu, lanes: int) -> float:
    """Seconds of a call that all lanes share, as evenly as its tile tasks permit."""
    alone = (one for one in menu.variants if one.lanes == 1)
    return min(one.cost.seconds * -(-one.tiles // lanes) / max(one.tiles, 1) for one in alone)
