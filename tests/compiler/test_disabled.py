from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.disabled import enabled_passes, families, known
from compiler.errors import OptionsError
from compiler.frontend import load
from compiler.fuse import STEPS, fuse
from compiler.ir.buffers import KernelGraph
from compiler.ops import OPERATORS
from compiler.pack.loader import Model
from compiler.preflight import preflight
from compiler.rewrite import rewrite
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.rules import RULES
from tests.compiling import compile_file


def network(name: str, folder: Path) -> Path:
    file = folder / f"{name}.onnx"
    file.write_bytes(build(name).SerializeToString())
    return file


def kernels(file: Path, *without: str) -> KernelGraph:
    """As a compilation without measured costs makes them."""
    kept = enabled_passes(without)
    graph = load(file, CompileOptions(), OPERATORS).graph
    return fuse(rewrite(graph, rules=kept.rules).graph, kept.without_steps).kernels


def test_no_pass_is_disabled_unless_it_is_named() -> None:
    everything = enabled_passes(())
    assert (everything.rules, everything.choices, everything.without_steps) == (RULES, CHOICES, frozenset())


def test_a_family_is_the_file_that_its_rules_stand_in() -> None:
    assert {"weights", "identities", "norms"} <= set(families())
    kept = enabled_passes(["weights"])
    gone = set(RULES) - set(kept.rules)
    assert gone
    assert {rule.match.__module__ for rule in gone} == {"compiler.rewrite.rules.weights"}
    assert [rule for rule in RULES if rule in kept.rules] == list(kept.rules), "the others keep their order"


def test_a_single_rule_and_a_step_of_fusion_have_names_too() -> None:
    kept = enabled_passes(["batch_norm_into_weights", "inline"])
    assert {rule.name for rule in RULES} - {rule.name for rule in kept.rules} == {"batch_norm_into_weights"}
    assert kept.without_steps == {"inline"}


def test_every_known_name_disables_a_pass() -> None:
    everything = enabled_passes(())
    assert all(enabled_passes([name]) != everything for name in known())


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(OptionsError, match="without names 'weight'") as refused:
        enabled_passes(["weights", "weight"])
    for name in (*STEPS, *families(), *(rule.name for rule in RULES)):
        assert name in refused.value.fix


def test_a_compilation_refuses_an_unknown_name_before_it_reads_the_model(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="'magic'"):
        compile_file(tmp_path / "none.onnx", tmp_path / "m.tw", CompileOptions(without=("magic",)))


def test_a_preflight_says_so_and_corrects_the_options(tmp_path: Path) -> None:
    file = network("tiny_cnn", tmp_path)
    found = preflight(file, CompileOptions(without=("magic", "weights")))
    assert not found["ok"]
    assert found["problem"]["code"] == "invalid_options"
    assert found["corrected"]["without"] == ["weights"]
    assert preflight(file, CompileOptions.from_json(found["corrected"]))["ok"]


@pytest.mark.parametrize("name", ["weights", "batch_norm_into_weights"])
def test_a_disabled_rule_is_applied_nowhere(name: str, tmp_path: Path) -> None:
    graph = load(network("tiny_mobile", tmp_path), CompileOptions(), OPERATORS).graph
    assert "batch_norm_into_weights" in {applied.rule for applied in rewrite(graph).log}
    kept = enabled_passes([name])
    assert "batch_norm_into_weights" not in {applied.rule for applied in rewrite(graph, rules=kept.rules).log}


@pytest.mark.parametrize("name", ["epilogue", "inline"])
def test_without_what_joins_there_are_more_kernels(name: str, tmp_path: Path) -> None:
    file = network("tiny_mobile", tmp_path)
    assert len(kernels(file, name).calls) > len(kernels(file).calls)


def test_without_views_every_value_has_memory_of_its_own(tmp_path: Path) -> None:
    file = network("tiny_mobile", tmp_path)
    assert any(buffer.storage != buffer.id for buffer in kernels(file).buffers.values())
    assert all(buffer.storage == buffer.id for buffer in kernels(file, "views").buffers.values())


def test_without_attention_its_scores_are_stored(tmp_path: Path) -> None:
    file = network("tiny_transformer", tmp_path)
    assert len(kernels(file, "attention").calls) > len(kernels(file).calls)


def test_without_layouts_every_value_is_plain(tmp_path: Path) -> None:
    file = network("tiny_mobile", tmp_path)
    assert {buffer.layout.is_plain for buffer in kernels(file).buffers.values()} == {True, False}
    assert all(buffer.layout.is_plain for buffer in kernels(file, "layouts").buffers.values())


@pytest.mark.parametrize("without", [STEPS, families(), (*STEPS, *families())], ids=["steps", "rules", "all"])
def test_what_is_compiled_without_anything_still_agrees_with_the_reference(
    without: tuple[str, ...], tmp_path: Path
) -> None:
    file = network("tiny_mobile", tmp_path)
    outputs = []
    for at, names in enumerate(((), without)):
        artifact = tmp_path / f"{at}.tw"
        options = CompileOptions(threads=1, tuning_budget_s=0.0, without=names)
        report = compile_file(file, artifact, options, measure=False)
        assert report.errors
        with Model(artifact) as model:
            outputs.append(model.run_flat(list(model.random_inputs(0).values())))
    for one, other in zip(*outputs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
