"""Modules of PyTorch, where it is there; of an export that was recorded, everywhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.tilewright import torch_export
from tilewright import local, pytorch
from tilewright.errors import UsageError

FAST = {"tuning_budget_s": 0, "threads": 1}
pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def torch() -> Iterator[Any]:
    pytest.importorskip("onnxscript", reason="PyTorch's exporter is not installed")
    found = pytest.importorskip("torch", reason="PyTorch is not installed")
    found._dynamo.reset()
    with found.no_grad():
        yield found
    found._dynamo.reset()


def near(found: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-4, atol=1e-5)


def test_an_export_of_pytorch_compiles_and_gives_what_the_module_gave(tmp_path: Path) -> None:
    content, cases = torch_export.recorded()
    (tmp_path / "m.onnx").write_bytes(content)
    with tilewright.compile(tmp_path / "m.onnx", {**FAST, "dims": torch_export.SIZES}) as model:
        assert [len(images) for images, _ in cases] == [1, 3]
        for images, want in cases:
            near(model(images), want)


def test_without_pytorch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    module = SimpleNamespace(training=False, eval=lambda: None, train=lambda _: None)
    calls: list[Callable[[], object]] = [lambda: tilewright.from_torch(module, ()), lambda: pytorch.backend(None, ())]
    for call in calls:
        with pytest.raises(UsageError, match="PyTorch cannot export") as caught:
            call()
        assert caught.value.fix == "pip install torch onnxscript"


def test_dimensions_with_both_ends_are_ranges_wherever_they_stand() -> None:
    def dim(name: str, **ends: int | None) -> Any:
        return SimpleNamespace(__name__=name, **{"min": None, "max": None, **ends})

    shapes = {
        "x": {0: dim("batch", min=1, max=8), 1: dim("open"), 2: None},
        "more": [({1: dim("time", min=2, max=9)},)],
    }
    assert pytorch._ranges(shapes) == {"batch": {"min": 1, "max": 8}, "time": {"min": 2, "max": 9}}
    assert pytorch._ranges(None) == {}


def test_pytorch_finds_the_backend_by_its_name() -> None:
    (found,) = metadata.entry_points(group="torch_dynamo_backends", name="tilewright")
    assert found.load() is pytorch.backend


def test_a_module_is_compiled_for_the_shapes_of_its_examples_and_is_found_again(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = torch_export.module().train()
    with tilewright.from_torch(module, (torch_export.example(),), FAST) as model:
        assert module.training
        assert [spec.shape for spec in model.inputs] == [(2, 3, 8, 8)]
        near(model(torch_export.example()), module.eval()(torch_export.example()))
    monkeypatch.setattr(local, "_run", None)  # nothing is started
    tilewright.from_torch(module, (torch_export.example(),), FAST).close()


def test_dynamic_shapes_make_one_artifact_for_a_range_of_sizes(torch: Any) -> None:
    module = torch_export.module()
    shapes = torch_export.batches()
    with tilewright.from_torch(module, (torch_export.example(),), FAST, dynamic_shapes=shapes) as model:
        for batch in (1, 3, 4):
            near(model(torch_export.example(batch)), module(torch_export.example(batch)))


def test_what_pytorch_cannot_export_is_said(torch: Any) -> None:
    class Branch(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(UsageError, match="PyTorch cannot export the module"):
        tilewright.from_torch(Branch(), (torch.ones(3),), FAST)


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What was logged since the last call."""
    monkeypatch.setattr(pytorch, "_said", set())
    caplog.set_level(logging.WARNING, "tilewright")

    def said() -> list[str]:
        found = [one.getMessage() for one in caplog.records if one.name == "tilewright"]
        caplog.clear()
        return found

    return said


def compiled(torch: Any, module: Any) -> Any:
    return torch.compile(module, backend=pytorch.backend, options=FAST)


def test_a_compiled_module_runs_by_artifacts_in_each_shape(torch: Any, warned: Callable[[], list[str]]) -> None:
    module = torch_export.module()
    ours = compiled(torch, module)
    for batch in (2, 3, 5, 2):
        near(ours(torch_export.example(batch)), module(torch_export.example(batch)))
    assert warned() == []
    assert 3 <= len([*local.cache_dir().glob("*.tw")]) <= 4  # the graph for any batch may be asked for two again


def test_pytorch_runs_what_asks_for_gradients_and_what_has_changed_since(
    torch: Any, warned: Callable[[], list[str]]
) -> None:
    module = torch_export.module()
    ours, images = compiled(torch, module), torch_export.example()
    ours(images)
    assert warned() == []
    module.last.weight.mul_(2)
    near(ours(images), module(images))
    with torch.enable_grad():
        assert ours(images).requires_grad
    assert len(warned()) == 1


@pytest.mark.parametrize(("dtype", "precision"), [("bfloat16", {"tolerance": 0.1}), ("int64", {}), ("float64", {})])
def test_tensors_of_other_types_go_in_and_come_out_as_they_are(
    torch: Any, warned: Callable[[], list[str]], dtype: str, precision: dict[str, float]
) -> None:
    class Sums(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return x * 3 + y, (x - y).abs()

    kind = getattr(torch, dtype)
    x, y = (torch.arange(24).reshape(4, 6).flip(0).to(kind), torch.arange(24).reshape(6, 4).to(kind).T)
    ours = torch.compile(Sums(), backend=pytorch.backend, options={**FAST, **precision})
    for found, want in zip(ours(x, y), Sums()(x, y), strict=True):
        assert found.dtype is kind
        near(found.double(), want.double())
    assert warned() == []


def test_pytorch_runs_a_graph_that_writes_its_inputs(torch: Any, warned: Callable[[], list[str]]) -> None:
    class Counts(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.seen.add_(1)
            return x + self.seen

    module = Counts()
    ours = compiled(torch, module)
    assert [ours(torch.zeros(2)).tolist() for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
    assert module.seen.item() == 3
    assert warned()
