"""Whether one split of L1 and shared memory is taken for all kernels: by what launches were measured to take."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.measure.apart import Lost
from compiler.devices.cuda.measure.bench import ALTERNATED, ALTERNATIONS, Bench
from compiler.devices.cuda.measure.splits import KERNEL, SOURCE, known_split, measure_splits
from compiler.devices.cuda.target import Gpu, resolve
from compiler.knowledge.records import Records
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double import double
from tests.cuda_double.double import compile_kernels, compiler_there
from tests.kept import kept

TARGET = resolve("cuda", Gpu("double", (9, 0), 132, 50 << 20, 8 << 30, 1.8, "cuda:sm_90/0"))


class Reported:
    """A bench on which a launch takes so many seconds with a split of its own, and with one for all."""

    def __init__(self, each: float, once: float) -> None:
        self.each, self.once, self.closed = each, once, False

    def alternate(self, image: bytes, name: str, shared_bytes: Sequence[int], split: int | None) -> Sequence[float]:
        assert (name, len({*shared_bytes})) == (KERNEL, 4)
        assert image
        assert max(shared_bytes) == TARGET.block_shared_bytes
        return [self.each if split is None else self.once] * 3

    def close(self) -> None:
        self.closed = True


@needs_nvrtc
@pytest.mark.parametrize(
    ("each", "once", "better"), [(3e-6, 1.5e-6, True), (1.5e-6, 1.5e-6, False), (1e-6, 2e-6, False)]
)
def test_one_split_is_better_where_launches_take_less_with_it(each: float, once: float, better: bool) -> None:
    bench = Reported(each, once)
    records = measure_splits(TARGET, bench)
    assert bench.closed
    assert known_split(records, TARGET) is better
    assert known_split([], TARGET) is None
    assert known_split(records[:1], TARGET) is None
    assert known_split(records, resolve("cuda:sm_90")) is None, "nobody measured this one"
    assert len(Records(records)) == 2


@needs_nvrtc
def test_a_gpu_that_does_not_take_the_kernel_is_left_as_it_is() -> None:
    class Gone(Reported):
        def alternate(self, image: bytes, name: str, shared_bytes: Sequence[int], split: int | None) -> Sequence[float]:
            raise Lost("gone")

    assert measure_splits(TARGET, Gone(1.0, 1.0)) == []


@pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")
def test_the_kernel_is_launched_with_each_size_in_turn_and_told_the_split() -> None:
    library = compile_kernels(PREAMBLE + SOURCE.removeprefix(PREAMBLE), "plain", "split.cu")
    image = f"cubin of {library.name}\0".encode()
    file = kept(f"image of {library.name}", ".image", lambda made: made.write_bytes(image))
    sizes = (4, 60 << 10, 16 << 10, TARGET.block_shared_bytes)
    with double.Device(settings=f"module={file}:sm_90:{library}") as device:
        with Bench(0, 0) as bench:
            for split in (None, 100):
                assert len(bench.alternate(image, KERNEL, sizes, split)) == ALTERNATED
        calls = device.calls()
    asked = [call for call in calls if call.startswith("cuFuncSetAttribute")]
    assert len(asked) == 3, "room for the largest twice, the split once"
    assert sum(call.startswith("cuGraphAddKernelNode") for call in calls) == 2 * ALTERNATIONS
