"""Decision trees in CUDA C++, run on the double."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.algorithms.test_forest import RECORD, case_of, forests
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double, run
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.compiler.ops.forests import grown, samples
from tests.cuda_double.double import Device, compile_kernels

H200 = resolve("cuda:sm_90")


@needs_double
def test_samples_reach_their_leaves() -> None:
    cases = [case_of(trees, x[:3], aggregate, size) for trees, x, aggregate, size in forests()]
    cases.append(case_of(grown(11, 300, 2), samples(11, 2)))
    lowered = [lower_cuda(f"k{at}_forest", case.workload, Tile("routine"), H200) for at, (_, case) in enumerate(cases)]
    module = compile_kernels(PREAMBLE + "\n".join(one.text for one in lowered), "plain")
    for mode in ADVERSARIAL[:2]:
        with Device(module, mode) as device:
            for kernel, (node, case) in zip(lowered, cases, strict=True):
                (want,) = RECORD.reference(node, case.inputs)
                (got,) = run(device, Subject(case, kernel))
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=kernel.text)
    assert len(cases) == 15


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_them_without_spills(architecture: str) -> None:
    cases = [case_of(trees, x, aggregate, size)[1] for trees, x, aggregate, size in forests()]
    lowered = [lower_cuda(f"k{at}_forest", case.workload, Tile("routine"), H200) for at, case in enumerate(cases)]
    compiled = nvrtc.compile_cuda(PREAMBLE + "\n".join(one.text for one in lowered), architecture, "forest.cu")
    assert compiled.kernels.keys() == {one.name for one in lowered}
    assert not [name for name, resources in compiled.kernels.items() if resources.spills], compiled.log
