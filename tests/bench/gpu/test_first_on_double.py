"""The first half hour as it is on a machine with a GPU, each child a process of its own; the double is the GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import child, first, parts, repeated, run
from bench.gpu.child import Ended
from bench.gpu.half_hour import cases
from bench.gpu.half_hour.cases import PARTS, PERSISTENT, Case
from bench.gpu.notebook import Deadline
from bench.gpu.parts import Asked
from bench.gpu.records import read
from compiler.devices.cuda.measure.costs import COSTS
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


CASES = (
    Case("tiny_cnn fp16", "tiny_cnn", "a network"),
    Case("tiny_cnn persistent", "tiny_cnn", "resident blocks", options=PERSISTENT),
    Case("tiny_cnn-2of4 fp16", "tiny_cnn-2of4", "zeros"),
    Case("tiny_cnn-int8", "tiny_cnn-int8", "bytes"),
    Case("tiny_cnn auto", "tiny_cnn", "precisions", "auto"),
    Case("decoder-3 fp32", "decoder-3", "the host decides", "fp32"),
    Case("tiny_cnn in parts", "tiny_cnn", "two queues", "fp32", PARTS),
)
"""Every way through the product that `first` goes, with small networks."""
FAULTY = {"tiny_mobile": "hang", "tiny_lstm": "crash", "tiny_inception": "wrong"}


def test_the_first_half_hour_ends_with_every_row_though_networks_hang_crash_and_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rehearsal: three networks have a fault in every run, and the row of each says so; the others are as ever."""
    assert {(case.precision, *case.options) for case in CASES} == {
        (case.precision, *case.options) for case in cases.CASES
    }
    faulty = tuple(Case(f"{name} fp16", name, fault) for name, fault in FAULTY.items())
    tried = (*faulty, *CASES)
    monkeypatch.setattr(first, "CASES", tried)
    monkeypatch.setattr(parts, "MOST_COMPILING_S", 100.0)
    children, said = OnDouble(faults=FAULTY), list[str]()
    asked = Asked(tmp_path, "sources", "the double", "", (), Deadline.after(3600), said.append, run=children)
    assert first.first(asked)
    rows = asked.notebook("first").rows
    probes = {f"probe {name}" for name in first.PROBES}
    assert rows.keys() == {"facts", *probes, *FAMILIES, *(case.key for case in tried)}
    wrong = {key for key, row in rows.items() if run.status({"first": {key: row}})}
    assert wrong == {case.key for case in faulty}, {key: rows[key] for key in wrong}
    assert "did not end in 100 s at `agree" in rows["tiny_mobile fp16"]["problem"]
    assert "ended with status -11 at `agree" in rows["tiny_lstm fp16"]["problem"]
    assert rows["tiny_inception fp16"]["stage"].startswith("agree")
    assert not rows["tiny_inception fp16"]["hung"]
    assert_probed(rows, tmp_path)
    for case in CASES:
        row, found = rows[case.key], rows[case.key]["repeated"]
        assert row["worst_error"] < 2e-2
        assert (found["runs"], found["differing"]) == (RUNS, [])
        assert found["with_copies_us"]["median"] > 0
        assert ("in_place_us" in found) == (case.options != PARTS)
    alone = rows["tiny_cnn fp16"]
    assert len(alone["repeated"]["slowest"]) == min(alone["kernels"], repeated.LONGEST)
    page = (tmp_path / "first.md").read_text()
    assert said[-1] == page
    assert "3 of 3 families right, 10 of 10 networks tried, 3 wrong." in page
    assert page.count("| failed |") == 3
    children.modules.clear()
    assert first.first(asked)
    assert children.modules == ["tests.gpu"], "families are listed, and nothing is done again"


def assert_probed(rows: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """What probes found is kept, and as records where it decides something."""
    found = rows["probe habits"]["found"]
    assert all(found[switch.field]["on"] is not None for switch in SWITCHES)
    assert found["l2_bytes"]["driver"] > 0
    kept = {record["workload"] for record in read(folder / "records.jsonl")}
    facts = {cost.probe.fact(on) for cost in COSTS for on in (False, True)}
    assert {CHAIN, FORK, WIDE_FORK, *facts} <= kept
    assert rows["probe costs"]["found"]["costs"].keys() == {cost.field for cost in COSTS}
    drifts = {row["algorithm"]: row for row in rows["probe accumulators"]["found"]["drifts"]}
    for algorithm in ("mma", "wgmma", "mma_tf32"):  # the double adds as an A100 does
        assert drifts[algorithm]["drift"] == pytest.approx(drifts[algorithm]["expected"]["A100"], rel=0.05)
    assert abs(drifts["mma_3xtf32"]["drift"]) < 0.5 * abs(drifts["mma_tf32"]["drift"])


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
