"""Results of candidates beside those of plain loops, on the double."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest

from compiler.devices.cuda.algorithms.loops import LOOPS
from compiler.devices.cuda.candidates import Candidate
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.device import built
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.measure.bench import Subject
from compiler.devices.cuda.measure.machine import BuiltKernel, CudaMachine
from compiler.devices.cuda.measure.results import Results
from compiler.devices.cuda.nvrtc import Resources
from compiler.devices.cuda.target import Gpu, resolve
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.measure.results import distance
from tests.compiler.devices.cuda.on_double import needs_double
from tests.cuda_double.double import MODES, Device, compile_kernels
from tests.gpu import kernels

TARGET = resolve("cuda", Gpu("double", (9, 0), 132, 50 << 20, 8 << 30, 1.8, "cuda:sm_90/0"))


def subject_of(lowered: CudaLowered, workload: Workload) -> tuple[Subject, Mapping[int, Packing]]:
    """As a machine hands it to the bench."""
    kernel: BuiltKernel = built(Candidate(lowered, b"", Resources(32, 0, 0, 0, 0)), workload)
    return CudaMachine(TARGET, lambda trials, stop_requested: [])._subject(workload, kernel), kernel.packings


@dataclass(frozen=True)
class OnDouble:
    """What a bench computes, by kernels of a module that is loaded."""

    device: Device

    def compute(self, subject: Subject, operands: Sequence[tuple[np.ndarray, int]]) -> list[np.ndarray]:
        memories = [self.device.upload(array) for array, _ in operands]
        pointers = [np.uint64(at.address + begin) for at, (_, begin) in zip(memories, operands, strict=True)]
        if subject.scratch_bytes:
            pointers.append(np.uint64(self.device.allocate(subject.scratch_bytes).address))
        if subject.counters:
            pointers.append(np.uint64(self.device.upload(np.zeros(subject.counters, np.uint32)).address))
        shape = [subject.grid], [subject.block], pointers, subject.shared_bytes, [subject.cluster]
        self.device.launch(subject.name, *shape)
        return [
            self.device.download(at, array.shape, np.uint8)
            for at, (array, _), operand in zip(memories, operands, subject.operands, strict=True)
            if operand.written
        ]


@needs_double
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_right_tiles_of_every_algorithm_pass_and_broken_ones_do_not(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "NETWORKS", (("tiny_inception", {}), ("tiny_transformer", {}), ("tiny_mobile", {})))
    monkeypatch.setattr(kernels, "MOST_POINTS", 2**16)
    monkeypatch.setattr(kernels, "TILES", 2)
    kernels._workloads.cache_clear()
    try:
        subjects = list(islice(kernels.subjects(TARGET, precision), 50))
    finally:
        kernels._workloads.cache_clear()
    loops = {
        subject.workload: lower_cuda(f"r{at}", subject.workload, proposals[0].tile, TARGET)
        for at, subject in enumerate(subjects)
        if (proposals := LOOPS.tiles(subject.workload, TARGET, "fp32"))
    }
    source = "\n".join([one.text for one in loops.values()] + [subject.lowered.text for subject in subjects])
    module = compile_kernels(PREAMBLE + source)
    judged = 0
    with Device(module, MODES[6]) as device:
        bench = OnDouble(device)
        results = Results(lambda workload: subject_of(loops[workload], workload) if workload in loops else None)
        for at, subject in enumerate(subjects):
            made = subject_of(subject.lowered, subject.workload)
            assert results.fault(bench, subject.workload, str(at), subject.tile, *made) == "", subject
            expected = results._expected.get(str(at))
            if expected is not None and all(np.isfinite(one).all() and np.linalg.norm(one) for one in expected):
                judged += 1
                short = replace(made[0], grid=made[0].grid - made[0].cluster)  # one block does nothing
                if short.grid and subject.lowered.cluster == 1 and not subject.lowered.counters:
                    assert results.fault(bench, subject.workload, str(at), subject.tile, short, made[1]), subject
    assert judged > 20


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([3.0, 5.0], [3.0, 4.0], 0.2),
        ([np.inf, 1.0], [np.inf, 1.0], 0.0),
        ([np.nan, 1.0], [2.0, 1.0], np.inf),
        ([0.0], [0.0], 0.0),
    ],
)
def test_results_are_as_far_apart_as_the_norm_of_their_difference(
    one: list[float], other: list[float], expected: float
) -> None:
    assert distance(np.array(one), np.array(other)) == pytest.approx(expected)
