"""The fuzzer finds what it looks for, and some of its models end soundly."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from compiler.pack.loader import Model
from tests.end_to_end.models import model, relu
from tests.fuzz import hostile, judge, mutants, neighbours
from tests.fuzz.__main__ import main
from tests.fuzz.judge import KINDS, Reported, Subject, difference, ended, judged
from tests.seeds import each

pytestmark = pytest.mark.processes


@each((2, 3))
def test_graphs_that_data_decide_end_soundly(seed: int) -> None:
    end = judged(KINDS["graph"](seed), seed)
    assert end.is_sound, end


@each((1, 4))
def test_mutants_and_broken_files_end_soundly(seed: int) -> None:
    for kind in ("mutant", "broken"):
        end = judged(KINDS[kind](seed), seed)
        assert end.is_sound, end


@each((3, 7))
def test_parts_of_networks_end_soundly(seed: int) -> None:
    end = judged(KINDS["neighbour"](seed), seed)
    assert end.is_sound, end


def test_parts_of_networks_are_the_same_each_time_and_of_every_kind() -> None:
    drawn = [neighbours.drawn(number) for number in range(60)]
    again = neighbours.drawn(11)
    assert (drawn[11][1], drawn[11][2]) == (again[1], again[2])
    assert all(np.array_equal(one, again[3][0][name]) for name, one in drawn[11][3][0].items())
    options = [one[2] for one in drawn]
    assert all(any(key in one for one in options) for key in ("dims", "carry", "devices", "weights"))
    assert {one["precision"] for one in options} == {"fp32", "bf16", "auto"}
    assert len({one[0] for one in drawn}) > 8, "networks"


def test_each_change_of_a_part_can_be_made() -> None:
    made: set[str] = set()
    for number in range(120):
        part = neighbours.part_drawn(random.Random(number))
        for change in set(neighbours.CHANGES):
            if part is None or change.__name__ in made:
                continue
            tried = neighbours.after(part, change)
            if tried is not None and tried.model != part.model:
                made.add(change.__name__)
    assert made == {change.__name__ for change in neighbours.CHANGES}


def test_a_wrong_run_from_a_state_and_through_devices_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> m (float[3] x, float[3] h) => (float[3] n, float[3] y)'
        " { n = Add(x, h) y = Tanh(n) }"
    ).SerializeToString()
    feeds = [{"x": np.ones(3, np.float32), "h": np.zeros(3, np.float32)}]
    for way in ({"carry": {"n": "h"}}, {"devices": ["cpu:0", "cpu:1"], "objective": "throughput"}):
        subject = Subject("steps", graph, feeds=feeds, trusts=1, options={"precision": "fp32", **way})
        end = judged(subject, 0)
        assert end.code == "ok", end
        monkeypatch.setattr(judge, "ended", slipping)
        assert judged(subject, 0).code == "wrong"
        monkeypatch.undo()


def slipping(subject: Subject, number: int) -> Reported:
    """The end of a model that is right when it is run alone, and otherwise wrong."""
    runs = judge._runs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            judge,
            "_runs",
            lambda *given: (
                (one, found if at < len(subject.feeds) else [array + 1 for array in found])
                for at, (one, found) in enumerate(runs(*given))
            ),
        )
        return ended(subject, number)


def test_each_attack_ends_as_the_callers_fault_or_soundly() -> None:
    """The first model of each attack, as it is read and checked."""
    left, number = {attack.__name__ for attack in hostile.ATTACKS} - {"without_end"}, 0
    while left:
        number += 1
        subject = KINDS["hostile"](number)
        if subject.seed in left and subject.only_preflight:
            left.remove(subject.seed)
            end = judged(subject, number)
            assert end.is_sound, (subject.seed, number, end)


def test_many_operands_of_one_operator_are_no_deep_expression() -> None:
    nodes = [hostile.node("Sum", ["x"] * 5000)]
    end = judged(Subject("sum", model(nodes, {"x": [2, 2]}, ["y"])), 1)
    assert end.is_sound, end


def one_off(subject: Subject, number: int) -> Reported:
    """The end of a model whose artifact computes something else."""
    right = Model.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "run", lambda *given: {name: array + 1 for name, array in right(*given).items()})
        return ended(subject, number)


def raising(subject: Subject, number: int) -> Reported:
    """That of one over which the compiler stumbles."""

    def raises(*given: object, **named: object) -> None:
        raise RuntimeError("nobody expects this")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "compile_file", raises)
        return ended(subject, number)


def dying(subject: Subject, number: int) -> Reported:
    """That of one over which it dies."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ended(subject, number)


def test_a_wrong_answer_is_found_named_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judge, "ended", one_off)
    monkeypatch.setattr(mutants, "mutant", lambda number: ("relu", relu([4])))
    assert main(["--only", "mutant", "7", "--kept", str(tmp_path), "--minimise", "0"]) == 1
    assert "mutant 7 (relu): wrong ours" in capsys.readouterr().out
    assert (tmp_path / "mutant-7.onnx").read_bytes() == relu([4])


def faulty(subject: Subject, number: int) -> Reported:
    """That of one whose refusal is ours."""
    return "ok", "unsupported", "ours", f"{subject.seed} {number}"


def test_beside_what_fails_in_compiling_lies_the_smallest_part_that_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [hostile.node("Relu", ["x"], ["a"]), hostile.node("NoSuchThing", ["a"], ["b"]), hostile.node("Relu", ["b"])]
    monkeypatch.setattr(judge, "ended", faulty)
    monkeypatch.setattr(mutants, "mutant", lambda number: ("three", model(nodes, {"x": [4]}, ["y"])))
    assert main(["--only", "mutant", "7", "--kept", str(tmp_path), "--minimise", "20"]) == 1
    assert "1 of 3 nodes (NoSuchThing)" in capsys.readouterr().out
    assert [one.op_type for one in onnx.load(tmp_path / "mutant-7.minimised.onnx").graph.node] == ["NoSuchThing"]
    assert json.loads((tmp_path / "mutant-7.json").read_text())["threads"] == 2


def test_what_dies_or_raises_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject("relu", relu([4]))
    monkeypatch.setattr(judge, "ended", raising)
    end = judged(subject, 0)
    assert (end.is_sound, end.code, end.fault) == (False, "RuntimeError", "ours")
    monkeypatch.setattr(judge, "ended", dying)
    assert judged(subject, 0).code == "SIGKILL"


def test_answers_differ_by_shape_by_finiteness_and_by_more_than_rounding() -> None:
    one = np.array([1.0, np.nan, np.inf], np.float32)
    assert not difference([one], [one.copy()])
    assert not difference([one + np.float32(1e-4)], [one])
    assert "differs" in difference([one + np.float32(0.1)], [one])
    assert "differs" in difference([np.ones(3, np.float32)], [one])
    assert "shape" in difference([one], [one[:2]])
    assert "not equal" in difference([np.array(["a"], object)], [np.array(["b"], object)])
