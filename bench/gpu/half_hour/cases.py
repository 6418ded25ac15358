"""The networks of `first`: each tries a way through the product that no other tries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """A network compiled for the GPU under the model's tiles, and what its row decides.

    `network` is a name of `bench.gpu.subjects.model_file`; `options` are those of the job beside target and precision.
    """

    key: str
    network: str
    decides: str
    precision: str = "fp16"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> str:
        """The network of the zoo that it is made of."""
        return self.network.partition("-")[0]


PERSISTENT: Mapping[str, Any] = {"scheduler": "persistent"}
PARTS: Mapping[str, Any] = {"devices": ["cpu", "cuda:0"], "objective": "throughput"}

CASES: tuple[Case, ...] = (
    Case("squeezenet1_0 fp16", "squeezenet1_0", "a whole network: graph, loader, tensors in place"),
    Case("squeezenet1_0 persistent", "squeezenet1_0", "resident blocks: progress, and no race", options=PERSISTENT),
    Case("bert_base fp16", "bert_base", "attention; weights beyond L2"),
    Case("resnet50 fp16", "resnet50", "clusters and wgmma"),
    Case("resnet50-2of4 fp16", "resnet50-2of4", "sparse tensor cores"),
    Case("bert_base-int4 fp16", "bert_base-int4", "weights of few bits, made floats in registers"),
    Case("squeezenet1_0-int8", "squeezenet1_0-int8", "products of bytes"),
    Case("squeezenet1_0 auto", "squeezenet1_0", "fp32 beside fp16 within a plan", "auto"),
    Case("decoder-64 fp32", "decoder-64", "a loop that the host decides", "fp32"),
    Case("squeezenet1_0 in parts", "squeezenet1_0", "cores beside a GPU with two queues", "fp32", PARTS),
    Case("inception_v3 fp16", "inception_v3", "streams, and launches that calls share"),
)
"""The most worth first."""
