from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from bench import light as light_module
from bench.light import LIGHT, NotTheLightModel, light

QUICK = ["light_squeezenet", "light_shufflenet", "light_inception_v1", "light_resnet50", "light_densenet121"]


@pytest.mark.parametrize("name", QUICK)
def test_a_light_model_tells_its_classes_apart(name: str) -> None:
    model = light(name)
    onnx.checker.check_model(model)
    assert not any(node.op_type == "ConstantOfShape" for node in model.graph.node)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    first, second = (
        session.run(None, {image.name: np.random.default_rng(seed).standard_normal(image.shape, dtype=np.float32)})[0]
        for seed in (1, 2)
    )
    assert np.isfinite(first).all()
    assert np.unique(first).size > 900
    assert np.abs(first - second).max() > 0.01 * np.abs(first).max()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    one, again, other = (light("light_squeezenet", seed).SerializeToString(deterministic=True) for seed in (1, 1, 2))
    assert one == again
    assert one != other


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _ in LIGHT if name not in QUICK])
def test_every_other_light_model_is_valid(name: str) -> None:
    onnx.checker.check_model(light(name))


def test_an_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(NotTheLightModel, match="no light model 'resnet'; there are light_bvlc_alexnet, "):
        light("resnet")


def test_another_file_under_the_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light_module, "LIGHT", (("light_squeezenet", "0" * 64),))
    with pytest.raises(NotTheLightModel, match="is not the one recorded"):
        light("light_squeezenet")
