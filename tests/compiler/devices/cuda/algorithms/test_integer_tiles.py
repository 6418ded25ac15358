"""What the model proposes for products of bytes on a GPU."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from compiler.devices.cuda.algorithms.integer import cuda_integer_tiles
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import CudaTarget, resolve
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda.algorithms.test_contraction import matrix
from tests.compiler.devices.cuda.algorithms.test_integer import SMALL, product
from tests.compiler.devices.cuda.on_double import workload_of

TARGETS = [resolve(f"cuda:sm_{number}") for number in (80, 86, 89, 90)]


def product_of(rows: int, columns: int, depth: int) -> Case:
    return product(np.zeros((rows, depth), np.uint8), np.zeros((depth, columns), np.int8), 3, 0, SMALL)


@pytest.mark.parametrize("target", TARGETS, ids=operator.attrgetter("architecture"))
def test_proposals_fit_the_target_and_are_what_is_launched(target: CudaTarget) -> None:
    for shape in ((7, 24, 40), (196, 256, 1024), (1, 1000, 2048)):
        of = workload_of(product_of(*shape))
        proposals = cuda_integer_tiles(of, target, "fp32")
        assert proposals
        assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
        for proposal in proposals[:5]:
            lowered = lower_cuda("k", of, proposal.tile, target)
            assert lowered.shared_bytes <= target.block_shared_bytes
            assert lowered.block <= 512


def test_a_small_product_at_batch_1_is_split_along_k_to_fill_the_multiprocessors() -> None:
    of = workload_of(product_of(49, 256, 4608))
    target = TARGETS[-1]
    best = cuda_integer_tiles(of, target, "fp32")[0].tile
    assert best.extent("grid", "k") > 1
    assert lower_cuda("k", of, best, target).grid >= target.multiprocessors // 3


def test_what_is_no_product_of_bytes_has_no_tiles() -> None:
    assert cuda_integer_tiles(matrix(16, 16, 16, None).workload, TARGETS[-1], "fp32") == []
