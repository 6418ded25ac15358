from __future__ import annotations

import pytest

from compiler.codegen.calls import workload_of
from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.algorithms.quantised_gemv import ROUNDED_ERROR
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.emit.program import kernel_sources
from compiler.devices.cpu.target import this_machine
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, Library, built
from tests.compiler.long_sums import SUMS, Subject

BOUNDS = {DType.F32: 2e-5, DType.BF16: 2e-4}
"""Of errors relative to the largest value. Products of bf16 add pairs in fp32 one after the other, LONGEST at most."""
LENGTHS = (1 << 10, 3 * 4099, 1 << 15, (1 << 16) + 1, 3 * 32771, 1 << 20)


def errors(subject: Subject, precision: str) -> dict[str, float]:
    """By algorithms of its calls, for each way to take one of those that a job of this precision asks for each call.

    Those that round activations are left out: what they lose is said of them.
    """
    target, calls = this_machine(), subject.kernels.calls
    workloads = [workload_of(subject.kernels, call) for call in calls]
    able = [
        {
            one.tile.algorithm: one.tile
            for one in reversed(legal_tiles(workload, target, 1, precision))
            if one.error < ROUNDED_ERROR
        }
        for workload in workloads
    ]
    lowered = [
        [lower(f"k{at}_{name}", workload, tile, target) for name, tile in tiles.items()]
        for at, (workload, tiles) in enumerate(zip(workloads, able, strict=True))
    ]
    flat = [one for each in lowered for one in each]
    library = Library(flat, built(kernel_sources(flat), target))
    found = {}
    for way in range(max(map(len, lowered))):
        taken = [min(way, len(each) - 1) for each in lowered]

        def run(at: int, case: Case, taken: list[int] = taken) -> tuple:  # type: ignore[type-arg]
            return library.run(flat.index(lowered[at][taken[at]]), case)

        names = ", ".join([*tiles][which] for tiles, which in zip(able, taken, strict=True))
        found[names] = subject.error(run)
    return found


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("name", SUMS)
def test_the_error_of_a_sum_of_one_sign_does_not_grow_with_its_length(name: str, dtype: DType) -> None:
    if name == "Conv" and dtype is DType.F32 and this_machine().vector_floats == 8:
        pytest.xfail("`window` with vectors of eight: 4.5e-5 at 32,768 products of one sign")
    for length in LENGTHS:
        found = errors(Subject.of(name, length, dtype), "fp32" if dtype is DType.F32 else "bf16")
        assert max(found.values()) <= BOUNDS[dtype], (length, found)
