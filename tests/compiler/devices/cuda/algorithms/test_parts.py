"""Products on GPUs are put together from parts that do not derive from each other."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from compiler.devices.cuda.algorithms import BY_NAME
from compiler.devices.cuda.algorithms.contraction.lowering import Floats
from compiler.devices.cuda.algorithms.image.lowering import ImageFlow, ImageOperands
from compiler.devices.cuda.algorithms.integer import Integers
from compiler.devices.cuda.algorithms.integer_wgmma import WarpgroupIntegers
from compiler.devices.cuda.algorithms.normalised.lowering import NormalisedOperands, RowsThenPipeline
from compiler.devices.cuda.algorithms.quantised import CodedOperands
from compiler.devices.cuda.algorithms.separable.lowering import WindowFlow, WindowOperands
from compiler.devices.cuda.algorithms.sparse.lowering import Bytes, Halves, Kept
from compiler.devices.cuda.algorithms.vector_sparse.lowering import KeptBytes, KeptFloats, NumberedPipeline, PanelSteps
from compiler.devices.cuda.products.costs import Block, Stage
from compiler.devices.cuda.products.lowering import CudaContraction
from compiler.devices.cuda.products.pipeline import Even, Pipeline
from compiler.devices.cuda.products.tiles import Sizes

OPERANDS = (
    *(Floats, Integers, WarpgroupIntegers, Kept, KeptFloats, KeptBytes),
    *(NormalisedOperands, WindowOperands, ImageOperands, CodedOperands),
)
CUTS = (Even, PanelSteps)
FLOWS = (Pipeline, NumberedPipeline, RowsThenPipeline, WindowFlow, ImageFlow)
VALUES = (Halves, Bytes)
COSTS = (Sizes, Stage, Block)


def test_nothing_derives_from_the_skeleton_or_from_a_part() -> None:
    assert "sparse_wgmma_integer" in BY_NAME, "all algorithms are imported"
    for kind in (CudaContraction, *OPERANDS, *CUTS, *FLOWS, *VALUES, *COSTS):
        assert kind.__subclasses__() == []
        assert kind.__bases__ == (object,)


@pytest.mark.parametrize("part", [Even(), Pipeline(), NumberedPipeline(), PanelSteps(), Floats(), Halves()])
def test_parts_are_values(part: object) -> None:
    assert part == type(part)()
    assert hash(part) is not None
    with pytest.raises(FrozenInstanceError):
        part.depth = 1  # type: ignore[attr-defined]
