"""What launches cost as measured facts: from chains and forks to the figures that predictions rest on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compiler.devices.cuda.measure.apart import Lost
from compiler.devices.cuda.measure.bench import ALTERNATED, FORKS, Bench
from compiler.devices.cuda.measure.launches import (
    FEW,
    KERNEL,
    LEAST_NS,
    MANY,
    SOURCE,
    describe,
    known_launches,
    measure_launches,
)
from compiler.devices.cuda.model import BLOCK_NS
from compiler.devices.cuda.target import Gpu, resolve
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double import double
from tests.cuda_double.double import compile_kernels, compiler_there
from tests.kept import kept

TARGET = resolve("cuda", Gpu("double", (9, 0), 132, 50 << 20, 8 << 30, 1.8, "cuda:sm_90/0"))


class Reported:
    """A bench on which launches cost what the model says they do."""

    def __init__(self, launch: float, cross: float, fan_in: float) -> None:
        self.costs, self.closed = (launch, cross, fan_in), False

    def forks(self, image: bytes, name: str, width: int) -> Sequence[float]:
        assert name == KERNEL
        assert image
        launch, cross, fan_in = self.costs
        return [1e-9 * (2 * (launch + BLOCK_NS) + (2 * cross + (width - 2) * fan_in if width > 1 else 0))] * 3

    def close(self) -> None:
        self.closed = True


@needs_nvrtc
@pytest.mark.parametrize("costs", [(900.0, 1500.0, 40.0), (2000.0, 0.0, 0.0)])
def test_the_figures_are_those_that_launches_were_measured_by(costs: tuple[float, float, float]) -> None:
    bench = Reported(*costs)
    records = measure_launches(TARGET, bench)
    assert bench.closed
    found = known_launches(records, TARGET)
    assert list(found) == ["launch_ns", "cross_ns", "fan_in_ns"]
    assert list(found.values()) == pytest.approx(costs, abs=1e-3)
    assert known_launches(records[:2], TARGET) == known_launches([], TARGET) == {}
    assert known_launches(records, resolve("cuda:sm_90")) == {}, "nobody measured this one"


@needs_nvrtc
def test_noise_makes_no_launch_free_and_no_cost_negative() -> None:
    class Odd(Reported):
        def forks(self, image: bytes, name: str, width: int) -> Sequence[float]:
            return [1e-6 / width]

    assert list(known_launches(measure_launches(TARGET, Odd(0, 0, 0)), TARGET).values()) == [LEAST_NS, 0, 0]


@needs_nvrtc
def test_a_gpu_that_does_not_take_the_kernel_keeps_its_estimates() -> None:
    class Gone(Reported):
        def forks(self, image: bytes, name: str, width: int) -> Sequence[float]:
            raise Lost("gone")

    assert measure_launches(TARGET, Gone(0, 0, 0)) == []
    assert "did not take the kernel" in describe({})


@pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")
def test_forks_are_launches_beside_each_other_between_two_that_are_not() -> None:
    library = compile_kernels(SOURCE, "checked", "launches.cu")
    image = f"cubin of {library.name}\0".encode()
    file = kept(f"image of {library.name}", ".image", lambda made: made.write_bytes(image))
    for width in (1, FEW, MANY):
        with double.Device(settings=f"module={file}:sm_90:{library}") as device:
            with Bench(0, 0) as bench:
                assert len(bench.forks(image, KERNEL, width)) == ALTERNATED
            calls = device.calls()
        assert sum(call.startswith("cuGraphAddKernelNode") for call in calls) == 1 + FORKS * (width + 1)
        early = sum(call.startswith("cuGraphAddDependencies") for call in calls)
        assert early == FORKS * (2 if width == 1 else width), "only a launch with one predecessor begins early"
