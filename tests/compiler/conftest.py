"""Networks of the zoo compiled for real, once for all tests of a file that look at them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from bench.zoo import build
from compiler.contract import CompileOptions, CompileReport
from compiler.pack.loader import library
from compiler.pack.loader import model as model_module
from tests.compiling import compile_file


@dataclass(frozen=True)
class Compiled:
    """A model file, its artifact, the receipt."""

    model: Path
    artifact: Path
    report: CompileReport


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Compiled]:
    """Compiles a network of the zoo without measuring; equal calls share one artifact.

    `split` gives each kernel to all lanes.
    """
    done: dict[tuple[str, int, bool], Compiled] = {}

    def compile_network(name: str, threads: int = 1, *, split: bool = False) -> Compiled:
        key = (name, threads, split)
        if key not in done:
            folder = tmp_path_factory.mktemp(name)
            onnx.save(build(name), folder / "model.onnx")
            with pytest.MonkeyPatch.context() as patch:
                if split:
                    # The package's `schedule` is the function of that name, not the module.
                    patch.setattr(sys.modules["compiler.schedule.schedule"], "_predicted", lambda one: -one.plan.lanes)
                    patch.setattr("compiler.steps.costs.lanes.synchronisation_seconds", lambda handover: 0.0)
                options = CompileOptions(threads=threads, tuning_budget_s=0)
                report = compile_file(folder / "model.onnx", folder / "model.tw", options)
            done[key] = Compiled(folder / "model.onnx", folder / "model.tw", report)
        return done[key]

    return compile_network


@pytest.fixture
def new_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of threads in which no model of another test has a part, whatever limits this machine sets."""
    monkeypatch.setattr(sys, f"_tilewright_pools_{os.getpid()}", (threading.Lock(), []), raising=False)
    limit_threads(monkeypatch, None)


def limit_threads(monkeypatch: pytest.MonkeyPatch, limit: int | None) -> None:
    for module in (library, model_module):
        monkeypatch.setattr(module, "thread_limit", lambda: limit)
