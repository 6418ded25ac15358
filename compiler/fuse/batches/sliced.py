"""A batch in slices as kernels: one call that runs the kernels of a slice for each of them, after those that run once.

Calls that read nothing of samples run once. The others are the body of a region (`compiler.ir.region`), whose operands
are what they read and do not write, and after it each constant at each place where one of them reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from compiler.fuse.batches.batch import Batch
from compiler.fuse.regions import slots
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.region import SLICES, Region
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Cost, Tile


def runs_once(batch: Batch, call: Call) -> bool:
    """Whether a call makes nothing of a sample."""
    return batch.along.keys().isdisjoint(call.outputs)


def sliced(
    batch: Batch, kernels: KernelGraph, count: int, tiles: Sequence[Tile], costs: Sequence[Cost]
) -> tuple[KernelGraph, Region]:
    """The calls of `kernels` that run once, and behind them a region that runs the others for each of `count` slices.

    kernels       `batch.of` so many samples as a slice has, some of whose calls may have been joined since
    tiles, costs  of the calls in the region, in order
    """
    once = [call for call in kernels.calls if runs_once(batch, call)]
    body = _body(batch, kernels, [call for call in kernels.calls if not runs_once(batch, call)])
    whole, numbered = batch.kernels.buffers, batch.count is not None
    outputs = slots("y", (whole[id].type for id in body.outputs))
    region = Region(
        SLICES, SLICES.lower(), (), outputs, {}, (body,), None, (tuple(tiles),), (tuple(costs),), count, numbered
    )
    given = [*([] if batch.count is None else [batch.count]), *body.inputs]
    arrays = {id(array): array for array in (body.constants[use.constant] for use in region.uses)}
    constants = dict(enumerate(arrays.values(), 1 + max(whole)))
    ids = dict(zip(arrays, constants, strict=True))
    operands = (*given, *(ids[id(body.constants[use.constant])] for use in region.uses))
    buffers = {
        **{value: whole[value] for value in (*kernels.inputs, *kernels.outputs)},
        **_touched(kernels, once),
        **{at: Buffer.whole(at, TensorType(DType.of(array.dtype), array.shape)) for at, array in constants.items()},
    }
    types = (whole[value].type if value in whole else buffers[value].type for value in operands)
    region = replace(region, inputs=slots("x", types))
    sources = tuple(dict.fromkeys(name for call in body.calls for name in call.sources))
    outer = KernelGraph(
        buffers,
        (*once, Call(region, operands, body.outputs, sources=sources)),
        kernels.inputs,
        kernels.outputs,
        {**constants, **_constants(kernels, once)},
        kernels.halves,
    )
    return outer, region


def _body(batch: Batch, kernels: KernelGraph, calls: Sequence[Call]) -> KernelGraph:
    """Calls of one slice, which are given what they read and do not write."""
    written = {kernels.buffers[id].storage for call in calls for id in call.outputs}
    constant = {kernels.buffers[id].storage for id in kernels.constants}
    read = dict.fromkeys(kernels.buffers[id].storage for call in calls for id in call.inputs)
    given = tuple(storage for storage in read if storage not in written | constant)
    outputs = tuple(id for id in kernels.outputs if id in batch.along)
    buffers = {**_touched(kernels, calls), **{id: kernels.buffers[id] for id in (*given, *outputs)}}
    return KernelGraph(buffers, tuple(calls), given, outputs, _constants(kernels, calls), kernels.halves)


def _touched(kernels: KernelGraph, calls: Sequence[Call]) -> dict[int, Buffer]:
    """The buffers of some calls, and the constants that these are views of."""
    ids = dict.fromkeys(id for call in calls for id in (*call.inputs, *call.outputs))
    storages = dict.fromkeys(kernels.buffers[id].storage for id in ids)
    return {id: kernels.buffers[id] for id in (*ids, *(one for one in storages if one in kernels.constants))}


def _constants(kernels: KernelGraph, calls: Sequence[Call]) -> dict[int, np.ndarray]:
    storages = {kernels.buffers[id].storage for call in calls for id in call.inputs}
    return {id: array for id, array in kernels.constants.items() if kernels.buffers[id].storage in storages}
