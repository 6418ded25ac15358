"""The step that tiles: kernels, and those that calls may be joined into, with a menu each; then the joins that pay."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial

from compiler.devices.device import Backend
from compiler.fuse.attention.key_parts import KIND
from compiler.fuse.joins import ChosenJoins, choose_joins
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Machine, Record, Setting, Workload
from compiler.ir.tile import Menu, Tile
from compiler.knowledge.kinds import FROM
from compiler.prove.agree import DEFAULT_TOLERANCE
from compiler.schedule import may_run_concurrently
from compiler.session import Session
from compiler.steps.costs.kernels import KernelCosts, offered_joins
from compiler.steps.costs.lanes import split_seconds, state_of
from compiler.steps.tiling.key_parts import KeyCuts
from compiler.steps.tiling.regions import inner_workloads, outer_positions, settled
from compiler.tuning.menus import Tiler
from compiler.tuning.tune import Measuring, Tiled, Tunable, Tuning, tune


@dataclass(frozen=True)
class Rounding:
    """What a round of building may round: algorithms within a tolerance, elements and products in a precision.

    The first round may do what the job permits; where its result does not agree, the second leaves all of that out.
    """

    tolerance: float
    precision: str


EXACT = Rounding(0.0, "fp32")


def roundings(session: Session) -> tuple[Rounding, Rounding]:
    """Of the rounds of a job."""
    options = session.options
    granted = DEFAULT_TOLERANCE["fp32"] if options.tolerance is None else options.tolerance
    return Rounding(granted, options.arithmetic), EXACT


@dataclass(frozen=True)
class TiledKernels:
    """Kernels after the joins that pay, a menu for each call, and what is known of the device.

    `str` is every tile that was considered, of `calls`: those that are no regions, joins, those inside of regions.

    facts     records of the device's cores
    handover  what a lane waits for another's result; None for one lane, or if unknown
    machine   on which trials were measured; None for a target that is elsewhere
    """

    backend: Backend
    calls: Sequence[Call]
    workloads: Sequence[Workload]
    tiled: Tiled
    settled: ChosenJoins
    setting: Setting
    facts: Sequence[Record]
    handover: Record | None
    machine: Machine | None

    @property
    def kernels(self) -> KernelGraph:
        """The kernels that have these tiles."""
        return self.settled.kernels

    @property
    def records(self) -> list[Record]:
        """By which all of that is known."""
        return [*self.tiled.measured, *self.tiled.reused, *self.facts, *([self.handover] if self.handover else [])]

    def verify(self) -> None:
        """Raises VerifyError."""
        self.kernels.verify()

    def __str__(self) -> str:
        """What is known of the device, how good the model was, and for each call the tiles that were considered."""
        lines = [str(self.backend)]
        lines += [str(self.tiled.ranking)] if self.tiled.ranking else []
        lines += [
            f"{call}\n    {self._menu(workload, menu)}"
            for call, workload, menu in zip(self.calls, self.workloads, self.tiled.menus, strict=True)
        ]
        return "\n".join(lines)

    def _menu(self, workload: Workload, menu: Menu) -> str:
        """All tiles that were tried or take part in scheduling.

        Of the latter, into how many tile tasks they cut the kernel.
        """
        tasks = {variant.tile: f" in {variant.tiles} tiles" for variant in menu.variants}
        known = {variant.tile: variant.cost for variant in menu.variants} | dict(self.tiled.tried[menu.workload])

        def about(tile: Tile) -> str:
            known = self.backend.describe(workload, tile)
            return f"{tasks.get(tile, '')}{known and f': {known}'}"

        options = "\n    ".join(
            f"{1e6 * cost.seconds:10.1f} us {cost.source:9} {tile}{about(tile)}"
            for tile, cost in sorted(known.items(), key=lambda one: one[1].seconds)
        )
        return f"workload {menu.workload}\n    {options}"


def tiler_of(backend: Backend) -> Tiler:
    """What the backend answers of tiles."""
    return Tiler(
        backend.target,
        backend.legal_tiles,
        backend.count_tiles,
        backend.choose,
        backend.source_of,
        backend.resident_tile,
    )


def tile_kernels(
    session: Session,
    kernels: KernelGraph,
    costs: KernelCosts,
    tolerance: float,
    precision: str,
    exact: Set[int] = frozenset(),
    lanes: int | None = None,
) -> TiledKernels:
    """Measures what is worth it, and decides which calls are joined.

    kernels    with the elements that they have in memory
    tolerance  of which algorithms that are not exact may spend a part
    precision  whose algorithms may be chosen, but for calls at the positions `exact`
    lanes      that may share a kernel; None: all of the job
    """
    lanes, meeting_s = (session.lanes, split_seconds(session)) if lanes is None else (lanes, 0.0)
    facts = session.prepare(kernels)
    backend, setting = session.backend, session.backend.setting(kernels)
    offered = offered_joins(kernels, costs.on(backend, precision), session.kept.without_steps)
    inner, outer = inner_workloads(kernels, backend.workload_of), outer_positions(kernels)
    joinable = [kernels.calls[at] for at in outer] + [join.call for join in offered]
    calls = (*joinable, *(one.call for one in inner))
    concurrent, workload_of = may_run_concurrently(kernels), partial(backend.workload_of, kernels)
    tunable = (
        *(Tunable(workload_of(kernels.calls[at]), 1, at in exact, concurrent[at]) for at in outer),
        *(Tunable(workload_of(join.call), 1, not exact.isdisjoint(join.calls), True) for join in offered),
        *(Tunable(one.workload, one.times, bool(exact)) for one in inner),
    )
    handover = session.handover
    tuning = Tuning(tunable, lanes, setting, tolerance, precision, state_of(handover))
    with session.machine(setting) as machine:
        by = machine if session.measures else None
        measuring = Measuring(by, session.budget, session.trace, session.helpers, session.do_meanwhile)
        tiled = tune(tuning, tiler_of(backend), backend.starting_points(session.records, setting), measuring)
    session.do_meanwhile()
    session.add_records(record for record in tiled.carried if FROM not in record.variant)
    regions = settled(kernels, tiled.menus[len(joinable) :], backend.workload_of)
    known = {**dict(zip(outer, tiled.menus, strict=False)), **regions.menus}
    apart = [known[at] for at in range(len(kernels.calls))]
    joined = tiled.menus[len(outer) : len(joinable)]
    chosen = choose_joins(regions.kernels, offered, apart, joined, lanes, meeting_s)
    if lanes > 1 and KIND in backend.joins and "joins" not in session.kept.without_steps:
        chosen = KeyCuts(tiler_of(backend), backend.workload_of, precision, lanes, meeting_s).cut(chosen)
    return TiledKernels(
        backend, calls, [one.workload for one in tunable], tiled, chosen, setting, facts, handover, machine
    )
