from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import cache as caching
from bench.cache import Cache
from bench.subject import Subject
from bench.subjects import from_zoo
from compiler.contract import CompileOptions, CompileReport, Event
from compiler.request import Host, Request

OPTIONS = CompileOptions(threads=1, tuning_budget_s=0.0)


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return from_zoo("tiny_cnn", tmp_path)


class FakeCompiler:
    """Measures one kernel unless it was told of it, and writes an artifact."""

    def __init__(self) -> None:
        self.known: list[list[Mapping[str, Any]]] = []

    def __call__(self, request: Request, host: Host) -> CompileReport:
        self.known.append(list(host.records))
        if not host.records:
            host.observe(Event("record", "tile", 0.5, data={"kind": "kernel", "seconds": 1.0}))
        request.artifact.write_bytes(b"artifact")
        measured, reused = (0, 1) if host.records else (1, 0)
        sizes = (8, "cpu", "", 1, {"load": 1.0, "tile": 2.0}, 1, 1, 1, 0, 0, 0.1)
        return CompileReport("model", "artifact", *sizes, records_measured=measured, records_reused=reused)


def test_a_second_compilation_takes_the_artifact_and_a_new_one_measures_nothing(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = FakeCompiler()
    monkeypatch.setattr(caching, "compile_model", compiler)
    cache = Cache(tmp_path / "cache")
    events: list[Event] = []
    first = cache.compiled(subject, OPTIONS, events.append)
    assert (first.report["records_measured"], first.seconds) == (1, 3.0)
    assert [event.kind for event in events] == ["record"], "what the compiler tells is passed on"
    assert cache.compiled(subject, OPTIONS) == first
    assert len(compiler.known) == 1, "nothing was compiled"
    # The compiler changed: what it made is outdated, what it measured is not.
    monkeypatch.setattr(caching, "_sources_digest", lambda: "changed" * 8)
    again = cache.compiled(subject, OPTIONS)
    assert again.artifact != first.artifact
    assert not first.artifact.exists()
    assert compiler.known[1] == [{"kind": "kernel", "seconds": 1.0}]
    assert again.report["records_measured"] == 0


def test_an_artifact_whose_compilation_was_interrupted_is_compiled_again(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = FakeCompiler()
    monkeypatch.setattr(caching, "compile_model", compiler)
    cache = Cache(tmp_path / "cache")
    cache.compiled(subject, OPTIONS).artifact.with_suffix(".json").unlink()
    cache.compiled(subject, OPTIONS)
    assert len(compiler.known) == 2


def test_other_options_are_another_artifact_and_both_are_kept(subject: Subject, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    one, other = cache.compiled(subject, OPTIONS), cache.compiled(subject, replace(OPTIONS, tolerance=0.01))
    assert one.artifact != other.artifact
    assert one.artifact.exists()
    assert other.artifact.exists()


def test_expected_outputs_are_in_float64_and_are_computed_once(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    first = cache.expected(subject, OPTIONS)
    assert {array.dtype for array in first.outputs.values()} == {np.dtype(np.float64)}
    assert {name: array.shape for name, array in first.inputs.items()} == {"image": (1, 3, 32, 32)}
    monkeypatch.setattr(caching, "_reference", None)
    second = cache.expected(subject, OPTIONS)
    for name, array in first.outputs.items():
        np.testing.assert_array_equal(second.outputs[name], array)


def test_a_subject_with_inputs_of_its_own_is_run_on_those(subject: Subject, tmp_path: Path) -> None:
    image = np.full((1, 3, 32, 32), 0.5, np.float32)
    found = Cache(tmp_path / "cache").expected(replace(subject, inputs={"image": image}), OPTIONS)
    np.testing.assert_array_equal(found.inputs["image"], image)


def test_any_changed_source_of_the_compiler_changes_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "files", lambda package: tmp_path)
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "__pycache__").mkdir()
    before = caching._sources_digest()
    (tmp_path / "__pycache__" / "a.pyc").write_text("1")
    assert caching._sources_digest() == before
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    renamed = caching._sources_digest()
    (tmp_path / "b.py").write_text("2")
    assert len({before, renamed, caching._sources_digest()}) == 3
