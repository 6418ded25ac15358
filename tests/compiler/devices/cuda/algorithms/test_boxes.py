"""Boxes chosen one after another in CUDA C++, run on the double."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.ir.graph import Node
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.algorithms.test_boxes import RECORD, crowded, drawn, select, touching
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, needs_double, run
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Device, Mode, compile_kernels

H200 = resolve("cuda:sm_90")
Forms = list[tuple[Node, list[Case]]]


def check(forms: Forms, flavour: str = "plain", modes: tuple[Mode, ...] = ADVERSARIAL) -> None:
    """Every case of a form by one kernel, against the reference."""
    lowered = [
        lower_cuda(f"k{at}_boxes", cases[0].workload, Tile("routine"), H200) for at, (_, cases) in enumerate(forms)
    ]
    module = compile_kernels(PREAMBLE + "\n".join(one.text for one in lowered), flavour)
    for mode in modes:
        with Device(module, mode) as device:
            for kernel, (node, cases) in zip(lowered, forms, strict=True):
                for case in cases:
                    expected = RECORD.reference(node, case.inputs)
                    for got, want in zip(run(device, Subject(case, kernel)), expected, strict=True):
                        np.testing.assert_array_equal(got, want, err_msg=str(case.inputs))


def large() -> Forms:
    """More boxes than threads."""
    return [(node, [case]) for node, case in [select(crowded(1, 700), 0, 40, True, 690)]]


@needs_double
def test_boxes_are_chosen_as_the_reference_chooses_them() -> None:
    check([*drawn(12), *large()])


@needs_double
@pytest.mark.parametrize("centred", [0, 1])
def test_at_equality_both_boxes_are_kept(centred: int) -> None:
    found = [select(touching(seed, centred)[0], centred, 2, True, 2) for seed in range(60)]
    check([(found[0][0], [case for _, case in found])], modes=ADVERSARIAL[:1])


@needs_double
def test_threads_do_not_race() -> None:
    check(
        [*list(drawn(2))[:2], *((node, [case]) for node, case in [select(crowded(2, 70), 0, 9, True, 70)])],
        "checked",
        MODES[4:5],
    )


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_them_without_spills(architecture: str) -> None:
    forms = [*drawn(1), *large()]
    lowered = [
        lower_cuda(f"k{at}_boxes", cases[0].workload, Tile("routine"), H200) for at, (_, cases) in enumerate(forms)
    ]
    compiled = nvrtc.compile_cuda(PREAMBLE + "\n".join(one.text for one in lowered), architecture, "boxes.cu")
    assert compiled.kernels.keys() == {one.name for one in lowered}
    assert not [name for name, resources in compiled.kernels.items() if resources.spills], compiled.log
