"""Scans, scatters and recurrent layers by the generic CUDA lowering, on the double, by teams of every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.loops.team import TEAMS
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.codegen.scalars import HALVES
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms.test_loops import SCANS, scans
from tests.compiler.devices.cpu.algorithms.test_recurrent import CODED, layers
from tests.compiler.devices.cpu.algorithms.test_recurrent import case_of as layer_case
from tests.compiler.devices.cpu.library import Case, draws
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, case_of, needs_double, run, stored_as
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Device, Fault, Mode, compile_kernels

H200 = resolve("cuda:sm_90")


def subjects(cases: Sequence[Case], teams: Sequence[int]) -> list[Subject]:
    """The cases lowered, each by the next of `teams`; 0 lets the lowering choose."""
    found = []
    for number, case in enumerate(cases):
        tile = Tile("sequential", (Level("block", (("team", teams[number % len(teams)]),)),))
        found.append(Subject(case, lower_cuda(f"k{number}_case", case.workload, tile, H200)))
    return found


def check(
    cases: Sequence[Case], teams: Sequence[int] = (0,), flavour: str = "plain", modes: Sequence[Mode] = ADVERSARIAL
) -> None:
    on_double.check(subjects(cases, teams), flavour, modes)


@needs_double
def test_scans_carry_their_state_from_step_to_step_by_every_team() -> None:
    cases = draws(scans(), 60)
    check(cases, (0, *TEAMS))
    check(cases, (1, 32, 0))


@needs_double
def test_scans_of_16_bit_elements_keep_their_state_in_fp32() -> None:
    cases = [
        replace(case, buffers=tuple(stored_as(buffer, HALVES[number % 2]) for buffer in case.buffers))
        for number, case in enumerate(draws(scans(), 40))
    ]
    check(cases, (0, *TEAMS))


@needs_double
def test_scans_do_not_race() -> None:
    cases = [case_of(text.format(a=4, b=5, c=3, d=40)) for text in SCANS.values()]
    for team in (1, 32, 64 * 2):
        check(cases, (team,), "checked", MODES[4:5])


SCATTERED = """
kernel Scatter(in x: f32[{a}, {c}], in at: i64[{b}], in u: f32[{b}, {c}]; out y: f32[{a}, {c}])
  for l:{c}
    for i:{a}: y[i, l] = x[i, l]
    for seq j:{b}: y[[mod(at[j], {a}:i64) in 0..{last_a}], l] = add(y[[mod(at[j], {a}:i64) in 0..{last_a}], l], u[j, l])
"""
MIRRORED = """
kernel Mirror(in x: f32[{a}, {c}]; out y: f32[{a}, {c}], out z: f32[{a}, {c}])
    for seq i:{a}, l:{c}: y[i, l] = add(x[i, l], where(gt(#(i):i64, 0:i64), y[i - 1, {last_c} - l], 0.5:f32))
    for i:{a}, l:{c}: z[i, l] = mul(y[i, l], y[{last_a} - i, l])
"""
RUNNING_NORM = """
kernel Norm(in x: f32[{a}, {c}]; temp s: f32[]; out y: f32[{a}, {c}])
  for seq i:{a}
    s[] = sum<f32> l:{c} . mul(x[i, l], where(gt(#(i):i64, 0:i64), s[], 1.0:f32))
    for l:{c}: y[i, l] = div(x[i, l], add(abs(s[]), 1.0:f32))
"""
STEP_BY_STEP = """
kernel Norm(in x: f32[{a}, {c}]; temp s: f32[]; out y: f32[{a}, {c}])
  for seq i:{a}
    s[] = sum<f32> l:{c} . mul(x[i, l], x[i, l])
    for l:{c}: y[i, l] = div(x[i, l], add(s[], 1.0:f32))
"""
STEPS = (SCATTERED, MIRRORED, RUNNING_NORM, STEP_BY_STEP)


def steps_of_blocks(a: int, b: int, c: int) -> list[Case]:
    return [case_of(text.format(a=a, b=b, c=c, last_a=a - 1, last_c=c - 1)) for text in STEPS]


@needs_double
@pytest.mark.parametrize("team", [0, 1, 32, 128])
def test_threads_that_meet_from_step_to_step_wait_for_one_another(team: int) -> None:
    cases = [*steps_of_blocks(3, 5, 33), *steps_of_blocks(9, 2, 150), *steps_of_blocks(2, 4, 1)]
    check(cases, (team,))
    check(cases[:4], (team,), "checked", MODES[4:5])


@needs_double
def test_a_missing_barrier_between_steps_is_found() -> None:
    case = steps_of_blocks(5, 2, 70)[1]
    (subject,) = subjects([case], (64 * 2,))
    text = subject.lowered.text
    broken = text.replace("__syncthreads();", "", 1)
    assert text != broken
    module = compile_kernels(PREAMBLE + broken, "checked", "mirror.cu")
    with Device(module, MODES[6]) as device, pytest.raises(Fault, match="race"):
        run(device, subject)


@needs_double
def test_recurrent_layers_of_every_form_mean_what_the_reference_says() -> None:
    found = [layer_case(layer) for layer in (*draws(layers(), 24), *draws(layers((CODED,)), 8))]
    lowered = subjects([case for case, _ in found], (0, 32, 128))
    module = compile_kernels(PREAMBLE + "\n".join(subject.lowered.text for subject in lowered), "plain")
    with Device(module, MODES[2]) as device:
        for subject, (_, wanted) in zip(lowered, found, strict=True):
            for got, want in zip(run(device, subject), wanted, strict=False):
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=str(subject))
    check([case for case, _ in found[:4]], (64 * 2,), "checked", MODES[4:5])


def test_points_that_never_meet_have_a_team_each() -> None:
    (running,) = subjects([case_of(SCANS["a running sum"].format(a=9, b=1000))], (0,))
    assert (running.lowered.block, running.lowered.grid) == (128, 8)
    batch = case_of(SCANS["a recurrent layer whose batch is shared"].format(a=9, b=6, c=3, d=400))
    assert subjects([batch], (0,))[0].lowered.grid == 6


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_them_without_spills(architecture: str) -> None:
    cases = [*draws(scans(), 20), *steps_of_blocks(9, 2, 150), *(layer_case(layer)[0] for layer in draws(layers(), 8))]
    all = subjects(cases, (0, 1, 32, 128))
    source = PREAMBLE + "\n".join(subject.lowered.text for subject in all)
    compiled = nvrtc.compile_cuda(source, architecture, "sequential.cu")
    assert compiled.kernels.keys() == {subject.lowered.name for subject in all}
    assert not [name for name, resources in compiled.kernels.items() if resources.spills], compiled.log
