"""Tiles of Winograd's minimal filtering: how many outputs a tile has along each axis, how many tiles and channels are worked on at a time."""

from __future__ import annotations

from itertools import product
from math import prod

from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.ir.winograd import POSITIVE_POINTS, Convolution, as_convolution, form, relative_error
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms.blocking import even_part, in_registers, most_rows, parts
from compiler.tile.algorithms.row_cuts import PER_LANE, busiest, sizes, with_row_cuts
from compiler.tile.model import CALL_NS, Proposal

LEAST_OUTPUTS = 2
MOST_VECTORS = 4
TASKS_PER_LANE = 4
"""Blocks for each lane from which on it does not matter that the lanes' shares differ by one."""
INPUT_NS, OUTPUT_NS = 3.0, 2.0
"""One vector of one element, transformed along both axes."""
ARRIVING, STREAMING = 2.0, 1.5
"""How much longer than by themselves weights take to arrive, and to come from the second-level cache, in the midst of arithmetic."""
BLOCK_L2 = 0.5
"""The part of the second-level cache that a block's V and M may fill; weights stream through the rest."""
WORTHWHILE = 1.25
"""A form is left out where the model thinks another one, no less exact, this much faster."""


def winograd_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles of every form, cheapest by the model first; empty for a kernel that is no convolution of unit stride.

    Each states the error that its form adds; whoever asks chooses what a job can bear.
    """
    view = as_convolution(workload)
    if view is None or view.column.extent < target.vector_floats:
        return []
    choices = [_outputs(sweep.tap.extent, sweep.output.extent) for sweep in view.sweeps]
    widths = range(1, min(MOST_VECTORS, -(-view.column.extent // target.vector_floats)) + 1)
    forms = {
        outputs: _cheapest_first([one for vectors in widths for one in _tiles(view, outputs, vectors, target, lanes)])
        for outputs in product(*choices)
    }
    heads = [options[0] for options in forms.values()]
    kept = [outputs for outputs, own in forms.items() if not any(_outdoes(head, own[0]) for head in heads)]
    cuts = [
        (cut.seconds * busiest(*_blocks(view, outputs, cut.tile), lanes), cut)
        for outputs in kept
        for vectors in widths
        for count in (lanes, PER_LANE * lanes)
        for cut in _tiles(view, outputs, vectors, target, lanes, count)
    ]
    return with_row_cuts([one for outputs in kept for one in forms[outputs]], cuts, lanes)


def _blocks(view: Convolution, outputs: tuple[int, ...], tile: Tile) -> tuple[list[int], list[int]]:
    """Tiles and channels of the blocks of an image."""
    tiles, columns = prod(view.tiles(outputs)), view.column.extent
    return sizes(tiles, tile.extent("block", "m")), sizes(columns, tile.extent("block", "n"))


def _cheapest_first(proposals: list[Proposal]) -> list[Proposal]:
    """Cheapest by the model first."""
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _outdoes(one: Proposal, other: Proposal) -> bool:
    return one.error <= other.error and one.seconds * WORTHWHILE < other.seconds


def _outputs(taps: int, extent: int) -> list[int]:
    """How many outputs a tile may have along an axis: where two choices make equally many tiles, the smaller has the smaller error."""
    possible = [elements - taps + 1 for elements in POSITIVE_POINTS if elements - taps + 1 >= LEAST_OUTPUTS]
    fewest: dict[int, int] = {}
    for outputs in sorted(possible, reverse=True):
        fewest[-(-extent // outputs)] = outputs
    return sorted(fewest.values())


def _tiles(
    view: Convolution, outputs: tuple[int, ...], vectors: int, target: CpuTarget, lanes: int, count: int = 0
) -> list[Proposal]:
    """One form with register tiles of so many vectors, at blocks of different size, or at `count` equal ones."""
    elements = prod(many + sweep.tap.extent - 1 for many, sweep in zip(outputs, view.sweeps, strict=True))
    tiles, panel = prod(view.tiles(outputs)), vectors * target.vector_floats
    rows = even_part(tiles, most_rows(vectors, target))
    tile_bytes = elements * (view.depth.extent + panel) * 4
    fit = max(int(BLOCK_L2 * target.l2_bytes) // tile_bytes // rows, 1)
    panels = -(-view.column.extent // panel)
    error = relative_error(
        [form(m, s.tap.extent) for m, s in zip(outputs, view.sweeps, strict=True)], view.depth.extent
    )
    proposals = []
    groups, all_rows = prod(axis.extent for axis in view.groups), parts(tiles, rows)
    for block in {min(parts(all_rows, count), fit) * rows} if count else {rows, min(fit, all_rows) * rows}:
        blocks = -(-tiles // block) * groups
        # the lanes share the blocks of tiles, or, where those are too few, the panels: then each transforms all inputs
        across = 1 if blocks % lanes == 0 or blocks >= TASKS_PER_LANE * lanes else min(lanes, panels)
        width = max(panels // across, 1) * panel
        names = "yx"[-len(outputs) :]
        levels = (
            Level("transform", tuple(zip(names, outputs, strict=True))),
            Level("block", (("m", block), ("n", width))),
            Level("register", (("m", rows), ("n", panel))),
        )
        scopes = in_registers(view.kernel)
        seconds = _seconds(view, elements, tiles, rows, vectors, block, target)
        proposals.append(Proposal(Tile("winograd", levels, scopes), seconds, error, blocks if groups == 1 else 1))
    return proposals


def _seconds(
    view: Convolution, elements: int, tiles: int, rows: int, vectors: int, block: int, target: CpuTarget
) -> float:
    """Products; weights that arrive once, and come from the second-level cache for each register tile; transforms."""
    rates, vector_bytes = target.rates, target.vector_floats * 4
    groups, depth = prod(axis.extent for axis in view.groups), view.depth.extent
    panels = -(-view.column.extent // (vectors * target.vector_floats))
    last = tiles % block or block
    register_tiles = tiles // block * -(-block // rows) + (-(-last // rows) if tiles % block else 0)
    products = elements * panels * depth * tiles * vectors / rates.fma_per_ns
    weights = elements * panels * depth * vectors * vector_bytes
    arriving = ARRIVING * weights / rates.weights_per_ns + STREAMING * register_tiles * weights / rates.l2_per_ns
    moved = elements * tiles * (INPUT_NS * -(-depth // target.vector_floats) + OUTPUT_NS * panels * vectors)
    return 1e-9 * (CALL_NS + groups * (products + arriving + moved))
