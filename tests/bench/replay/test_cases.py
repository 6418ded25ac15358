from __future__ import annotations

import pytest

from bench.public import PUBLIC
from bench.replay.cases import CUDA, DRAWN, SETS, Case, cases_of, key_of
from bench.zoo import ZOO
from compiler.contract import CompileOptions, kinds
from compiler.devices.kinds import profiles

FULL = cases_of("full")


def test_the_full_set_has_every_model_precision_scheduler_and_cuda_profile() -> None:
    models = {entry.name for entry in ZOO} | {model.name for model in PUBLIC}
    assert {case.model for case in FULL if not case.model.startswith(DRAWN)} == models
    on_gpus = {case.model for case in FULL if case.target in CUDA}
    assert {model for model in on_gpus if not model.startswith(DRAWN)} == models
    assert {*CUDA} == {profile.name for profile in profiles() if profile.name.startswith("cuda")}
    for kind in (one for one in kinds.KINDS if not one.whole):
        assert {case.precision for case in FULL if case.target.startswith(kind.name)} == {*kind.precisions}
    assert {case.options["scheduler"] for case in FULL if "scheduler" in case.options} == {*kinds.schedulers()} - {
        "auto"
    }


@pytest.mark.parametrize("name", sorted(SETS))
def test_cases_are_distinct_and_the_compiler_knows_their_options(name: str) -> None:
    cases = cases_of(name)
    assert len({key_of(case) for case in cases}) == len({str(case) for case in cases}) == len(cases)
    known = {profile.name for profile in profiles()}
    for case in cases:
        CompileOptions.from_json({"target": case.target, "precision": case.precision, **case.options})
        assert case.target in known


def test_the_quick_set_is_part_of_the_full_one() -> None:
    assert {key_of(case) for case in cases_of("quick")} < {key_of(case) for case in FULL}


def test_only_takes_cases_with_all_the_words() -> None:
    assert {case.model for case in cases_of("quick", ["tiny_cnn"])} == {"tiny_cnn"}
    both = cases_of("quick", ["cuda:sm_90", "bf16"])
    assert both
    assert {(case.target, case.precision) for case in both} == {("cuda:sm_90", "bf16")}
    assert str(Case("m", "cpu", "fp32", {"threads": 2}, tuned=True)) == "m cpu fp32 threads=2 tuned"
