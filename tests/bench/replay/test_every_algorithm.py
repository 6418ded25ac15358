"""The full set has every algorithm of both kinds in some plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.replay.cases import Case, of_every_algorithm
from bench.replay.compiling import Kept
from compiler.contract import CompileOptions
from compiler.devices.cpu.algorithms import BY_NAME as ON_CPUS
from compiler.devices.cuda.algorithms import BY_NAME as ON_GPUS
from compiler.errors import ToolchainMissing
from compiler.ir.region import inner_tiles
from compiler.pipeline import front_of
from compiler.request import Host, Request
from compiler.session import Session
from compiler.steps.precisions import one_precision
from compiler.steps.tiling.step import roundings, tile_kernels

BY_RECORDS = {"cpu:": {"separable"}, "cuda:": set[str]()}
"""Algorithms that only measurements take: on CPUs a window and the product behind it are cheaper apart by the model."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "names"), [("cpu:", ON_CPUS), ("cuda:", ON_GPUS)], ids=["cpu", "cuda"])
def test_every_algorithm_is_in_the_plan_of_some_case(
    kind: str, names: Mapping[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a GPU says of itself, the double of other tests of this process too, would take the place of the profile's.
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
    # So would this machine's caches: what fits in the second one is no quicker for fewer bytes.
    monkeypatch.setattr("compiler.devices.cpu.target.CACHES", tmp_path)
    kept, found = Kept(tmp_path), set[str]()
    for case in of_every_algorithm():
        if case.target.startswith(kind):
            found |= planned(case, kept.subject(case.model).file)
    assert {*names} - found == BY_RECORDS[kind], "add a case to OF_EVERY_ALGORITHM"


def planned(case: Case, model: Path) -> set[str]:
    """The algorithms of the tiles that a compilation takes without measuring."""
    options = {"target": case.target, "precision": case.precision, "tuning_budget_s": 0.0, **case.options}
    try:
        request = Request(model, model.with_suffix(".tw"), CompileOptions.from_json(options))
        session = Session.of(request.options, Host(measure=False))
    except ToolchainMissing as error:
        pytest.skip(error.message)
    front, rounding = front_of(session, request), roundings(session)[0]
    stored = one_precision(session, front.fused.kernels, rounding.precision).kernels
    tiles = tile_kernels(session, stored, front.evaluated.kernels, rounding.tolerance, rounding.precision)
    inside = {tile.algorithm for tile in inner_tiles(tiles.settled.kernels)}
    return inside | {menu.best.tile.algorithm for menu in tiles.settled.menus}
