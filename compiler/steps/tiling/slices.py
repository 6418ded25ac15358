"""Batches in slices: whether a batch runs as a whole, or a few samples after another through all kernels.

A call that computes all samples at once leaves more behind than caches hold, which the next call reads from memory.
Where each sample is computed by itself (`compiler.fuse.batches.batch`), a slice of a few may go through all calls
before the next one does, in the same memory: its values stay in caches, and lanes take slices of their own and never
wait for each other. The price is small products, whose weights are read again for each slice. Both are estimated, by
the model of costs and by what is moved between the caches and memory. Where a slice has so few rows that weights of few
bits are sooner multiplied as floats, which the whole batch reads as codes, slices must gain what several times the
bytes are worth.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.devices.device import LaneDevice
from compiler.encodings.quantised import WORTH_BYTES
from compiler.fuse.batches.batch import Batch, batch_of
from compiler.fuse.batches.sliced import runs_once, sliced
from compiler.fuse.joins import ChosenJoins
from compiler.ir.buffers import KernelGraph
from compiler.ir.tile import Menu, Variant
from compiler.pack.explanation import Entry, Explanation
from compiler.schedule.memory.buffers import place_buffers
from compiler.session import Session
from compiler.steps.costs.kernels import KernelCosts
from compiler.steps.tiling.regions import REGION, region_cost
from compiler.tuning.tune import workload_key

STEP = "slices"
"""Its name among the steps of fusion that a job may leave out."""
LARGEST = 32
"""Samples of a slice that are tried at most."""
LEAST_GAIN = 0.02
"""Of the time of the whole batch, by the estimate, which says less than is gained: see bench/history/2026-11-28.md."""
EQUAL = 0.01
"""Of slices that take as long, but for this part of it, the smallest are taken: they need the least memory."""


@dataclass(frozen=True)
class OpenBatch:
    """A batch whose size is only known while running.

    size   id of the scalar that is given it
    usual  the size for which the program is tuned
    least  the smallest that it may have
    """

    size: int
    usual: int
    least: int


@dataclass(frozen=True)
class Slices:
    """Kernels for one slice of a batch, of which there are `count`; `batch` has those for all samples at once.

    Calls that read nothing of samples are among the kernels too: they run once, before all slices.

    entry  says so, with the estimates of both
    """

    batch: Batch
    kernels: KernelGraph
    count: int
    entry: Entry

    def around(self, settled: ChosenJoins, session: Session) -> ChosenJoins:
        """With one call for all slices of the kernels, once they have menus."""
        once = [runs_once(self.batch, call) for call in settled.kernels.calls]
        best = [menu.best for menu, alone in zip(settled.menus, once, strict=True) if not alone]
        tiles, costs = [one.tile for one in best], [one.cost for one in best]
        kernels, region = sliced(self.batch, settled.kernels, self.count, tiles, costs)
        key = workload_key(session.backend.workload_of(kernels, kernels.calls[-1]))
        own = Menu(key, (Variant(REGION, self.count, 1, region_cost(region)),))
        menus = [menu for menu, alone in zip(settled.menus, once, strict=True) if alone]
        return replace(settled, kernels=kernels, menus=(*menus, own))


def slices_of(
    session: Session, kernels: KernelGraph, costs: KernelCosts, open_batch: OpenBatch | None = None
) -> Slices | Entry | None:
    """The slices that take least by the estimate; or why the batch stays whole; None where there is none to cut.

    kernels     with the elements that they have in memory, as `costs` expect them
    open_batch  None for a batch that always has as many samples
    """
    device = session.backend.lanes
    if device is None or STEP in session.kept.without_steps:
        return None
    batch = batch_of(kernels, open_batch.size if open_batch else None)
    if batch is None:
        return None
    where = kernels.buffers[kernels.inputs[0]].name
    if isinstance(batch, str):
        return Entry(STEP, f"samples are not computed each by itself: {batch}", 1, where)
    estimate = _Estimate(batch, device, replace(costs, measured={}, earlier={}), session.lanes)
    if open_batch is not None:
        found = _of_open_batch(batch, estimate, open_batch, where)
        least, lanes = open_batch.least, session.lanes
        if isinstance(found, Entry) or least >= lanes:
            return found
        if lanes <= batch.size:
            fewer = least if least + 1 == lanes else {"min": least, "max": lanes - 1}
            dims = json.dumps([fewer, {"min": lanes, "max": batch.size}])
            session.trace.notice(
                f"a batch of {lanes} and more would be faster sample by sample ({found.entry.note}), but {least} would "
                f"leave threads without work: give dims {dims} for a program of each kind"
            )
        return replace(found.entry, why=f"{found.entry.why}: {least} would leave threads without work")
    seconds = {samples: estimate.weighed(samples) for samples in _sizes(batch.size, session.lanes)}
    if not seconds:
        return Entry(STEP, f"{batch.size} samples make no two slices for each lane", 1, where)
    whole_s, least_s = estimate.seconds(batch.size), min(seconds.values())
    samples = min(one for one in seconds if seconds[one] <= (1 + EQUAL) * least_s)
    count = batch.size // samples
    said = f"{batch.size} samples in {count} slices, one after another through all kernels"
    times = f"{1e6 * whole_s:.1f} us without, {1e6 * estimate.seconds(samples):.1f} us with it, by the model"
    if seconds[samples] > (1 - LEAST_GAIN) * whole_s:
        is_worse = estimate.seconds(samples) > (1 - LEAST_GAIN) * whole_s
        why = "the model errs by" if is_worse else "weights of few bits are worth that it makes dense"
        return Entry(STEP, f"{said}: it saves less than {why}", 1, where, times)
    return Slices(batch, batch.of(samples), count, Entry(STEP, said, 1, where, times))


def _of_open_batch(batch: Batch, estimate: _Estimate, batched: OpenBatch, where: str) -> Slices | Entry:
    """Slices of one sample, of which as many run as there are."""
    said = f"up to {batch.size} samples, one after another through all kernels"
    sizes = (batched.usual, batch.size)
    ratios = [estimate.weighed(1, of=size) / estimate.seconds(size, of=size) for size in sizes]
    each = (f"{ratio:.2f} of the time at {size}" for ratio, size in zip(ratios, sizes, strict=True))
    times = f"{' and '.join(each)}, by the model"
    if sum(ratios) / len(ratios) > 1 - LEAST_GAIN:
        return Entry(STEP, f"{said}: it saves less than the model errs by", 1, where, times)
    return Slices(batch, batch.of(1), batch.size, Entry(STEP, said, 1, where, times))


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

    def seconds(self, samples: int, of: int | None = None) -> float:
        """Of so many samples, or all: what kernels compute, and what they move beyond the caches next to a core."""
        kernels, count = self.batch.of(samples), (of or self.batch.size) // samples
        _, working_bytes = place_buffers(kernels)
        sharing = self.lanes if count == 1 else 1
        computed = sum(cost.seconds for cost in self.costs.of(kernels, kernels.calls))
        moved = self.device.moving_seconds(_moved_bytes(kernels), working_bytes // sharing, self.lanes)
        return -(-count // self.lanes) * (computed + moved) / sharing

    def weighed(self, samples: int, of: int | None = None) -> float:
        """Seconds of slices, as if they took longer where they read fewer constants as codes than the whole batch."""
        makes_dense = self._reads_codes(samples) < self._reads_codes(self.batch.size)
        return self.seconds(samples, of) / (WORTH_BYTES if makes_dense else 1)

    def _reads_codes(self, samples: int) -> int:
        return self.costs.readers_of_codes(self.batch.of(samples))


def _moved_bytes(kernels: KernelGraph) -> int:
    """Bytes of values between kernels that are read, and twice those that are written: lines are fetched for it."""
    outside = {*kernels.inputs, *kernels.outputs, *kernels.constants}
    return sum(
        times * kernels.buffers[id].bytes
        for call in kernels.calls
        for ids, times in ((call.inputs, 1), (call.outputs, 2))
        for id in ids
        if kernels.buffers[id].storage not in outside
    )
