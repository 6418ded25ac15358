"""Batches in slices: whether a batch runs as a whole, or a few samples after another through all kernels.

A call that computes all samples at once leaves more behind than caches hold, which the next call reads from memory.
Where each sample is computed by itself (`compiler.fuse.batch`), a slice of a few may go through all calls before the
next one does, in the same memory: its values stay in caches, and lanes take slices of their own and never wait for each
other. The price is small products, whose weights are read again for each slice. Both are estimated, by the model of
costs and by what is moved between the caches and memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.devices.device import LaneDevice
from compiler.fuse.batch import Batch, batch_of
from compiler.fuse.joins import ChosenJoins
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.kernel import Slot
from compiler.ir.region import SLICES, Region
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Menu, Variant
from compiler.pack.explanation import Entry, Explanation
from compiler.schedule.memory.buffers import place_buffers
from compiler.session import Session
from compiler.steps.costs import KernelCosts
from compiler.steps.regions import REGION, region_cost
from compiler.tuning.tune import workload_key

STEP = "slices"
"""Its name among the steps of fusion that a job may leave out."""
LARGEST = 32
"""Samples of a slice that are tried at most."""
LEAST_GAIN = 0.02
"""Of the time of the whole batch, by the estimate, which says less than is gained: see bench/RESULTS.md."""
EQUAL = 0.01
"""Of slices that take as long, but for this part of it, the smallest are taken: they need the least memory."""


@dataclass(frozen=True)
class Slices:
    """Kernels for one slice of a batch, of which there are `count`; `whole` are those for all samples at once.

    entry  says so, with the estimates of both
    """

    whole: KernelGraph
    kernels: KernelGraph
    count: int
    entry: Entry

    def around(self, settled: ChosenJoins, session: Session) -> ChosenJoins:
        """One call that runs the kernels, once they have menus, for each slice."""
        body, best = settled.kernels, [menu.best for menu in settled.menus]
        inputs, outputs = (
            [Buffer.whole(id, self.whole.buffers[id].type, name=self.whole.buffers[id].name) for id in ids]
            for ids in (self.whole.inputs, self.whole.outputs)
        )
        region = Region(
            SLICES,
            SLICES.lower(),
            (),
            _slots("y", [buffer.type for buffer in outputs]),
            {},
            (body,),
            tiles=(tuple(one.tile for one in best),),
            costs=(tuple(one.cost for one in best),),
            slices=self.count,
        )
        arrays = [body.constants[use.constant] for use in region.uses]
        next_id = 1 + max(self.whole.buffers)
        ids = {key: next_id + at for at, key in enumerate(dict.fromkeys(map(id, arrays)))}
        constants = {ids[id(array)]: array for array in arrays}
        known = [Buffer.whole(at, TensorType(DType.of(one.dtype), one.shape)) for at, one in constants.items()]
        types = [*(buffer.type for buffer in inputs), *(known[ids[id(one)] - next_id].type for one in arrays)]
        region = replace(region, inputs=_slots("x", types))
        call = Call(
            region,
            (*self.whole.inputs, *(ids[id(array)] for array in arrays)),
            self.whole.outputs,
            sources=tuple(dict.fromkeys(name for one in body.calls for name in one.sources)),
        )
        buffers = {buffer.id: buffer for buffer in (*inputs, *known, *outputs)}
        kernels = KernelGraph(buffers, (call,), self.whole.inputs, self.whole.outputs, constants)
        key = workload_key(session.backend.workload_of(kernels, call))
        menu = Menu(key, (Variant(REGION, self.count, 1, region_cost(region)),))
        return replace(settled, kernels=kernels, menus=(menu,))


def _slots(letter: str, types: list[TensorType]) -> tuple[Slot, ...]:
    return tuple(Slot(f"{letter}{at}", type) for at, type in enumerate(types))


def slices_of(session: Session, kernels: KernelGraph, costs: KernelCosts) -> Slices | Entry | None:
    """The slices that take least by the estimate; or why the batch stays whole; None where there is none to cut.

    kernels  with the elements that they have in memory, as `costs` expect them
    """
    device = session.backend.lanes
    batch = None if device is None or STEP in session.kept.without_steps else batch_of(kernels)
    if batch is None or device is None:
        return None
    where = kernels.buffers[kernels.inputs[0]].name
    if isinstance(batch, str):
        return Entry(STEP, f"samples are not computed each by itself: {batch}", 1, where)
    estimate = _Estimate(batch, device, replace(costs, measured={}, earlier={}), session.lanes)
    seconds = {samples: estimate.seconds(samples) for samples in _sizes(batch.size, session.lanes)}
    if not seconds:
        return Entry(STEP, f"{batch.size} samples make no two slices for each lane", 1, where)
    whole_s, least_s = estimate.seconds(batch.size), min(seconds.values())
    samples = min(one for one in seconds if seconds[one] <= (1 + EQUAL) * least_s)
    count = batch.size // samples
    said = f"{batch.size} samples in {count} slices, one after another through all kernels"
    times = f"{1e6 * whole_s:.1f} us without, {1e6 * seconds[samples]:.1f} us with it, by the model"
    if seconds[samples] > (1 - LEAST_GAIN) * whole_s:
        return Entry(STEP, f"{said}: it saves less than the model errs by", 1, where, times)
    return Slices(kernels, batch.of(samples), count, Entry(STEP, said, 1, where, times))


def with_slices(explanation: Explanation, slices: Slices | Entry | None) -> Explanation:
    """An explanation that also says what was decided of a batch."""
    if slices is None:
        return explanation
    if isinstance(slices, Slices):
        return replace(explanation, taken=(*explanation.taken, slices.entry))
    return replace(explanation, left=(*explanation.left, slices))


def _sizes(size: int, lanes: int) -> Iterator[int]:
    """Powers of two that a batch divides into slices enough for all lanes."""
    samples = 1
    while samples <= LARGEST and size % samples == 0 and size // samples >= max(lanes, 2):
        yield samples
        samples *= 2


@dataclass(frozen=True)
class _Estimate:
    """What a batch takes in slices of so many samples, or whole."""

    batch: Batch
    device: LaneDevice
    costs: KernelCosts
    lanes: int

    def seconds(self, samples: int) -> float:
        """Of all samples: what the kernels compute, and what they move beyond the caches nearest to a core."""
        kernels, count = self.batch.of(samples), self.batch.size // samples
        _, working_bytes = place_buffers(kernels)
        computed = sum(cost.seconds for cost in self.costs.of(kernels, kernels.calls))
        moved = self.device.moving_seconds(_moved_bytes(kernels), working_bytes, self.lanes)
        turns = -(-count // self.lanes) if count > 1 else 1 / self.lanes
        return turns * (computed + moved)


def _moved_bytes(kernels: KernelGraph) -> int:
    """Bytes of values between kernels that are read, and twice those that are written: lines are fetched for it."""
    outside = {*kernels.inputs, *kernels.outputs, *kernels.constants}
    return sum(
        times * _bytes(kernels.buffers[id])
        for call in kernels.calls
        for ids, times in ((call.inputs, 1), (call.outputs, 2))
        for id in ids
        if kernels.buffers[id].storage not in outside
    )


def _bytes(buffer: Buffer) -> int:
    return buffer.type.elements * buffer.dtype.bytes
