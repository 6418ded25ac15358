"""Which part of a device tiles keep at work, beside the blocks that are launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.devices.kinds import propose
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from tests.compiler.devices.cuda.algorithms.test_attention_tiles import layer_of
from tests.compiler.devices.cuda.algorithms.test_contraction_tiles import product
from tests.compiler.devices.cuda.algorithms.test_excitation_tiles import workloads as excitations
from tests.compiler.devices.cuda.algorithms.test_gemv import classifier
from tests.compiler.devices.cuda.algorithms.test_integer_tiles import product_of
from tests.compiler.devices.cuda.algorithms.test_normalised import case_of as normalised
from tests.compiler.devices.cuda.algorithms.test_recurrent import chained
from tests.compiler.devices.cuda.algorithms.test_separable_tiles import separable
from tests.compiler.devices.cuda.algorithms.test_separable_tiles import workloads as separables
from tests.compiler.devices.cuda.algorithms.test_transpose import port
from tests.compiler.devices.cuda.on_double import workload_of
from tests.compiler.fuse.normalisations import normalisation

H200 = resolve("cuda:sm_90")
SUBJECTS: Mapping[str, Callable[[], Sequence[Workload]]] = {
    "attention": lambda: [layer_of(50, 4, 64)],
    "excitation": lambda: excitations(96, 24, 14)[:1],
    "gemv": lambda: [workload_of(classifier(1, 1000, 512, DType.F16))],
    "integer": lambda: [workload_of(product_of(49, 256, 512))],
    "mma": lambda: [product(49, 256, 512)],
    "normalised": lambda: [workload_of(normalised(normalisation((50,), 96, 128), "fp16"))],
    "recurrent": lambda: [workload_of(case) for case, _ in chained()[:2]],
    "separable": lambda: separables(separable(72, 56, 12), "fp16")[:1],
    "transpose": lambda: [workload_of(port(8, 56, 56, inwards=True))],
    "wgmma": lambda: [product(784, 256, 512)],
    "window": lambda: separables(separable(72, 56, 12), "fp16")[1],
}


@pytest.mark.parametrize("algorithm", SUBJECTS)
def test_the_share_of_a_tile_is_that_of_the_blocks_that_are_launched(algorithm: str) -> None:
    found = [
        (work, option)
        for work in SUBJECTS[algorithm]()
        for option in propose(work, H200, 1, precision="fp16")
        if option.tile.algorithm == algorithm
    ]
    assert found
    for work, option in found[::5]:
        blocks = lower_cuda("k", work, option.tile, H200).grid
        assert option.share == pytest.approx(min(blocks / H200.multiprocessors, 1.0))
