"""What kernels do before they wait, where a GPU was found to gain by it.

Weights asked for ahead, and what follows a product loaded before its sums are gathered: they change no result, read no
byte that is not theirs, and stand in the machine code where they are meant to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import CudaTarget, resolve
from tests.compiler.devices.cuda.algorithms.test_sass import needs_disassembler, sass_of
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Device, Fault, compile_kernels
from tests.gpu import kernels

HOPPER, AMPERE = resolve("cuda:sm_90"), resolve("cuda:sm_80")
ASKS = r"UBLKPF|CCTL\.E\.PF2"
"""A request of the bulk copy engine; one for a line, before sm_90."""
WAITS, MEETS = r"ACQBULK", r"BAR\.SYNC|UCGABAR_WAIT"
LOADS = r"\bLDG\."
FOUND: dict[tuple[str, str], list[kernels.Subject]] = {}
"""By target and precision: lowering all tiles takes longer than what is tried on a few of them."""


def found(target: CudaTarget, precision: str, monkeypatch: pytest.MonkeyPatch) -> list[kernels.Subject]:
    """Of kernels of small networks that ask for weights ahead, one of each algorithm, with clusters and without."""
    if (target.name, precision) in FOUND:
        return FOUND[target.name, precision]
    networks: tuple[tuple[str, dict[str, int]], ...] = (("mobilenet_v2", {"size": 32}), ("tiny_transformer", {}))
    monkeypatch.setattr(kernels, "NETWORKS", networks)
    monkeypatch.setattr(kernels, "MOST_POINTS", 2**20)
    monkeypatch.setattr(kernels, "TILES", 4)
    kernels._workloads.cache_clear()
    first: dict[tuple[str, bool], kernels.Subject] = {}
    for subject in kernels.subjects(replace(target, prefetch=True, early_constants=True), precision):
        is_known = {(subject.tile.algorithm, clusters) for clusters in (False, True)} <= first.keys()
        if not is_known and "tw_prefetch(" in subject.lowered.text:
            first.setdefault((subject.tile.algorithm, subject.lowered.cluster > 1), subject)
    kernels._workloads.cache_clear()
    return FOUND.setdefault((target.name, precision), list(first.values()))


def fetches(subject: kernels.Subject) -> bool:
    """Whether it loads what follows the product before the sums are gathered."""
    return re.search(r"const int column\w* = first_n", subject.lowered.text) is not None


@needs_double
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_results_are_the_same_and_nothing_else_is_touched(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subjects = found(HOPPER, precision, monkeypatch)
    product = {"fp16": {"mma", "wgmma", "separable"}, "fp32": {"ffma", "mma_3xtf32", "separable_ffma"}}[precision]
    assert product | {"gemv"} <= {subject.tile.algorithm for subject in subjects}
    assert {subject.lowered.cluster > 1 for subject in subjects if fetches(subject)} == {False, True}
    smallest = sorted(subjects, key=lambda subject: subject.lowered.grid * subject.lowered.block)
    for flavour, tried in (("plain", subjects), ("checked", smallest[:4])):
        module = compile_kernels(PREAMBLE + "\n".join(one.lowered.text for one in tried), flavour)
        with Device(module, MODES[6]) as device:
            for subject in tried:
                for outcome in kernels.run(device, subject):
                    assert outcome.error <= outcome.tolerance, f"{subject}\n{subject.lowered.text}"


BEYOND = """
extern "C" __global__ void __launch_bounds__(32) asked(const float *weights, int bytes, int from) {
    tw_prefetch((const char *)weights + from, bytes, threadIdx.x, 32);
}
"""


@needs_double
@pytest.mark.parametrize(
    ("size", "begin", "said"),
    [(256, 0, ""), (272, 0, "out-of-bounds"), (128, 144, "out-of-bounds"), (128, 4, "misaligned"), (24, 0, "limit")],
)
def test_a_request_for_what_is_no_constant_of_the_kernel_is_found(size: int, begin: int, said: str) -> None:
    with Device(compile_kernels(PREAMBLE + BEYOND), MODES[0]) as device:
        weights, kind = device.allocate(256), ""
        try:
            device.launch("asked", [1], [32], [weights, size, begin])
        except Fault as fault:
            kind = fault.kind
    assert kind == said


@needs_nvrtc
@needs_disassembler
@pytest.mark.parametrize(("target", "precision"), [(HOPPER, "fp16"), (HOPPER, "fp32"), (AMPERE, "fp16")])
def test_requests_stand_before_the_wait_and_early_loads_before_threads_meet(
    target: CudaTarget, precision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subjects = found(target, precision, monkeypatch)
    code = sass_of([subject.lowered for subject in subjects], tmp_path, target.architecture)
    plain = sass_of([without(subject, target) for subject in subjects], tmp_path, target.architecture)
    later = 0
    for subject in subjects:
        lines = code[subject.lowered.name].splitlines()
        asks = places(lines, ASKS)
        assert asks, subject
        if target is HOPPER:
            (wait,) = places(lines, WAITS)
            assert max(asks) < wait, f"{subject}\n{code[subject.lowered.name]}"
        if fetches(subject):
            before, after = (after_last_meeting(text[subject.lowered.name]) for text in (plain, code))
            assert after < before, f"{subject}: {after} loads are left behind the last barrier of {before}"
            later += before - after
    assert later


def without(subject: kernels.Subject, target: CudaTarget) -> CudaLowered:
    """The same kernel as it is where nothing was measured."""
    return lower_cuda(subject.lowered.name, subject.workload, subject.tile, target)


def places(lines: Sequence[str], pattern: str) -> list[int]:
    return [at for at, line in enumerate(lines) if re.search(pattern, line)]


def after_last_meeting(code: str) -> int:
    """Loads from memory that stand behind the last place where threads meet before they store results."""
    lines = code.splitlines()
    store = max(places(lines, r"\bSTG\."))
    meeting = max(at for at in places(lines, MEETS) if at < store)
    return len(places(lines[meeting:store], LOADS))
