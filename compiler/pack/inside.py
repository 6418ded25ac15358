"""What is inside of loops, branches and batches in slices: their kernels, for the report and for plan.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from compiler.ir.buffers import KernelGraph
from compiler.ir.region import Region, regions_of
from compiler.pack.chart.wording import duration, escaped
from compiler.pack.elements import bar, section, table

LONGEST = 200
"""Characters of a tile or of an operator's name that are shown."""
HEAD = (
    ("#", "n"),
    ("family", ""),
    ("operators", "from"),
    ("tile", "tile mono"),
    ("time", "n"),
    ("share", "n"),
    ("", "bar"),
)


def region_json(region: Region) -> dict[str, Any]:
    """How often it runs at most (null: as data say) and, of each body, the calls with their tiles; seconds of one."""
    most = region.loop.most or None if region.loop else region.times
    bodies = []
    for body, tiles, costs in zip(region.bodies, region.tiles, region.costs, strict=True):
        calls = []
        for call, tile, cost in zip(body.calls, tiles, costs, strict=True):
            inner = {"region": region_json(call.kernel)} if isinstance(call.kernel, Region) else {}
            calls.append(
                {
                    "family": call.kernel.family,
                    "sources": list(call.sources),
                    "tile": str(tile),
                    "predicted_s": cost.seconds,
                    "predicted_from": "model" if cost.is_modelled else "measured",
                    **inner,
                }
            )
        bodies.append(calls)
    return {"kind": region.name, "most": most, "bodies": bodies}


def inside(kernels: KernelGraph) -> str:
    """A section with a table for each body; empty where there are no regions."""
    tables = [
        f"<h3>{escaped(title, LONGEST)}</h3>{table(HEAD, _rows(region, number))}"
        for title, region, number in _titled(kernels, "")
    ]
    words = (
        "Kernels of loops and branches, which run on one lane, as often as data say, and of batches in slices, each of "
        "which runs on one lane. Times are those of one iteration or slice; those marked * are the analytical model's."
    )
    return section("Inside loops, branches and batches", words, "".join(tables)) if tables else ""


def _titled(kernels: KernelGraph, path: str) -> Iterator[tuple[str, Region, int]]:
    for position, region in regions_of(kernels):
        names = ("then", "else") if len(region.bodies) == 2 else ("body",)
        if region.slices:
            names = (f"each of {region.slices} slices",)
        for number, (name, body) in enumerate(zip(names, region.bodies, strict=True)):
            often = f", at most {region.loop.most} times" if region.loop and region.loop.most else ""
            own = f"{path}{position} {region.family}: {name}"
            yield own + often, region, number
            yield from _titled(body, f"{own}, ")


def _rows(region: Region, number: int) -> Sequence[tuple[str, ...]]:
    costs = region.costs[number]
    whole = sum(cost.seconds for cost in costs) or 1.0
    rows = zip(region.bodies[number].calls, region.tiles[number], costs, strict=True)
    return [
        (
            str(at),
            escaped(call.kernel.family, LONGEST),
            escaped(", ".join(call.sources), LONGEST),
            escaped(str(tile), LONGEST),
            duration(cost.seconds) + (" *" if cost.is_modelled else ""),
            f"{cost.seconds / whole:.1%}",
            bar(cost.seconds / whole),
        )
        for at, (call, tile, cost) in enumerate(rows)
    ]
