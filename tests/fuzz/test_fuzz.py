"""The fuzzer finds what it looks for, and some of its models end soundly."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from compiler.pack.loader import Model
from tests.end_to_end.models import model, relu
from tests.fuzz import hostile, judge, mutants
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
    assert main(["--only", "mutant", "7", "--kept", str(tmp_path)]) == 1
    assert "mutant 7 (relu): wrong ours" in capsys.readouterr().out
    assert (tmp_path / "mutant-7.onnx").read_bytes() == relu([4])


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
