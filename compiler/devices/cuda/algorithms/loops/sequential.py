"""Kernels with sequential axes in CUDA C++: scans, scatters, recurrent layers, as one launch.

Points of the shared parallel axes whose temporaries and outputs never meet are apart: a team of threads takes each
through all steps. What is left of the parallel axes belongs to the blocks, whose points the team shares out; a barrier
stands before each step that needs what other threads did in the step before.

    for each step                    the kernel's sequential axes, in order
      barrier
      block after block              as in `lowering`, barriers in between
        for each step of the block   inside a thread where its parallel points are apart, else with a barrier each

Temporaries that bring values from step to step are arrays like those over a block's axes. Outputs that lie in memory in
16 bits and are read again have an fp32 temporary beside them, so that a long sum is rounded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from compiler.codegen.reductions import widened
from compiler.devices.cuda.algorithms.loops.lowering import (
    LOCAL_BYTES,
    CudaLoops,
    drop_held,
    in_memory_order,
    points,
    wanted_team,
)
from compiler.devices.cuda.algorithms.loops.team import SERIAL_WORK, TEAMS, WARP, Team
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.scalars import HALVES, CudaEmitter
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.normal_form import Slots, accesses, carried_temps, keep_dims, without_unit_axes
from compiler.ir.evaluate import with_whole_temps
from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile


def lower_cuda_sequential(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel with sequential axes, of its own or of its blocks.

    Level `block`: `team`, one of TEAMS, chosen where the tile does not say.
    """
    kernel = workload.kernel
    assert isinstance(kernel, Kernel), kernel
    slots = Slots(workload)
    kernel = _apart(_with_wide_states(without_unit_axes(widened(kernel, HALVES)), slots))
    return _CudaSequential(name, workload, in_memory_order(kernel, slots), slots, wanted_team(tile)).lower()


# Normal form


def _with_wide_states(kernel: Kernel, slots: Slots) -> Kernel:
    """Outputs that are shorter in memory and read again, kept in temporaries beside."""
    read = frozenset[str]().union(*(block.reads for block in kernel.blocks))
    wide = {
        slot.name: f"{slot.name}_wide"
        for slot in kernel.outputs
        if slot.name in read and slots.buffers[slot.name].element
    }
    if not wide:
        return kernel
    temps = tuple(Slot(wide[slot.name], slot.type) for slot in kernel.outputs if slot.name in wide)
    blocks = [part for block in kernel.blocks for part in _stored_twice(block, wide)]
    return replace(kernel, temps=(*kernel.temps, *temps), blocks=tuple(blocks))


def _stored_twice(block: Block, wide: dict[str, str]) -> Iterable[Block]:
    """A block that reads and stores wide states, and what it stores copied to their outputs."""

    def renamed(expr: Expr) -> Expr:
        return Load(wide.get(expr.slot, expr.slot), expr.index, expr.type) if isinstance(expr, Load) else expr

    values = tuple(value.transform(renamed) for value in block.values)
    kept = tuple(Store(wide.get(store.slot, store.slot), store.index) for store in block.stores)
    again = [at for at, store in enumerate(block.stores) if store.slot in wide]
    stores = tuple(block.stores[at] for at in again)
    if not block.monoid:
        copies = tuple(values[at] for at in again)
        yield replace(block, values=(*values, *copies), stores=(*kept, *stores))
        return
    yield replace(block, values=values, stores=kept)
    for store in stores:
        assert block.accumulator is not None
        copy = Load(wide[store.slot], store.index, block.accumulator)
        yield Block(block.axes, (copy,), (store,), sequential=block.sequential)


def _apart(kernel: Kernel) -> Kernel:
    """Shared parallel axes stay shared where their points are apart; other axes go into the blocks.

    Temporaries are those of one point.
    """
    parallel = [axis for axis in kernel.shared if axis not in kernel.sequential]
    temps = {temp.name for temp in kernel.temps}
    apart = {axis for axis in parallel if are_apart(axis, kernel.blocks, temps)}
    kernel = with_whole_temps(kernel)
    kept = {temp.name: _dims_within(temp, kernel, apart) for temp in kernel.temps}
    kernel = keep_dims(kernel, kept)
    meeting = tuple(axis for axis in parallel if axis not in apart)
    blocks = tuple(replace(block, axes=(*meeting, *block.axes)) for block in kernel.blocks)
    return replace(kernel, shared=tuple(axis for axis in kernel.shared if axis not in meeting), blocks=blocks)


def _dims_within(temp: Slot, kernel: Kernel, apart: Iterable[Axis]) -> tuple[int, ...]:
    """The dimensions of a temporary along which one point has more than one element."""
    indices = set(accesses(kernel, temp.name))
    fixed = (
        {index[dim] for index in indices} <= {Index.of(0)} or any(_is_along(axis, dim, indices) for axis in apart)
        for dim in range(temp.type.rank)
    )
    return tuple(dim for dim, is_fixed in enumerate(fixed) if not is_fixed)


def are_apart(axis: Axis, blocks: Sequence[Block], temps: Iterable[str] = ()) -> bool:
    """Whether points along an axis never touch the same element of what blocks store.

    A temporary of `temps` that no access takes along the axis is each point's own.
    """
    touched: dict[str, set[tuple[Index, ...]]] = {
        slot: set() for block in blocks for slot in (store.slot for store in block.stores)
    }
    for block in blocks:
        loads = (load for value in block.values for load in value.loads)
        taken: tuple[Store | Load, ...] = (*block.stores, *loads)
        for access in taken:
            if access.slot in touched:
                touched[access.slot].add(access.index)
    own = set(temps)
    return all(
        any(_is_along(axis, dim, indices) for dim in range(len(next(iter(indices)))))
        or (slot in own and not any(axis in index.axes for at in indices for index in at))
        for slot, indices in touched.items()
    )


def _is_along(axis: Axis, dim: int, indices: Iterable[tuple[Index, ...]]) -> bool:
    """Whether all accesses take a dimension at one place, which is another one for each point of an axis."""
    places = {index[dim] for index in indices}
    return len(places) == 1 and [atom for atom, _ in next(iter(places)).terms] == [axis]


TEAM_WORK = 4
"""Elements of a thread in a step from which a larger team pays: steps cannot wait for one another otherwise."""


class _CudaSequential(CudaLoops):
    """One lowering of a kernel that `_apart` has brought into form."""

    def __post_init__(self) -> None:
        carried = carried_temps(self.kernel)
        in_loops = (block.writes for block in self.kernel.blocks if block.sequential)
        self.carried = carried.union(*in_loops)
        super().__post_init__()

    def _is_register(self, temp: Slot) -> bool:
        return not temp.type.rank and temp.name not in self.carried

    def _chosen_team(self) -> Team:
        """One thread where no block has work to share, or there are very many points.

        Else as many as the largest block feeds.
        """
        shared = max(
            points([axis for axis in block.axes if axis not in block.sequential]) * points(block.reduction)
            for block in self.kernel.blocks
        )
        if shared <= SERIAL_WORK and sum(temp.type.bytes for temp in self.arrays) <= LOCAL_BYTES:
            return Team(1)
        return Team(next((size for size in TEAMS[1:] if shared <= TEAM_WORK * size), TEAMS[-1]))

    # Steps of the kernel

    def _blocks(self) -> None:
        """Step after step; a barrier where one needs what another thread did in the step before."""
        with self._nest(self.kernel.sequential):
            if self.kernel.sequential and self._steps_meet():
                self._barrier()
            super()._blocks()

    def _steps_meet(self) -> bool:
        """Whether a step touches what an earlier one stored, or the parts of its reductions.

        What the same block stored at the same point does not count.
        """
        stored = [slot for block in self.kernel.blocks for slot in block.writes - self.registers]
        read = frozenset[str]().union(*(block.reads for block in self.kernel.blocks))
        across = any(self._is_across(block) for block in self.kernel.blocks)
        return bool(read & set(stored)) or len(set(stored)) < len(stored) or across

    # Steps of a block

    def _block(self, block: Block, emitter: CudaEmitter) -> None:
        if not block.sequential or not points(block.axes):
            super()._block(block, emitter)
            return
        emitter.forget(block.writes)
        drop_held(emitter, block.writes)
        parallel = tuple(axis for axis in block.axes if axis not in block.sequential)
        if self.team.size > 1 and points(block.reduction) < WARP and all(are_apart(axis, [block]) for axis in parallel):
            self._steps_in_a_thread(block, parallel, emitter)
        else:
            self._steps_of_a_team(block, parallel, emitter)
        drop_held(emitter, block.writes)

    def _steps_in_a_thread(self, block: Block, parallel: Sequence[Axis], emitter: CudaEmitter) -> None:
        """Each thread takes its share of the parallel points through all steps."""
        with ExitStack() as stack:
            if parallel:
                stack.enter_context(self._dealt(parallel, "lane", self.team.size))
            else:
                stack.enter_context(self.writer.block("if (lane == 0)"))
            stack.enter_context(self._nest(block.sequential))
            stack.enter_context(emitter.scope())
            self._store(block, self._serially(block, emitter), emitter, {})

    def _steps_of_a_team(self, block: Block, parallel: tuple[Axis, ...], emitter: CudaEmitter) -> None:
        """The team shares out the parallel points of every step."""
        with self._nest(block.sequential):
            self._barrier()
            with emitter.scope():
                super()._block(replace(block, axes=parallel, sequential=()), emitter)
