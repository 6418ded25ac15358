"""Kernels of a model under tiles that the cost model likes and under others, each measured twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bench.settled import settled
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.devices.cpu.device import CpuBackend
from compiler.devices.cpu.rates import Rates
from compiler.devices.kinds import propose
from compiler.ir.machine import Machine, Trial, Workload
from compiler.ir.tile import Tile
from compiler.prove.agree import DEFAULT_TOLERANCE
from compiler.tuning.error_budget import allowed_error
from compiler.tuning.tune import workload_key

LONG_S = 3600.0
FAR = 4.0
"""Tiles that the model takes for this many times slower than its favourite are left out: none of them wins."""


@dataclass(frozen=True)
class Asked:
    """How much is measured of a model: its dearest `kernels`, of each so many `favourites` and `others`, by `seed`."""

    kernels: int
    favourites: int
    others: int
    seed: int


@dataclass(frozen=True)
class Row:
    """A tile of a kernel, on one lane.

    workload   the key of the kernel (`workload_key`), whose text is a line of its own
    uses       how often a run of the model calls the kernel
    constants  where they are found: `cache` or `memory`
    untuned_s  seconds by the cost model where nothing of the machine was measured; None if the tile is not proposed so
    model_s    those at the machine's measured rates, or None
    first_s    the tenth percentile of a measurement's samples, which load moves least
    again_s    that of a second measurement of the same code
    """

    model: str
    target: str
    workload: str
    operator: str
    shapes: str
    uses: int
    constants: str
    tile: Mapping[str, Any]
    untuned_s: float | None
    model_s: float | None
    first_s: float
    again_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def collect(
    subject: Subject, backend: CpuBackend, asked: Asked, known: Set[str]
) -> Iterator[tuple[Workload, list[Row]]]:
    """Each kernel with the rows of its tiles, the dearest kernels first; those `known` by key are left out.

    `backend` has the machine's rates. Kernels of one tile are left out. Raises what compiling raises, and
    TargetUnavailable for a target that does not run here.
    """
    found = settled(subject, CompileOptions(target=backend.target.name, threads=1, **subject.options), ())
    workloads = [backend.workload_of(found.kernels, call) for call in found.kernels.calls]
    keys = [workload_key(workload) for workload in workloads]
    distinct = dict(zip(keys, workloads, strict=True))
    here, plain = (
        replace(backend.target, rates=replace(rates, in_memory=found.setting.weights == "memory"))
        for rates in (backend.target.rates, Rates())
    )
    every = {key: propose(workload, plain, 1, np.inf) for key, workload in distinct.items()}
    error = allowed_error([every[key] for key in keys], DEFAULT_TOLERANCE["fp32"])
    offers = {
        key: [{one.tile: one.seconds for one in propose(workload, target, 1, error)} for target in (plain, here)]
        for key, workload in distinct.items()
    }
    machine = replace(backend, target=here).cores(asked.seed, setting=found.setting)
    dearest = sorted(offers, key=lambda key: -keys.count(key) * min(offers[key][1].values()))
    for key in dearest[: asked.kernels]:
        untuned, model = offers[key]
        tiles = picked(untuned, model, asked, key)
        if machine is None or key in known or len(tiles) < 2:
            continue
        trials = [Trial(distinct[key], key, tile, 1) for tile in tiles]
        first, again = _measured(machine, trials), _measured(machine, trials)
        kernel = distinct[key].kernel
        about = subject.name, here.name, key, kernel.family, distinct[key].shapes, keys.count(key)
        constants = found.setting.weights
        rows = [
            Row(*about, constants, tile.to_json(), untuned.get(tile), model.get(tile), first[tile], again[tile])
            for tile in tiles
            if tile in first and tile in again
        ]
        if rows:
            yield distinct[key], rows


def picked(untuned: Mapping[Tile, float], model: Mapping[Tile, float], asked: Asked, key: str) -> Sequence[Tile]:
    """The favourites of the model by either of its costs, and others drawn from those that are not far behind."""
    favourites: dict[Tile, None] = {}
    near: dict[Tile, None] = {}
    for offer in (untuned, model):
        order = sorted(offer, key=lambda tile: offer[tile])
        close = [tile for tile in order if offer[tile] <= FAR * offer[order[0]]]
        favourites |= dict.fromkeys(close[: asked.favourites])
        near |= dict.fromkeys(close)
    left = [tile for tile in near if tile not in favourites]
    drawn = np.random.default_rng([asked.seed, int(key[:8], 16)]).permutation(len(left))[: asked.others]
    return [*favourites, *(left[at] for at in sorted(drawn))]


def _measured(machine: Machine, trials: Sequence[Trial]) -> Mapping[Tile, float]:
    return {Tile.from_json(one.variant): one.p10 for one in machine.measure(trials, LONG_S)}
