"""The parts with children that are played.

What is done, what is left when the time is over, what a failure leaves behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import parts
from bench.gpu.child import Ended
from bench.gpu.notebook import Deadline
from bench.gpu.parts import Asked
from bench.gpu.subjects import KERNELS

FAMILIES = ["mma", "ldmatrix", "loops fp16"]
REPORT = {
    "kernels": 37,
    "latency_s": 1e-4,
    "records_measured": 5,
    "records_reused": 2,
    "phase_seconds": {"tile": 9.0},
    "arena_bytes": 1,
    "weight_bytes": 2,
    "errors": [{"max_relative": 1e-3}, {"max_relative": 2e-3}],
}
PROBED = {
    "habits": {
        "prefetch": {"without_s": 2e-6, "with_s": 1e-6, "on": True},
        "launches": {"launch_ns": 900.0},
        "l2_bytes": {"driver": 60 << 20, "profile": 50 << 20},
    },
    "costs": {"costs": {"handover_ns": 1234.0}, "expected": {"handover_ns": 1000.0, "code_ns": 60.0}},
    "accumulators": {
        "drifts": [
            {"precision": "fp16", "algorithm": "mma", "terms": 4608, "drift": -3e-5, "expected": {"H100": -2.8e-5}},
            {"precision": "fp32", "algorithm": "ffma", "terms": 4608, "drift": None, "problem": "lost"},
        ]
    },
}
PLAN = {
    "scheduler": "sequential",
    "depth": 10,
    "joins": 0,
    "fan_in": 0,
    "ms": 0.05,
    "predicted_ms": 0.04,
    "differs": 0.5,
    "wrong": False,
}


@dataclass
class Played:
    """Stands for `child.run`: writes what the real processes write."""

    status: int | None = 0
    calls: list[tuple[str, list[str]]] = field(default_factory=list)
    wrong: str = ""
    families: Sequence[str] = tuple(FAMILIES)

    def __call__(self, module: str, arguments: Sequence[str], seconds: float) -> Ended:
        assert seconds >= 1.0
        self.calls.append((module, list(arguments)))
        if arguments == ["--list"]:
            return Ended(0, f"a word before\n{json.dumps(self.families)}\n", "")
        if self.status != 0:
            return Ended(self.status, "", "the last words")
        if module == "tests.gpu":
            passed = arguments[0] != self.wrong
            verdict = {"family": arguments[0], "passed": passed, "failed": [] if passed else ["x: error 1"]}
            Path(arguments[2]).write_text(json.dumps([verdict]))
            return Ended(0 if passed else 1, f"{arguments[0]}: told", "")
        if module == "bench.gpu.compiling":
            options = dict(zip(arguments[2::2], arguments[3::2], strict=True))
            artifact, file = Path(options["--artifact"]), Path(options["--records"])
            artifact.parent.mkdir(parents=True, exist_ok=True)
            artifact.with_suffix(".json").write_text(json.dumps(REPORT))
            with file.open("a") as opened:
                for hardware in ("this one", "another"):
                    opened.write(json.dumps({"workload": arguments[0], "hardware": hardware, "seconds": 1.0}) + "\n")
            return Ended(0, "", "")
        if module == "bench.gpu.schedules":
            found = [{**PLAN, "wrong": arguments[0] == self.wrong}, {**PLAN, "scheduler": "streams", "joins": 2}]
            Path(arguments[arguments.index("--json") + 1]).write_text(json.dumps(found))
            return Ended(0, "", "")
        if module == "bench.gpu.repeated":
            differing = [17] if self.wrong == "repeated" else []
            told = {"runs": 500, "differing": differing, "with_copies_us": {"median": 70.0}, "slowest": []}
            told |= {"first_us": 900.0}
            Path(arguments[arguments.index("--json") + 1]).write_text(json.dumps(told))
            return Ended(bool(differing), "", "")
        if module == "bench.gpu.probe":
            Path(arguments[arguments.index("--json") + 1]).write_text(json.dumps(PROBED[arguments[0]]))
            return Ended(0, f"{arguments[0]}: told", "")
        row = {"network": arguments[0], "precision": arguments[1], "ms": {"ours": 0.1}, "left_out": {}}
        Path(arguments[arguments.index("--json") + 1]).write_text(json.dumps(row))
        return Ended(0, "", "")

    def of(self, module: str) -> list[list[str]]:
        return [arguments for called, arguments in self.calls if called == module]


@pytest.fixture
def played() -> Played:
    return Played()


@pytest.fixture
def asked(tmp_path: Path, played: Played) -> Asked:
    networks = ["squeezenet1_0", "resnet50"]
    said: list[str] = []
    return Asked(
        tmp_path, "sources", "NVIDIA X", "this one", networks, Deadline.after(3600), said.append, 60.0, 1, run=played
    )


def in_no_time(asked: Asked) -> Asked:
    return replace(asked, deadline=Deadline.after(0))


def test_every_family_is_tried_once_and_none_again(asked: Asked, played: Played) -> None:
    assert parts.tests(asked)
    assert parts.tests(asked)
    tried = [arguments[0] for arguments in played.of("tests.gpu") if arguments != ["--list"]]
    assert tried == FAMILIES
    assert all(row["passed"] for row in asked.notebook("tests").rows.values())


def test_a_wrong_family_is_kept_and_the_others_still_tried(asked: Asked, played: Played) -> None:
    played.wrong = "ldmatrix"
    assert parts.tests(asked)
    rows = asked.notebook("tests").rows
    assert {name: row["passed"] for name, row in rows.items()} == {"mma": True, "ldmatrix": False, "loops fp16": True}


@pytest.mark.parametrize(("status", "became"), [(None, "did not end in 240 s"), (-11, "ended with status -11")])
def test_a_family_that_hangs_or_crashes_fails(asked: Asked, played: Played, status: int | None, became: str) -> None:
    played.status = status
    assert parts.tests(asked)
    assert all(became in row["failed"][0] for row in asked.notebook("tests").rows.values())


def test_a_family_that_only_this_call_had_no_time_for_is_left(asked: Asked, played: Played) -> None:
    played.status = None
    assert not parts.tests(replace(asked, deadline=Deadline.after(60)))
    assert asked.notebook("tests").rows == {}
    played.status = 0
    assert not parts.tests(in_no_time(asked))
    assert asked.notebook("tests").rows == {}


def test_tuning_keeps_what_was_measured_here_and_asks_again_for_a_larger_budget_alone(
    asked: Asked, played: Played
) -> None:
    assert parts.tune(asked)
    assert parts.tune(asked)
    assert len(played.of("bench.gpu.compiling")) == 4
    shipped = (asked.out / "records" / "nvidia_x.jsonl").read_text().splitlines()
    assert [json.loads(line)["workload"] for line in shipped] == ["resnet50", "squeezenet1_0"]
    assert {json.loads(line)["hardware"] for line in shipped} == {"this one"}
    assert asked.notebook("tune").rows["resnet50 fp16"]["worst_error"] == 2e-3
    assert parts.tune(replace(asked, budget_s=120.0))
    assert len(played.of("bench.gpu.compiling")) == 8


def test_the_last_minutes_are_spent_on_a_smaller_budget_and_the_network_is_left_for_a_whole_one(
    asked: Asked, played: Played
) -> None:
    assert not parts.tune(replace(asked, deadline=Deadline.after(100), networks=["resnet50"], precisions=["fp16"]))
    ((_, _, _, budget, *_),) = played.of("bench.gpu.compiling")
    assert 10 < float(budget) < 60
    assert parts.tune(replace(asked, networks=["resnet50"], precisions=["fp16"]))


def test_a_network_that_cannot_be_compiled_is_told_and_the_next_one_taken(asked: Asked, played: Played) -> None:
    played.status = 1
    assert parts.tune(asked)
    assert [row["problem"] for row in asked.notebook("tune").rows.values()] == ["the last words"] * 4


def hanging(played: Played, network: str) -> Callable[[str, Sequence[str], float], Ended]:
    """Children of which the compilation of one network never ends."""

    def run(module: str, arguments: Sequence[str], seconds: float) -> Ended:
        if module == "bench.gpu.compiling" and arguments[0] == network:
            played.calls.append((module, list(arguments)))
            return Ended(None, "load\nagree\n", "load\nagree\n")
        return played(module, arguments, seconds)

    return run


def test_a_network_that_hangs_is_a_row_with_its_step_and_the_others_are_done(asked: Asked, played: Played) -> None:
    hung = replace(asked, run=hanging(played, "squeezenet1_0"))
    for part in (parts.tune, parts.bench, parts.kernels):
        part(hung)
    tuned, raced = asked.notebook("tune").rows, asked.notebook("bench").rows
    assert tuned["squeezenet1_0 fp16"]["problem"].startswith("did not end in 240 s at `agree`: ")
    assert tuned["squeezenet1_0 fp16"]["stage"] == "agree"
    assert tuned["resnet50 fp16"]["worst_error"] == 2e-3
    assert raced["squeezenet1_0 fp16"]["compilation"]["hung"]
    assert raced["resnet50 fp16"]["compilation"]["worst_error"] == 2e-3
    assert raced["squeezenet1_0 fp16"]["ms"] == {"ours": 0.1}, "the peers are timed"
    count = len(played.of("bench.gpu.compiling"))
    assert parts.tune(hung)
    assert len(played.of("bench.gpu.compiling")) == count, "none is tried again"


def test_a_compilation_that_calls_end_before_twice_counts_as_one_that_hangs(asked: Asked, played: Played) -> None:
    short = replace(asked, run=hanging(played, "squeezenet1_0"), networks=["squeezenet1_0"], precisions=["fp16"])
    assert parts.compiled(replace(short, deadline=Deadline.after(100)), "squeezenet1_0", "fp16", 0.0) is None
    again = parts.compiled(replace(short, deadline=Deadline.after(100)), "squeezenet1_0", "fp16", 0.0)
    assert again is not None
    assert again["hung"]
    assert "did not end in 95 s" in again["problem"]


def test_plans_that_ran_before_the_others_hung_are_kept(asked: Asked, played: Played) -> None:
    def run(module: str, arguments: Sequence[str], seconds: float) -> Ended:
        played(module, arguments, seconds)
        return Ended(None, "", "the last words")

    assert parts.plans(replace(asked, run=run, networks=["resnet50"], precisions=["fp16"]))
    row = asked.notebook("plans").rows["resnet50 fp16"]
    assert [one["scheduler"] for one in row["plans"]] == ["sequential", "streams"]
    assert row["problem"] == "did not end in 400 s: the last words"
    assert not row["passed"]


def test_plans_are_run_once_and_a_wrong_one_fails(asked: Asked, played: Played) -> None:
    played.wrong = "resnet50"
    assert parts.plans(asked)
    assert parts.plans(asked)
    assert len(played.of("bench.gpu.schedules")) == 4
    rows = asked.notebook("plans").rows
    assert {name: row["passed"] for name, row in rows.items()} == {
        f"{network} {precision}": network != "resnet50" for network in asked.networks for precision in asked.precisions
    }
    assert rows["resnet50 fp16"]["plans"][0]["model"] == "resnet50 fp16"
    assert "WRONG by 5.0e-01" in parts.told_plans(rows["resnet50 fp16"])


@pytest.mark.parametrize(("status", "became"), [(None, "did not end in 400 s"), (-11, "ended with status -11")])
def test_plans_that_hang_or_crash_are_told(asked: Asked, played: Played, status: int | None, became: str) -> None:
    played.status = status
    assert parts.plans(asked)
    assert all(row["problem"].startswith(f"{became}: ") for row in asked.notebook("plans").rows.values())


def test_plans_that_only_this_call_had_no_time_for_are_left(asked: Asked, played: Played) -> None:
    played.status = None
    assert not parts.plans(replace(asked, deadline=Deadline.after(200)))
    assert asked.notebook("plans").rows == {}


def test_nothing_is_begun_that_cannot_end(asked: Asked, played: Played) -> None:
    assert not parts.plans(in_no_time(asked))
    assert not parts.tune(in_no_time(asked))
    assert not parts.bench(in_no_time(asked))
    assert played.calls == []


def test_single_operators_are_raced_beside_the_libraries_once(asked: Asked, played: Played) -> None:
    assert not parts.kernels(in_no_time(asked))
    assert parts.kernels(asked)
    assert parts.kernels(asked)
    raced = played.of("bench.gpu.contest")
    assert [arguments[:2] for arguments in raced] == [[kernel, way] for kernel in KERNELS for way in asked.precisions]
    assert {arguments[arguments.index("--engines") + 1] for arguments in raced} == {"eager,graph,cublas"}
    assert all("--artifact" in arguments for arguments in raced)


def test_networks_are_raced_once_and_autotuned_a_few_in_a_call(asked: Asked, played: Played) -> None:
    def autotuned() -> list[str]:
        races = played.of("bench.gpu.contest")
        return [" ".join(one[:2]) for one in races if "autotuned" in one[one.index("--engines") + 1]]

    assert not parts.bench(asked)
    assert autotuned() == ["squeezenet1_0 fp16"]
    assert len(played.of("bench.gpu.contest")) == 4
    assert not parts.bench(asked)
    assert autotuned() == ["squeezenet1_0 fp16", "squeezenet1_0 tf32"]
    assert not parts.bench(asked)
    assert parts.bench(asked)
    assert len(autotuned()) == 4
    assert parts.bench(replace(asked, autotuned=0))
    assert len(played.of("bench.gpu.contest")) == 7


def test_peers_are_measured_where_ours_cannot_be_compiled(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "compiled", lambda *_: {"problem": "no C compiler", "budget_s": 0.0})
    parts.bench(asked)
    (row, *_) = asked.notebook("bench").rows.values()
    assert row["compilation"]["problem"] == "no C compiler"
    assert row["ms"] == {"ours": 0.1}


def test_what_a_race_had_told_before_it_was_killed_is_kept(
    asked: Asked, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "compiled", lambda *_: {"kernels": 3})

    def killed(module: str, arguments: Sequence[str], seconds: float) -> Ended:
        played(module, arguments, seconds)
        return Ended(None, "", "")

    parts.bench(replace(asked, run=killed))
    (row, *_) = asked.notebook("bench").rows.values()
    assert row["ms"] == {"ours": 0.1}
    assert row["left_out"]["compiled"] == "did not end in its time"


def test_a_race_that_crashes_is_told(asked: Asked, played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "compiled", lambda *_: {"kernels": 3})
    played.status = -6
    parts.bench(asked)
    rows: list[dict[str, Any]] = list(asked.notebook("bench").rows.values())
    assert all("ended with status -6: the last words" in row["problem"] for row in rows)
    assert parts.told_contest(rows[0]).startswith("failed: ended")
