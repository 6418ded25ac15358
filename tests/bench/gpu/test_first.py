"""The first half hour with children that are played: its order, what is left when the time is over, what fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import first, run
from bench.gpu.child import Ended
from bench.gpu.half_hour.cases import CASES
from bench.gpu.half_hour.summary import MOST_WRONG, summary
from bench.gpu.notebook import Deadline
from bench.gpu.parts import Asked
from tests.bench.gpu.test_parts import FAMILIES, Played
from tests.gpu import intrinsics, kernels


@pytest.fixture
def played() -> Played:
    return Played()


@pytest.fixture
def asked(tmp_path: Path, played: Played) -> Asked:
    networks = ["resnet50", "nasnet_a_large", "squeezenet1_0"]
    said: list[str] = []
    return Asked(
        tmp_path, "sources", "NVIDIA X", "this one", networks, Deadline.after(3600), said.append, 60.0, 1, run=played
    )


def keys_of(*bases: str) -> list[str]:
    """Of the rows of cases that are made of some networks, or of none."""
    return [case.key for case in CASES if case.base in (*bases, "decoder")]


def test_facts_probes_families_and_networks_are_done_once(asked: Asked, played: Played) -> None:
    assert first.first(asked)
    assert first.first(asked)
    tried = [arguments for arguments in played.of("tests.gpu") if arguments != ["--list"]]
    assert sorted(arguments[0] for arguments in tried) == sorted(FAMILIES)
    assert all(arguments[-1] == "--alone" for arguments in tried)
    networks = [case for case in CASES if case.key in keys_of("squeezenet1_0", "resnet50")]
    compiled = [arguments[:4] for arguments in played.of("bench.gpu.compiling")]
    assert compiled == [[case.network, case.precision, "--budget", "0.0"] for case in networks]
    said = [
        arguments[arguments.index("--options") + 1 :]
        for arguments in played.of("bench.gpu.compiling")
        if "--options" in arguments
    ]
    assert [json.loads(options) for options, *_ in said] == [dict(case.options) for case in networks if case.options]
    artifacts = [arguments[0] for arguments in played.of("bench.gpu.repeated")]
    assert len(set(artifacts)) == len(networks)
    rows = asked.notebook("first").rows
    assert [arguments[0] for arguments in played.of("bench.gpu.probe")] == [*first.PROBES]
    assert {arguments[2] for arguments in played.of("bench.gpu.probe")} == {str(asked.out / "records.jsonl")}
    assert rows["probe habits"]["found"]["prefetch"]["on"]
    probes = {f"probe {name}" for name in first.PROBES}
    assert rows.keys() == {"facts", *probes, *FAMILIES, *keys_of("squeezenet1_0", "resnet50")}
    assert (rows["facts"]["gpu"], rows["facts"]["hardware"]) == ("NVIDIA X", "this one")
    assert rows["facts"]["programs"].keys() == {"nvidia-smi", "gcc", "g++", "nvcc"}
    assert not list(asked.out.glob("verdict*"))


def test_networks_come_before_families_in_other_precisions(asked: Asked, played: Played) -> None:
    played.families = ["loops bf16", "loops fp16", "mma fp32", "ldmatrix"]
    assert first.first(asked)
    order = [*asked.notebook("first").rows]
    begin = order.index("squeezenet1_0 fp16")
    assert sorted(order[begin - 2 : begin]) == ["ldmatrix", "loops fp16"]
    assert sorted(order[-2:]) == ["loops bf16", "mma fp32"]


def test_the_page_says_what_is_wrong_first_and_what_probes_found_beside_what_was_assumed(
    asked: Asked, played: Played
) -> None:
    played.wrong = "ldmatrix"
    assert first.first(asked)
    page = (asked.out / "first.md").read_text()
    lines = page.splitlines()
    assert lines[0] == "# The first half hour on NVIDIA X"
    tried = f"{len(keys_of('squeezenet1_0', 'resnet50'))} of {len(CASES)} networks tried"
    assert lines[2] == f"2 of 3 families right, {tried}, 1 wrong."
    assert lines[6] == "- ldmatrix: x: error 1"
    for line in (
        "| launch_ns | 900 | 1300 |",
        "| handover_ns | 1234 | 1000 |",
        "| L2, MiB | 60 | 50 |",
        "| prefetch | on | off |",
        "| drift of 4608 terms, mma fp16 | -3.0e-05 | H100 -2.8e-05 |",
        "| drift of 4608 terms, ffma fp32 | did not run |  |",
    ):
        assert line in lines, line
    (network,) = (line for line in lines if line.startswith("| squeezenet1_0 persistent |"))
    assert network.endswith("| 100.0 | 70.0 |  | 900 | 500 of 500 |")


def test_a_page_of_a_broken_half_hour_is_a_page() -> None:
    rows: dict[str, dict[str, Any]] = {
        "a": {"problem": "did not\nend"},
        **{str(at): {"passed": False, "failed": ["x"]} for at in range(30)},
    }
    page = summary(rows, CASES)
    assert "- a: did not end" in page
    assert page.count("\n- ") == MOST_WRONG + 1
    assert "- and 11 more" in page


def test_single_instructions_come_first_then_precisions_and_algorithms_by_worth() -> None:
    names = [*kernels.names(), *(family.name for family in intrinsics.FAMILIES)]
    ordered = first.in_order(names)
    assert sorted(ordered) == sorted(names)
    count = len(intrinsics.FAMILIES)
    assert ordered[:count] == [family.name for family in intrinsics.FAMILIES]
    assert ordered[count : count + 3] == ["mma fp16", "mma_3xtf32 fp16", "mma_image fp16"]
    assert ordered.index("transpose fp16") < ordered.index("sparse fp16") < ordered.index("integer fp16")
    fp16 = [name.rpartition(" ")[0] for name in ordered if name.endswith(" fp16")]
    sparse = [name for name in fp16 if name.startswith("sparse") and "integer" not in name and "ffma" not in name]
    assert sparse == ["sparse", "sparse_wgmma", "sparse_mma", "sparse_mma_3xtf32", "sparse_mma_tf32"]


def test_every_algorithm_that_is_tried_first_is_one() -> None:
    named = {name.rpartition(" ")[0] for name in kernels.names()}
    assert named >= {*first.ALGORITHMS}


def test_precisions_follow_each_other_in_the_order_of_their_worth() -> None:
    ordered = first.in_order([*kernels.names(), *(family.name for family in intrinsics.FAMILIES)])
    count = len(intrinsics.FAMILIES)
    precisions = [name.rpartition(" ")[2] for name in ordered[count:]]
    assert list(dict.fromkeys(precisions)) == list(first.WORTH)


def test_without_time_nothing_is_begun_and_nothing_is_wrong(asked: Asked, played: Played) -> None:
    assert not first.first(replace(asked, deadline=Deadline.after(0)))
    assert [arguments for arguments in played.of("tests.gpu") if arguments != ["--list"]] == []
    assert asked.notebook("first").rows.keys() == {"facts"}
    assert first.first(asked)


def test_a_wrong_family_is_kept_and_the_others_are_tried(asked: Asked, played: Played) -> None:
    played.wrong = "ldmatrix"
    assert first.first(asked)
    rows = asked.notebook("first").rows
    assert [name for name in FAMILIES if not rows[name]["passed"]] == ["ldmatrix"]
    assert run.status({"first": rows}) == 1


def test_a_network_whose_runs_differ_is_kept_as_wrong(asked: Asked, played: Played) -> None:
    played.wrong = "repeated"
    assert first.first(asked)
    row = asked.notebook("first").rows["resnet50 fp16"]
    assert (row["passed"], row["failed"]) == (False, ["runs [17] of 500 gave other bits than the first"])
    assert run.status({"first": {"resnet50 fp16": row}}) == 1


def test_families_that_cannot_be_listed_are_told(asked: Asked) -> None:
    assert not first.first(replace(asked, run=Failing()))
    assert asked.notebook("first").rows["probe habits"] == {
        "passed": False,
        "failed": ["the probe did not end well: the last words"],
    }
    assert asked.notebook("first").rows["families"] == {"passed": False, "failed": ["the last words"]}
    assert first.first(asked)
    assert "families" not in asked.notebook("first").rows


class Failing(Played):
    """Whose every child fails."""

    def __call__(self, module: str, arguments: Sequence[str], seconds: float) -> Ended:
        self.status = 1
        return super().__call__(module, arguments if arguments != ["--list"] else ["--listed"], seconds)


def test_all_parts_do_not_hold_the_first_half_hour_again() -> None:
    assert set(run.PARTS) - set(run.ALL) == {"first"}
