from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.replay import compiling
from bench.replay.cases import Case
from bench.replay.compiling import Kept, NotThatCompiler, compiled
from bench.subject import Subject
from tests.bench.replay.artifacts import MEMBERS, runs, side

CASE = Case("tiny_cnn", "cpu:x86-64-v3", "fp32", {"threads": 1})
TUNED = replace(CASE, tuned=True)


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    file = tmp_path / "model.onnx"
    file.write_text("model")
    return Subject("tiny_cnn", "zoo", file, {"inputs": {"x": [1, 2]}})


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "cache")


def test_a_case_is_compiled_once_for_a_compiler(tmp_path: Path, subject: Subject, kept: Kept) -> None:
    one, two = side(tmp_path / "one"), side(tmp_path / "two", comment="changed")
    first = kept.outcome(CASE, subject, one, None)
    assert first.texts["source/kernels_0.c"] == MEMBERS["source/kernels_0.c"]
    assert "model.so" in first.digests
    assert "model.so" not in first.texts, "of bytes the digest is kept"
    assert kept.outcome(CASE, subject, one, None) == first
    assert len(runs(one)) == 1
    assert kept.outcome(CASE, subject, two, None).digests == first.digests
    assert len(runs(two)) == 1
    kept.outcome(CASE, subject, one, None, again=True)
    assert len(runs(one)) == 2


def test_the_compiler_is_asked_to_measure_nothing(tmp_path: Path, subject: Subject) -> None:
    one = side(tmp_path / "one")
    records = tmp_path / "records.jsonl"
    records.write_text("{}\n")
    compiled(CASE, subject, one, records)
    (run,) = runs(one)
    assert (run["model"], run["target"], run["precision"]) == (str(subject.file), CASE.target, CASE.precision)
    assert json.loads(run["options"]) == {"tuning_budget_s": 0.0, "inputs": {"x": [1, 2]}, "threads": 1}
    assert run["records"] == str(records)


def test_whatever_a_result_follows_from_is_in_its_key(
    tmp_path: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = side(tmp_path / "one"), side(tmp_path / "two", comment="changed")
    records, others = tmp_path / "records.jsonl", tmp_path / "others.jsonl"
    records.write_text("{}\n")
    others.write_text("{ }\n")
    model = tmp_path / "other.onnx"
    model.write_text("other")
    keys = [
        Kept.key(CASE, subject, one, None),
        Kept.key(CASE, subject, two, None),
        Kept.key(CASE, subject, one, records),
        Kept.key(CASE, subject, one, others),
        Kept.key(replace(CASE, target="cpu:x86-64-v4"), subject, one, None),
        Kept.key(replace(CASE, precision="bf16"), subject, one, None),
        Kept.key(replace(CASE, options={"threads": 2}), subject, one, None),
        Kept.key(CASE, replace(subject, file=model), one, None),
        Kept.key(CASE, replace(subject, options={}), one, None),
    ]
    monkeypatch.setattr(compiling, "surroundings", lambda: {"cc": "gcc 99"})
    keys.append(Kept.key(CASE, subject, one, None))
    assert len({*keys}) == len(keys)
    assert Kept.key(CASE, subject, one, None) == keys[-1]


def test_a_refusal_is_told_without_the_folders_that_it_names(tmp_path: Path, subject: Subject, kept: Kept) -> None:
    one, two = side(tmp_path / "one"), side(tmp_path / "two", comment="changed")
    for compiler in (one, two):
        (compiler.tree / "refuses").touch()
    assert kept.outcome(CASE, subject, one, None).error == "tiny_cnn: refused in "
    assert kept.outcome(CASE, subject, one, None).error == kept.outcome(CASE, subject, two, None).error
    assert len(runs(one)) == 2


def test_a_crash_is_known_by_its_error_and_not_by_its_lines(tmp_path: Path, subject: Subject) -> None:
    outcomes = []
    for name, above in (("one", ""), ("two", "\n\n")):
        compiler = side(tmp_path / name)
        (compiler.tree / "compiler" / "__main__.py").write_text(f"{above}raise ValueError('several\\nlines')\n")
        outcomes.append(compiled(CASE, subject, compiler, None))
    one, two = outcomes
    assert one.error == two.error == "ValueError: several\nlines"
    assert "__main__.py" in one.trace
    assert one.trace != two.trace


@pytest.mark.parametrize(
    ("line", "said"),
    [("import os; os.kill(os.getpid(), 9)", "exit status -9"), ("import time; time.sleep(60)", "not done after 0.5 s")],
    ids=["killed", "too long"],
)
def test_an_accident_is_told_and_not_kept(
    tmp_path: Path, subject: Subject, kept: Kept, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    one = side(tmp_path / "one")
    (one.tree / "compiler" / "__main__.py").write_text(line)
    if "sleep" in line:
        monkeypatch.setattr(compiling, "LONGEST_S", 0.5)
    assert kept.outcome(CASE, subject, one, None).error.startswith(said)
    assert not list(kept.place("outcomes").iterdir())


def test_another_compiler_in_the_child_ends_it_all(tmp_path: Path, subject: Subject) -> None:
    one = side(tmp_path / "one")
    with pytest.raises(NotThatCompiler, match="no_such_tree"):
        compiled(CASE, subject, replace(one, tree=tmp_path / "no_such_tree"), None)


def test_tuned_cases_get_records_that_are_measured_once(tmp_path: Path, subject: Subject, kept: Kept) -> None:
    one = side(tmp_path / "one", {**MEMBERS, "records.jsonl": '{"seconds": 1}\n'})
    assert kept.records(CASE, subject, one) is None
    made = kept.records(TUNED, subject, one)
    assert made is not None
    assert made.read_text() == '{"seconds": 1}\n'
    assert kept.records(TUNED, subject, side(tmp_path / "two", comment="changed")) == made, "both sides get the same"
    assert [json.loads(run["options"])["tuning_budget_s"] for run in runs(one)] == [compiling.TUNING_S]


def test_a_failed_compilation_leaves_no_records(tmp_path: Path, subject: Subject, kept: Kept) -> None:
    one = side(tmp_path / "one")
    (one.tree / "refuses").touch()
    assert kept.records(TUNED, subject, one) is None
    assert not list(kept.place("records").iterdir())


def test_records_that_are_given_take_their_place(tmp_path: Path, subject: Subject) -> None:
    given = tmp_path / "records.jsonl"
    one = side(tmp_path / "one")
    kept = Kept(tmp_path / "cache", given)
    assert kept.records(TUNED, subject, one) == given
    assert kept.records(CASE, subject, one) is None
    assert not runs(one)


def test_a_network_of_the_zoo_is_built_once(kept: Kept) -> None:
    built = kept.subject("tiny_lstm")
    stamp = built.file.stat().st_mtime_ns
    assert kept.subject("tiny_lstm").file.stat().st_mtime_ns == stamp
    assert built.file.is_relative_to(kept.folder)
