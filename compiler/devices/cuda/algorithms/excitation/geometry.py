"""Squeeze and excitation by blocks of a GPU: who has which channels and positions, and how weights are packed for it.

The first product is linear in the squeezed row, and the row in the elements, but for maps between them: so every block
takes some channels, some positions of them, and has a part of the hidden units' sums. Once these are added, each block
has some of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from compiler.devices.cuda.codegen.panels import CHUNK_BYTES, BlockPanels
from compiler.devices.cuda.products.operand import piece_of
from compiler.forms.channelwise import NO_SIDE, ChannelWindow, as_channel_window
from compiler.forms.contraction import packing_of
from compiler.forms.excitation import Excitation, Layer, as_excitation
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Load
from compiler.ir.machine import Workload


@dataclass(frozen=True)
class Shares:
    """Into how many parts blocks share out the `channels`, and the `positions` of each channel."""

    channels: int
    positions: int

    @property
    def blocks(self) -> int:
        """Of an image."""
        return self.channels * self.positions


@dataclass(frozen=True)
class SharedOut:
    """An excitation whose channels lie side by side, `count` of them aligned.

    `squeeze` is its first part, `load` what that sums.
    """

    excitation: Excitation
    squeeze: ChannelWindow
    load: Load
    count: int

    @property
    def images(self) -> int:
        """How many images there are."""
        return prod(axis.extent for axis in self.excitation.images)

    @property
    def positions(self) -> int:
        """Elements of a channel."""
        return self.squeeze.depth

    def channels_of(self, workload: Workload, shares: Shares) -> int:
        """Of a block: whole vectors and whole copies of weights; the last block may have fewer."""
        channels = -(-self.excitation.channel.extent // shares.channels)
        whole = max(self.count, _whole(workload, self.excitation.first))
        return -(-channels // whole) * whole

    def first_weights(self, workload: Workload, shares: Shares) -> tuple[int, BlockPanels]:
        """The first product's, as [part of the channels][hidden unit][channel]."""
        depth = self.channels_of(workload, shares)
        return _packed(workload, self.excitation, self.excitation.first, self.excitation.first.column.extent, depth)

    def second_weights(self, workload: Workload, blocks: int) -> tuple[int, BlockPanels]:
        """The second product's, as [block][column][hidden unit]."""
        layer = self.excitation.second
        whole = _whole(workload, layer)
        depth = -(-layer.over.extent // whole) * whole
        return _packed(workload, self.excitation, layer, -(-layer.column.extent // blocks), depth)


@lru_cache(maxsize=256)
def as_shared_out(workload: Workload) -> SharedOut | None:
    """A kernel in this form, or None: then its channels do not lie side by side, or its weights are no constants."""
    excitation = as_excitation(workload.kernel)
    if excitation is None:
        return None
    squeeze = as_channel_window(workload.part(excitation.squeeze_kernel))
    if squeeze is None or squeeze.monoid != "sum" or squeeze.weight is not None or squeeze.guards:
        return None
    loads = tuple(dict.fromkeys(squeeze.value.loads))
    if (squeeze.rows, squeeze.columns) != (NO_SIDE, NO_SIDE) or len(loads) != 1 or squeeze.members:
        return None
    if {*squeeze.outer} - {*excitation.images} or squeeze.channel != excitation.channel:
        return None
    layers = (excitation.first, excitation.second)
    if any(packing_of(layer.matrix(excitation.kernel), workload, 1) is None for layer in layers):
        return None
    slots = [load.slot for block in excitation.kernel.blocks for value in block.values for load in value.loads]
    if any(slots.count(layer.weight.slot) > 1 for layer in layers):
        return None
    count = _count(squeeze, loads[0], Slots(workload))
    return SharedOut(excitation, squeeze, loads[0], count) if count else None


def _count(squeeze: ChannelWindow, load: Load, slots: Slots) -> int:
    """The most channels that one access may take; 0 where they do not lie side by side."""
    if load.slot not in slots.buffers or slots.address(load.slot, load.index)[1].coefficient(squeeze.channel) != 1:
        return 0
    return piece_of(load, squeeze.channel, slots, slots.buffers[load.slot].dtype)


def _whole(workload: Workload, layer: Layer) -> int:
    """Weights of a copy."""
    return CHUNK_BYTES // Slots(workload).buffers[layer.weight.slot].dtype.bytes


def _packed(
    workload: Workload, excitation: Excitation, layer: Layer, columns: int, depth: int
) -> tuple[int, BlockPanels]:
    found = packing_of(layer.matrix(excitation.kernel), workload, 1)
    assert found is not None, "only what can be packed is shared out"
    position, matrix = found
    return position, BlockPanels(replace(matrix, panel=0), columns, depth, workload.inputs[position].dtype)
