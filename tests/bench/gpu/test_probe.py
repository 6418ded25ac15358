"""What the probe writes of the GPU that is here, and what it says where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.gpu import probe
from bench.gpu.records import read
from compiler.devices.cuda.measure.costs import COSTS
from compiler.devices.cuda.measure.launches import CHAIN, FORK, WIDE_FORK
from compiler.devices.cuda.measure.splits import EACH, ONCE
from compiler.devices.cuda.measure.switches import SWITCHES
from compiler.devices.cuda.target import CODE_NS, HANDOVER_NS, Gpu, resolve
from compiler.knowledge.making import Once, machine_record

HERE = Gpu("NVIDIA X", (9, 0), 132, 60 << 20, 8 << 30, 1.8, "this one")


def test_habits_are_measured_once_and_kept_where_compilations_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = resolve("cuda", HERE)
    took = {
        EACH: 2e-6,
        ONCE: 1e-6,
        CHAIN: 3.4e-6,
        FORK: 5.4e-6,
        WIDE_FORK: 6.4e-6,
        SWITCHES[0].fact(False): 4e-6,
        SWITCHES[0].fact(True): 3.99e-6,
    }
    made = {name: machine_record(name, "", target, Once(seconds), 1) for name, seconds in took.items()}
    monkeypatch.setattr(probe, "gpu_here", lambda: HERE)
    monkeypatch.setattr(probe, "measure_splits", lambda target: [made[EACH], made[ONCE]])
    monkeypatch.setattr(probe, "measure_launches", lambda target: list(made.values())[2:5])
    monkeypatch.setattr(probe, "measure_switches", lambda target: list(made.values())[5:])
    arguments = ["habits", "--records", str(tmp_path / "records.jsonl"), "--json", str(tmp_path / "found.json")]
    assert probe.main(arguments) == 1, "the GPU took the kernels of one habit less"
    assert [record["workload"] for record in read(tmp_path / "records.jsonl")] == list(took)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["one_split"] == {"without_s": 2e-6, "with_s": 1e-6, "on": True}
    assert found["launches"] == pytest.approx({"launch_ns": 1000, "cross_ns": 1000, "fan_in_ns": 250})
    assert found["prefetch"]["on"] is False
    assert found["early_constants"] == {"without_s": None, "with_s": None, "on": None}
    assert capsys.readouterr().out.splitlines() == [
        "launches: a launch 1.00 µs, waiting for another stream 1.00 µs, for each further one 0.25 µs",
        "one_split: 1.000 µs a launch with it, 2.000 without: on",
        "prefetch: 3.990 µs a launch with it, 4.000 without: off",
        "early_constants: the GPU or NVRTC did not take its kernels",
        "L2: 60 MiB by the driver, 50 by the profile",
    ]
    assert found["l2_bytes"] == {"driver": 60 << 20, "profile": 50 << 20}
    monkeypatch.setattr(probe, "gpu_here", lambda: None)
    assert probe.main(arguments) == 1
    assert "there is none" in capsys.readouterr().err


def test_costs_are_kept_as_records_that_compilations_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, (handover, code) = resolve("cuda", HERE), COSTS
    took = {handover: (10e-6, 74e-6), code: (3e-6, 5e-6)}
    made = [
        machine_record(cost.probe.fact(bool(on)), "", target, Once(took[cost][on]), 1)
        for cost in COSTS
        for on in (0, 1)
    ]
    monkeypatch.setattr(probe, "gpu_here", lambda: HERE)
    monkeypatch.setattr(probe, "measure_switches", lambda target, probes: made[: 2 * len(probes)])
    file = tmp_path / "records.jsonl"
    assert probe.main(["costs", "--records", str(file), "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["costs"] == pytest.approx({"handover_ns": 1000, "code_ns": 125})
    assert found["expected"] == {"handover_ns": HANDOVER_NS, "code_ns": CODE_NS}
    assert [record["workload"] for record in read(file)] == [one.workload for one in made]
    assert capsys.readouterr().out == "costs: a hand-over between resident blocks 1000 ns, a KiB of cold code 125 ns\n"
    monkeypatch.setattr(probe, "measure_switches", lambda target, probes: made[:2])
    assert probe.main(["costs", "--records", str(file), "--json", str(tmp_path / "found.json")]) == 1
