from __future__ import annotations

import os

import numpy as np
import onnx
import onnxruntime
import pytest

from bench.trees.forests import ENSEMBLES, FEATURES, Ensemble, model_of
from bench.trees.run import Row, main, measured, table

SMALL = {
    "complete": Ensemble(3, 2),
    "leaf by leaf": Ensemble(3, 6, leaves=9, missing=True),
    "boosting": Ensemble(6, 2, classes=3),
    "random forest": Ensemble(3, 4, leaves=8, classes=3, dense=True),
}


@pytest.mark.parametrize("name", SMALL)
def test_an_ensemble_is_a_model_that_onnxruntime_takes_and_that_asks_its_input(name: str) -> None:
    model = model_of(SMALL[name], 40)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).normal(size=(40, FEATURES)).astype(np.float32)
    assert len(np.unique(session.run(None, {"x": x})[-1], axis=0)) > 3


def test_trees_have_the_leaves_that_were_asked_for() -> None:
    for ensemble, leaves in ((Ensemble(2, 3), 16), (Ensemble(2, 9, leaves=11), 22)):
        node = onnx.load_from_string(model_of(ensemble, 1)).graph.node[0]
        modes = next(attribute.strings for attribute in node.attribute if attribute.name == "nodes_modes")
        assert list(modes).count(b"LEAF") == leaves


def test_an_ensemble_is_compiled_compared_and_timed() -> None:
    row = measured("small", SMALL["boosting"], 5, rounds=2)
    assert row.error < 1e-5
    assert min(*row.ours, *row.peer) > 0


def test_the_table_has_ratios_of_neighbours() -> None:
    text = table([Row("a", 7, (1e-6, 2e-6, 3e-6), (4e-6, 4e-6, 4e-6), 1e-7)])
    assert "| a | 7 | 2.0 | 4.0 | 0.50 (0.30..0.70) | 1.0e-07 |" in text


def test_an_ensemble_that_is_not_there_is_an_error_that_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    cores = os.sched_getaffinity(0)
    with pytest.raises(SystemExit) as ended:
        main(["--only", "oak"])
    assert os.sched_getaffinity(0) == cores
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert all(name in said for name in ENSEMBLES)
