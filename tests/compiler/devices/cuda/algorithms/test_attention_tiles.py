"""What the model proposes for attention on a GPU.

Enough blocks at batch 1, shared keys where there are many queries, nothing that does not fit.
"""

from __future__ import annotations

import operator
from pathlib import Path

import onnx
import pytest

from bench.zoo.catalogue import build
from compiler.contract import CompileOptions
from compiler.devices.cuda.algorithms.attention.geometry import FlashBlocks, as_flash_attention
from compiler.devices.cuda.algorithms.attention.tiles import cuda_attention_tiles
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import CudaTarget, resolve
from compiler.forms.attention import as_attention
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.fuse.storage import with_storage
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from tests.compiler.devices.cuda.algorithms.test_attention import case, layer
from tests.compiler.devices.cuda.on_double import workload_of

TARGETS = [resolve(f"cuda:sm_{number}") for number in (80, 86, 89, 90)]
NAMES = operator.attrgetter("architecture")
PRECISIONS = {"f16": "fp16", "tf32": "tf32", "3xtf32": "fp32"}


def layer_of(tokens: int, heads: int, size: int, arithmetic: str = "f16") -> Workload:
    return workload_of(case(layer(tokens, tokens, size, size, heads), arithmetic))


def best(of: Workload, target: CudaTarget, precision: str = "fp16") -> FlashBlocks:
    return FlashBlocks.of(cuda_attention_tiles(of, target, precision)[0].tile)


@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[-1]], ids=NAMES)
def test_a_short_sequence_at_batch_1_is_divided_into_as_many_blocks_as_there_are(target: CudaTarget) -> None:
    """BERT base at 128 tokens: 12 heads, 8 times 16 queries, for 108 or 132 multiprocessors."""
    found = best(layer_of(128, 12, 64), target)
    assert found.queries == 16
    assert found.key_warps >= 2


def test_warps_share_the_keys_of_a_long_sequence() -> None:
    found = best(layer_of(1024, 16, 64), TARGETS[-1])
    assert found.query_warps >= 4
    assert found.stages >= 2


@pytest.mark.parametrize("target", TARGETS, ids=NAMES)
@pytest.mark.parametrize("arithmetic", PRECISIONS)
def test_all_proposals_fit_the_target_and_come_cheapest_first(target: CudaTarget, arithmetic: str) -> None:
    for tokens, size in ((16, 8), (77, 80), (197, 64), (600, 128)):
        of = layer_of(tokens, 3, size, arithmetic)
        form = as_flash_attention(of)
        proposals = cuda_attention_tiles(of, target, PRECISIONS[arithmetic])
        assert form is not None
        assert proposals
        assert len({str(proposal.tile) for proposal in proposals}) == len(proposals)
        assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
        for proposal in proposals:
            blocks = FlashBlocks.of(proposal.tile)
            assert blocks.tile(proposal.tile.algorithm) == proposal.tile
            assert blocks.shared_bytes(form) <= target.block_shared_bytes
            assert blocks.threads <= 256


def test_fp32_stays_accurate_and_other_precisions_may_round_operands() -> None:
    plain = layer_of(64, 2, 64, "tf32")
    algorithms = {
        precision: {one.tile.algorithm for one in cuda_attention_tiles(plain, TARGETS[-1], precision)}
        for precision in ("fp32", "tf32", "fp16", "bf16")
    }
    rounded = {"attention_tf32"}
    assert algorithms == {"fp32": {"attention_3xtf32"}, "tf32": rounded, "fp16": rounded, "bf16": rounded}
    short = cuda_attention_tiles(layer_of(64, 2, 64), TARGETS[-1], "fp16")
    assert {one.tile.algorithm for one in short} == {"attention"}


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ("bert_base", {"blocks": 1, "vocabulary": 500}),
        ("gpt2_small", {"blocks": 1, "vocabulary": 500}),
        ("vit_tiny", {}),
    ],
)
def test_attention_of_the_zoo_in_fp16_is_taken_by_16_byte_copies(
    network: str, options: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(build(network, **options), path)
    fused = fuse(rewrite(load(path, CompileOptions(), OPERATORS).graph).graph)
    kernels = with_storage(fused.kernels, DType.F16)
    calls = [call for call in kernels.calls if as_attention(call.kernel) is not None]
    assert calls
    apart = [refusal.reason for refusal in fused.refusals if refusal.step == "attention"]
    # Only the class token of ViT's last block is asked for, one row of queries: of a tile of 16 rows the rest would be
    # padding.
    assert apart == (["one row does not repay packing the keys"] if network == "vit_tiny" else [])
    assert sum("Softmax" in call.kernel.family for call in kernels.calls) == len(calls) + len(apart)
    for call in calls:
        of = cuda_workload_of(kernels, call)
        tiles = cuda_attention_tiles(of, TARGETS[-1], "fp16")
        assert tiles[0].tile.algorithm == "attention"
        text = lower_cuda("kernel", of, tiles[0].tile, TARGETS[-1]).text
        assert text.count("tw_cp_async_16(") == 2
        assert "*(const unsigned *)(t_x0 + " in text
