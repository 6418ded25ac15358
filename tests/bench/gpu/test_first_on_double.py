"""The first half hour as it is on a machine with a GPU, each child a process of its own; the double is the GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench.gpu import child, first, parts, repeated, run
from bench.gpu.child import Ended
from bench.gpu.notebook import Deadline
from bench.gpu.parts import Asked
from bench.gpu.records import read
from compiler.devices.cuda.measure.launches import CHAIN, FORK, WIDE_FORK
from compiler.devices.cuda.measure.switches import SWITCHES
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import build_runtime

pytestmark = [needs_double, needs_nvrtc]
FAMILIES = ("ldmatrix", "graph of dependent launches", "gemv fp16")
"""Of those that are listed; tests/gpu tries all of them on the double."""


RUNS = 20
"""Of the network; a real GPU does five hundred in the same time."""


@dataclass
class OnDouble:
    """Stands for `child.run`: the same processes, which find the double under the driver's name."""

    modules: list[str] = field(default_factory=list)
    faults: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with a network, by its name: every run of it."""

    def __call__(self, module: str, arguments: Sequence[str], seconds: float) -> Ended:
        self.modules.append(module)
        environment = {"LD_LIBRARY_PATH": str(build_runtime().parent), "TW_DOUBLE": "sm=90"}
        if arguments and arguments[0] in self.faults:
            environment["TW_PLAN_FAULT"] = f"{self.faults[arguments[0]]} *"
        fewer = ["--runs", str(RUNS)] * (module == "bench.gpu.repeated")
        ended = child.run("tests.bench.gpu.on_double", [module, *arguments, *fewer], seconds, environment)
        if "--list" not in arguments or ended.status != 0:
            return ended
        listed = json.loads(ended.output.strip().splitlines()[-1])
        return Ended(0, json.dumps([name for name in listed if name in FAMILIES]), ended.said)


def test_the_first_half_hour_runs_through_on_the_double_and_is_not_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first, "NETWORKS", ("tiny_cnn",))
    said: list[str] = []
    children = OnDouble()
    asked = Asked(tmp_path, "sources", "the double", "", ["tiny_cnn"], Deadline.after(3600), said.append, run=children)
    assert first.first(asked)
    rows = asked.notebook("first").rows
    assert rows.keys() == {"facts", "probe", *FAMILIES, "tiny_cnn fp16"}
    assert run.status({"first": rows}) == 0, rows
    assert all(rows["probe"]["habits"][switch.field]["on"] is not None for switch in SWITCHES)
    assert {CHAIN, FORK, WIDE_FORK} <= {record["workload"] for record in read(tmp_path / "records.jsonl")}
    network = rows["tiny_cnn fp16"]
    assert network["worst_error"] < 1e-2
    assert (network["repeated"]["runs"], network["repeated"]["differing"]) == (RUNS, [])
    assert len(network["repeated"]["slowest"]) == min(network["kernels"], repeated.LONGEST)
    assert f"{RUNS} runs with the same bits" in said[-1]
    children.modules.clear()
    assert first.first(asked)
    assert children.modules == ["tests.gpu"], "families are listed, and nothing is done again"


def test_a_network_that_hangs_crashes_or_is_wrong_costs_its_own_row_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rehearsal: three networks have a fault in every run, and the row of each says so; the others are as ever."""
    networks = ("tiny_mobile", "tiny_lstm", "tiny_inception", "tiny_cnn")
    monkeypatch.setattr(first, "NETWORKS", networks)
    monkeypatch.setattr(parts, "MOST_COMPILING_S", 100.0)
    children = OnDouble(faults={"tiny_mobile": "hang", "tiny_lstm": "crash", "tiny_inception": "wrong"})
    said: list[str] = []
    asked = Asked(tmp_path, "sources", "the double", "", networks, Deadline.after(3600), said.append, run=children)
    assert first.first(asked)
    rows = asked.notebook("first").rows
    assert rows.keys() == {"facts", "probe", *FAMILIES, *(f"{name} fp16" for name in networks)}
    hung, crashed, wrong, right = (rows[f"{name} fp16"] for name in networks)
    assert "did not end in 100 s at `agree" in hung["problem"]
    assert "ended with status -11 at `agree" in crashed["problem"]
    assert wrong["problem"]
    assert wrong["stage"].startswith("agree")
    assert not wrong["hung"]
    assert (right["passed"], right["repeated"]["differing"]) == (True, [])
    assert run.status({"first": rows}) == 1
    children.modules.clear()
    assert first.first(asked), "a network with a fault is not tried again"
    assert children.modules == ["tests.gpu"]


def test_all_plans_of_a_network_run_and_one_of_them_has_blocks_that_stay(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    where = ["--records", str(tmp_path / "none"), "--folder", str(tmp_path), "--json", str(out)]
    ended = OnDouble()("bench.gpu.schedules", ["tiny_lstm_cells", "fp16", *where], 300)
    assert ended.status == 0, ended
    rows = {row["scheduler"]: row for row in json.loads(out.read_text())}
    assert rows.keys() >= {"sequential", "persistent"}
    assert [rows[name]["launches"] for name in ("sequential", "persistent")] == [rows["sequential"]["calls"], 1]
    assert not any(row["wrong"] for row in rows.values())
    assert all(row["ms"] > 0 for row in rows.values())
