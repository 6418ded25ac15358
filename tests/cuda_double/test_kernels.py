"""The demonstration kernels are right in every mode and flavour, and with every way of switching threads."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest

from tests.cuda_double.demonstration import DEMONSTRATIONS, error
from tests.cuda_double.double import MODES, Device, Mode, compile_kernels, compiler_there, run_apart

pytestmark = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")


@pytest.mark.parametrize("mode", MODES, ids=Mode.short)
@pytest.mark.parametrize("flavour", ["plain", "checked"])
@pytest.mark.parametrize("name", DEMONSTRATIONS)
def test_a_kernel_agrees_with_its_reference(name: str, flavour: str, mode: Mode) -> None:
    demonstration = DEMONSTRATIONS[name]
    with Device(compile_kernels(demonstration.source, flavour, demonstration.file), mode) as device:
        assert error(demonstration.run(device)) <= demonstration.tolerance
        assert device.state()["context_depth"] == 1


def test_a_run_can_be_repeated() -> None:
    demonstration = DEMONSTRATIONS["reduce_sum"]
    module = compile_kernels(demonstration.source, "plain", demonstration.file)
    found = []
    for _ in range(2):
        with Device(module, MODES[-1]) as device:
            found.append(demonstration.run(device)[0].tobytes())
    assert found[0] == found[1]


PROGRAM = """
from tests.cuda_double.demonstration import DEMONSTRATIONS, error
from tests.cuda_double.double import MODES, Device, build_runtime, compile_kernels
runtime = build_runtime(ucontext={ucontext!r})
for name in {names!r}:
    demonstration = DEMONSTRATIONS[name]
    text = demonstration.source.replace({before!r}, {after!r})
    module = compile_kernels(text, {flavour!r}, demonstration.file, runtime)
    for mode in MODES[::3]:
        with Device(module, mode, runtime=runtime) as device:
            assert error(demonstration.run(device)) <= demonstration.tolerance, (name, mode)
print("all right")
"""


def run_all(
    names: tuple[str, ...], flavour: str, before: str = "", after: str = "", ucontext: bool = False
) -> CompletedProcess[str]:
    """Kernels, changed or not, in a process of their own."""
    program = PROGRAM.format(names=names, flavour=flavour, before=before, after=after, ucontext=ucontext)
    return run_apart(program, sanitized=flavour == "sanitized")


def test_threads_switch_by_ucontext_too() -> None:
    done = run_all(("reduce_sum", "conv3x3"), "plain", ucontext=True)
    assert "all right" in done.stdout, done.stderr


def test_kernels_pass_the_address_and_undefined_behaviour_sanitizers() -> None:
    done = run_all(("reduce_sum", "softmax_row", "conv3x3", "gemm_sm90"), "sanitized")
    assert "all right" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "before", "after", "report"),
    [
        ("vector_add", "i + 4 <= n", "i < n", "use-after-poison"),
        (
            "softmax_row",
            "all = combine(all, of_warp[warp])",
            "all = combine(all, of_warp[warp + 40])",
            "use-after-poison",
        ),
        ("conv3x3", "half < 2; half++", "half < 3; half++", "out of bounds"),
    ],
)
def test_a_sanitizer_finds_an_access_out_of_bounds(name: str, before: str, after: str, report: str) -> None:
    done = run_all((name,), "sanitized", before, after)
    assert done.returncode != 0
    assert report in done.stderr
