"""The smallest part of a model that fails as the whole does: refusals, wrong results, crashes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.contract import CompileOptions
from compiler.disabled import EnabledPasses, enabled_passes
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.ir.graph import Node
from compiler.minimise.__main__ import main
from compiler.minimise.failure import template
from compiler.minimise.network import Network as Parts
from compiler.minimise.network import Part
from compiler.minimise.reduce import Search
from compiler.ops import OPERATORS
from compiler.rewrite import EXACT, Rule
from compiler.rewrite.view import Rewrite, View
from tests.compiler.networks import Network

BLOCKS = 4


def forgotten(view: View, node: Node) -> Rewrite:
    """Elu(x) = x."""
    return view.draft(node).same(node.used[0], why="a rule that is wrong")


def crashing(view: View, node: Node) -> Rewrite:
    os.abort()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Gives the compiler another rule for Elu; trials are forked, so they have it too."""

    def break_by(function: Any) -> None:
        rule = Rule(EXACT, ("Elu",), function)

        def passes(without: Sequence[str]) -> EnabledPasses:
            kept = enabled_passes(without)
            return replace(kept, rules=(*kept.rules, rule))

        monkeypatch.setattr("compiler.session.enabled_passes", passes)

    return break_by


def network(path: Path, operator: str) -> Path:
    """Convolutions and activations in a row, with the operator between the second and the third."""
    net = Network()
    shape = (1, 8, 12, 12)
    x = net.input(*shape)
    for block in range(BLOCKS):
        x = net.node("Conv", [x, net.weight(8, 8, 3, 3)], shape, pads=[1] * 4)
        x = net.node("Relu", [x], shape)
        if block == 1:
            x = net.node(operator, [net.node("Neg", [x], shape)], shape)
    onnx.save(net.model([x]), path)
    return path


def minimised(model: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the command prints."""
    main([str(model), "--json", "--seconds", "60", "--options", '{"threads": 1}'])
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


def test_of_a_refused_model_the_refused_node_remains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = network(tmp_path / "model.onnx", "Frobnicate")
    said = minimised(model, capsys)
    assert said["operators"] == ["Frobnicate"]
    assert said["nodes"] == {"before": 2 * BLOCKS + 2, "after": 1}
    assert said["preserved"] == {
        "code": "unsupported_model",
        "phase": "load",
        "operator": "Frobnicate",
        "reason": "ONNX has no such operator",
    }
    assert said["complete"]
    assert said["bytes"]["after"] < said["bytes"]["before"] / 50
    with pytest.raises(UnsupportedModel, match="Frobnicate"):
        load(Path(said["model"]), CompileOptions(), OPERATORS)


def test_of_a_wrong_rule_the_nodes_that_show_it_remain_with_inputs_that_show_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: Callable[[Any], None]
) -> None:
    """The input of an Elu that is forgotten is what it is in the whole model, where it is below zero."""
    broken(forgotten)
    said = minimised(network(tmp_path / "model.onnx", "Elu"), capsys)
    assert said["problem"]["code"] == "disagreement"
    assert said["operators"] == ["Elu"]
    assert said["bytes"]["after"] < 300
    (name,) = said["inputs"]
    with np.load(said["inputs_file"]) as archive:
        found = archive[name]
    assert (found <= 0).all()
    assert [one.name for one in onnx.load(said["model"]).graph.input] == [name]


def test_of_a_crash_the_node_that_crashes_remains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: Callable[[Any], None]
) -> None:
    broken(crashing)
    said = minimised(network(tmp_path / "model.onnx", "Elu"), capsys)
    assert said["preserved"] == {"code": "crashed", "phase": "rewrite", "operator": "", "reason": "SIGABRT"}
    assert said["operators"] == ["Elu"]
    assert sum(one["trials"] for one in said["tried"]) == said["trials"] > 3


def test_a_model_that_compiles_has_nothing_to_minimise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Network()
    onnx.save(net.model([net.node("Relu", [net.input(1, 8)], (1, 8))]), tmp_path / "model.onnx")
    assert minimised(tmp_path / "model.onnx", capsys)["error"]["code"] == "nothing_fails"


def test_two_far_nodes_that_fail_only_together_remain_alone(tmp_path: Path) -> None:
    """Nothing names them, so the search is delta debugging alone; each part that was kept did fail."""
    parts = Parts.of(network(tmp_path / "model.onnx", "Elu"), tmp_path, None)
    everything = Part(tuple(range(len(parts.nodes))))
    asked = []

    def fails(part: Part) -> bool:
        asked.append(part)
        return {0, 8} <= {*part.nodes} and part.sizes.get(12, 12) >= 3

    search = Search(parts, everything, fails, is_over=lambda: False, most_trials=500)
    assert search.run([])
    assert search.best.nodes == (0, 8)
    assert search.best.sizes == {12: 3, 8: 1}
    assert len({part.key for part in asked}) == len(asked) == search.trials
    stopped = Search(parts, everything, fails, is_over=lambda: False, most_trials=3)
    assert not stopped.run([])
    assert {0, 8} <= {*stopped.best.nodes}


def test_words_of_a_fault_are_compared_without_names_and_numbers() -> None:
    assert template("input 'x' has shape 1x3x224x224, not 7 axes") == template("input 'y' has shape 1x8, not 3 axes")
    assert template("no such operator") != template("no such type")
