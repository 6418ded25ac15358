"""A module of PyTorch and what its exporter made of it, for machines without PyTorch.

`python -m tests.tilewright.torch_export` records it again: the ONNX file, inputs, and what the module gives for them.
"""

from __future__ import annotations

import base64
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

RECORDED = Path(__file__).with_name("torch_export.json")
SIZES = {"batch": {"min": 1, "max": 4}}


def module() -> Any:
    """A convolution with batch normalisation, then attention and a multilayer perceptron over its pixels; in eval()."""
    torch: Any = import_module("torch")
    nn = torch.nn

    class Module(torch.nn.Module):  # type: ignore[misc]
        """What is exported."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.SiLU())
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.norm, self.wide, self.last = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 5)

        def forward(self, image: Any) -> Any:
            """Logits [batch, 5] of images [batch, 3, 8, 8]."""
            tokens = self.stem(image).flatten(2).transpose(1, 2)
            tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
            return self.last(nn.functional.gelu(self.wide(self.norm(tokens)))).mean(1)

    torch.manual_seed(0)
    made = Module()
    made(torch.randn(4, 3, 8, 8))  # statistics of the batch normalisation that are not those at the beginning
    return made.eval()


def example(batch: int = 2) -> Any:
    """Images."""
    torch: Any = import_module("torch")
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(batch))


def batches() -> Any:
    """`dynamic_shapes` for SIZES."""
    return ({0: import_module("torch").export.Dim("batch", **SIZES["batch"])},)


def recorded() -> tuple[bytes, list[tuple[np.ndarray, np.ndarray]]]:
    """The ONNX file, and inputs with what the module gave for them."""
    kept = json.loads(RECORDED.read_text())
    cases = [[np.asarray(one, np.float32) for one in case] for case in kept["cases"]]
    return base64.b64decode(kept["onnx"]), [(given, found) for given, found in cases]


def main() -> None:
    """Record."""
    torch, made = import_module("torch"), module()
    model = torch.onnx.export(made, (example(),), dynamo=True, dynamic_shapes=batches()).model_proto
    for one in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.value_info,
        *model.graph.input,
        *model.graph.output,
    ):
        del one.metadata_props[:]  # they hold paths
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    onnx.checker.check_model(model)
    with torch.no_grad():
        cases = [[example(batch).tolist(), made(example(batch)).tolist()] for batch in (1, 3)]
    text = base64.b64encode(model.SerializeToString()).decode()
    RECORDED.write_text(json.dumps({"torch": torch.__version__, "onnx": text, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
