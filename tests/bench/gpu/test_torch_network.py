"""PyTorch's side of the race, on a CPU, where PyTorch is installed."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from bench.gpu.subjects import inputs_of
from bench.gpu.translation import translate
from bench.zoo import build

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tiny_cnn", {}),
        ("tiny_inception", {}),
        ("tiny_mobile", {}),
        ("tiny_transformer", {}),
        ("bert_base", {"blocks": 1, "vocabulary": 100, "seq": 16}),
        ("nasnet_a_mobile", {"size": 64}),
        ("randwire_small", {"size": 64}),
    ],
)
def test_a_module_computes_what_onnx_runtime_does(name: str, options: dict[str, int], channels_last: bool) -> None:
    from bench.gpu.torch_network import network

    model = build(name, **options)
    program, given = translate(model), inputs_of(model, 4)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    module = network(program, torch.float32, "cpu", channels_last=channels_last)
    with torch.inference_mode():
        found = module(*(torch.from_numpy(given[name]) for name in program.inputs))
    for one, other in zip(found, session.run(list(program.outputs), given), strict=True):
        assert np.linalg.norm(one.numpy() - other) <= 1e-5 * np.linalg.norm(other)
