"""Kernels whose packed weights say where others lie are timed, and judged, on such weights alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from compiler.codegen.calls import operands_of
from compiler.devices.cuda.algorithms.loops import LOOPS
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.codegen.sparse_panels import SparsePanels
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.measure.bench import ALIGNMENT, OUTPUTS, Operand, Slabs, Subject, places
from compiler.devices.cuda.measure.driver import Device
from compiler.devices.cuda.measure.machine import BuiltKernel, CudaMachine
from compiler.devices.cuda.target import Gpu, resolve
from compiler.encodings.blocks import Blocks
from compiler.encodings.encoding import DENSE
from compiler.encodings.two_of_four import TwoOfFour
from compiler.ir.machine import Setting, Trial, Workload
from compiler.ir.packing import Panels, Steered
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.trace import StopRequest, never_stops
from tests.compiler.devices.cuda.algorithms.test_contraction_tiles import product
from tests.compiler.devices.cuda.algorithms.test_integer import SMALL
from tests.compiler.devices.cuda.algorithms.test_integer import product as byte_product
from tests.compiler.devices.cuda.on_double import workload_of
from tests.cuda_double.double import build_runtime, compile_kernels, compiler_there
from tests.kept import kept

TARGET = resolve("cuda", Gpu("double", (9, 0), 4, 64 * 1024, 8 << 30, 1.8, "cuda:sm_90/0"))
WORKLOAD = replace(product(16, 40, 136), encodings=((DENSE,), (DENSE, TwoOfFour.of(0))))
LEVELS = (Level("block", (("m", 16), ("n", 32), ("k", 64), ("stages", 2))), Level("warp", (("m", 16), ("n", 16))))
TILE = Tile("sparse", LEVELS)
METADATA = ("(acc[i][j], b[i], a[j], metadata[i])", "(acc[i][j], b[i], a[j], 0xeeeeeeeeu)")
OF_VECTORS = replace(WORKLOAD, encodings=((DENSE,), (DENSE, Blocks.of(1, 0, 8, (24, 32, 40)))))
GROUPED = (Level("block", (("m", 16), ("n", 32), ("k", 32), ("stages", 2), ("group", 8))), LEVELS[1])
OF_BYTES = replace(
    workload_of(byte_product(np.zeros((16, 136), np.uint8), np.zeros((136, 40), np.int8), 3, 0, SMALL)),
    encodings=((DENSE,), (DENSE, TwoOfFour.of(0)), (DENSE,), (DENSE,)),
)

BYTE_LEVELS = (Level("block", (("m", 16), ("n", 32), ("k", 64), ("stages", 2), ("group", 8))), LEVELS[1])
BYTE_VECTORS = replace(OF_BYTES, encodings=((DENSE,), (DENSE, Blocks.of(1, 0, 8, (24, 32, 40))), (DENSE,), (DENSE,)))
LISTED = ("kept_groups)[i] = numbers[i]", "kept_groups)[i] = 0")


def built(lowered: CudaLowered, image: bytes, workload: Workload) -> BuiltKernel:
    return BuiltKernel(
        image,
        lowered.name,
        lowered.grid,
        lowered.block,
        operands_of(workload, lowered.packings),
        lowered.shared_bytes,
        packings=lowered.packings,
    )


@pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")
@pytest.mark.parametrize("mistaken", [False, True])
@pytest.mark.parametrize(
    ("workload", "tile", "right", "wrong"),
    [
        (WORKLOAD, TILE, *METADATA),
        (OF_BYTES, Tile("sparse_integer", LEVELS), *METADATA),
        (OF_VECTORS, Tile("sparse_mma", GROUPED), *LISTED),
        (BYTE_VECTORS, Tile("sparse_mma_integer", BYTE_LEVELS), *LISTED),
    ],
    ids=["floats", "bytes", "vectors", "vectors of bytes"],
)
def test_sparse_weights_are_measured_beside_plain_loops(
    monkeypatch: pytest.MonkeyPatch, workload: Workload, tile: Tile, right: str, wrong: str, mistaken: bool
) -> None:
    """A wrong one is dropped; metadata that the hardware does not define would be a fault of the double."""
    sparse = lower_cuda("sparse", workload, tile, TARGET)
    assert right in sparse.text
    sparse = replace(sparse, text=sparse.text.replace(right, wrong if mistaken else right))
    loops = lower_cuda("loops", workload, LOOPS.tiles(workload, TARGET, "fp32")[0].tile, TARGET)
    library = compile_kernels(PREAMBLE + sparse.text + loops.text, "plain", "specimens.cu")
    image = f"cubin of {library.name}\0".encode()
    file = kept(f"image of {library.name}", ".image", lambda made: made.write_bytes(image))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_runtime().parent))
    monkeypatch.setenv("TW_DOUBLE", f"module={file}:sm_90:{library}")

    def build(trials: Sequence[Trial], *, stop_requested: StopRequest = never_stops) -> list[BuiltKernel | None]:
        return [built(sparse, image, workload) for _ in trials]

    notices: list[str] = []
    machine = CudaMachine(
        replace(TARGET, l2_bytes=4096),
        build,
        setting=Setting("memory"),
        notice=notices.append,
        reference=lambda workload: built(loops, image, workload),
        samples=3,
        sample_s=4e-6,
        warm_s=0.0,
    )
    with machine:
        records = list(machine.measure([Trial(workload, "a", tile, 1)], 60.0))
    assert (len(records), len(notices)) == ((0, 1) if mistaken else (1, 0)), notices


def test_each_copy_of_a_specimen_is_whole() -> None:
    packing = next(iter(lower_cuda("k", WORKLOAD, TILE, TARGET).packings.values()))
    assert isinstance(packing, Steered)
    operand = Operand(DType.U8, packing.elements, rotates=True, steered=packing)
    subject = Subject(b"", "k", 1, 32, (operand,), cold_bytes=5 * operand.bytes)
    copies, sizes = places(subject)
    assert sizes == {packing: len(copies) * operand.bytes}
    assert [copy[0] for copy in copies] == [(packing, at * operand.bytes) for at in range(5)]
    assert operand.bytes == -(-np.asarray(packing.specimen()).size // ALIGNMENT) * ALIGNMENT


class Played:
    """Memory of no device: what was written and whether it was given back."""

    def __init__(self, size: int) -> None:
        self.size, self.address, self.closed, self.written = size, 0, False, np.zeros(0, np.uint8)

    def write(self, array: np.ndarray) -> None:
        self.written = array

    def repeat(self, first: int) -> None:
        assert first == self.written.size

    def clear(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class PlayedDevice:
    def __init__(self) -> None:
        self.given: list[Played] = []

    def allocate(self, size: int) -> Played:
        self.given.append(Played(size))
        return self.given[-1]


def test_specimens_that_are_asked_for_no_more_are_given_back() -> None:
    device = PlayedDevice()
    slabs = Slabs(cast(Device, device), 0)
    first, second = (
        SparsePanels(Panels((0,), 64, columns, 0, ((64, columns), (columns, 1))), 16, 64, DType.F16)
        for columns in (16, 48)
    )
    slabs.reserve({first: 4096, OUTPUTS: 512})
    slabs.reserve({first: 4096, OUTPUTS: 512})
    slabs.reserve({second: 8192})
    assert [(memory.size, memory.closed) for memory in device.given] == [(4096, True), (512, False), (8192, False)]
    for memory, packing in ((device.given[0], first), (device.given[2], second)):
        np.testing.assert_array_equal(memory.written[: packing.elements], packing.specimen())
