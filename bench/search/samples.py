"""Ten kernels of the zoo's networks, and all the tiles that each may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from bench.zoo import build
from compiler.codegen.calls import workload_of
from compiler.contract import CompileOptions
from compiler.devices.cpu.target import CpuTarget
from compiler.devices.kinds import propose
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from compiler.tuning.proposal import Proposal

ERROR = 1e-5
"""What a tile may add to the error: what one of some twenty layers is granted by default."""
BLOCKS = (1, 4)
"""Register tiles of a block, beside all there are."""
FEWEST_SUMS = 12
"""Vectors of accumulators below which a register tile cannot be fast."""


@dataclass(frozen=True)
class Sample:
    """The first kernel of a network whose shapes contain `shapes`."""

    name: str
    network: str
    shapes: str


SAMPLES: tuple[Sample, ...] = (
    Sample("conv3x3_64_56", "resnet18", "f32[64, 64, 3, 3]"),
    Sample("conv3x3_128_28", "resnet18", "f32[128, 128, 3, 3]"),
    Sample("conv3x3_256_14", "resnet18", "f32[256, 256, 3, 3]"),
    Sample("conv3x3_512_7", "resnet18", "f32[512, 512, 3, 3]"),
    Sample("conv3x3s2_128_28", "resnet18", "f32[128, 64, 3, 3]"),
    Sample("conv1x7_192_17", "inception_v3", "f32[192, 192, 1, 7]"),
    Sample("conv1x1_192_17", "inception_v3", "f32[192, 768, 1, 1]"),
    Sample("conv1x1_576_14", "mobilenet_v2", "f32[576, 96, 1, 1]"),
    Sample("depthwise3x3_144_56", "mobilenet_v2", "f32[144, 1, 3, 3]"),
    Sample("matmul_197_192_768", "vit_tiny", "f32[192, 768]"),
)


def workload(sample: Sample, folder: Path) -> Workload:
    """The sample's kernel as the compiler makes it, with the buffers' layouts.

    Raises LookupError when the network has no such kernel.
    """
    file = folder / f"{sample.network}.onnx"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(build(sample.network), file)
    kernels = fuse(rewrite(load(file, CompileOptions(), OPERATORS).graph).graph).kernels
    for call in kernels.calls:
        found = workload_of(kernels, call)
        if sample.shapes in found.shapes:
            return found
    raise LookupError(f"{sample.network} has no kernel over {sample.shapes}")


def legal(found: Workload, target: CpuTarget) -> tuple[Sequence[Proposal], Sequence[Tile]]:
    """What the algorithms propose, best by the model first; and all tiles.

    These are the proposals, and every register tile and block of a product of two matrices.
    """
    proposals = propose(found, target, 1, ERROR)
    tiles = dict.fromkeys(proposal.tile for proposal in proposals)
    flat = [tile for tile in tiles if tile.algorithm == "contraction" and not tile.extent("register", "y")]
    return proposals, list(dict.fromkeys((*tiles, *_product(flat, target))))


def _product(flat: Sequence[Tile], target: CpuTarget) -> Iterator[Tile]:
    """Every rectangle of accumulators that fits the registers, at blocks of few register tiles and of all."""
    if not flat:
        return
    width = target.vector_floats
    most = {axis: max(tile.extent("block", axis) for tile in flat) for axis in ("m", "n")}
    for vectors in range(1, -(-most["n"] // width) + 1):
        for rows in range(-(-FEWEST_SUMS // vectors), (target.vector_registers - vectors) // vectors + 1):
            register = {"m": rows, "n": vectors * width}
            blocks = {axis: _blocks(register[axis], most[axis]) for axis in ("m", "n")}
            for m in blocks["m"]:
                for n in blocks["n"]:
                    yield _tile({"m": m, "n": n}, register, width, flat[0])


def _blocks(part: int, whole: int) -> list[int]:
    every = -(-whole // part)
    return sorted({min(count, every) * part for count in (*BLOCKS, every)})


def _tile(block: Mapping[str, int], register: Mapping[str, int], width: int, like: Tile) -> Tile:
    levels = (
        Level("block", tuple(block.items())),
        Level("register", tuple(register.items())),
        Level("vector", (("n", width),)),
    )
    return Tile("contraction", levels, like.scopes)
