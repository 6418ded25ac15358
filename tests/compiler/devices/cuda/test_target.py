"""Which profile serves a GPU of a compute capability that has none of its own."""

from __future__ import annotations

import pytest

from compiler.devices.cuda.target import PROFILES, Gpu, resolve, serving
from compiler.errors import TargetUnavailable


def gpu(major: int, minor: int) -> Gpu:
    return Gpu("a GPU", (major, minor), 16, 4 << 20, 8 << 30, 1.3, f"cuda:sm_{major}{minor}/0")


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((8, 0), "cuda:sm_80"),
        ((8, 7), "cuda:sm_86"),
        ((8, 9), "cuda:sm_89"),
        ((9, 0), "cuda:sm_90"),
        ((10, 0), "cuda:sm_100"),
        ((10, 3), "cuda:sm_100"),
        ((12, 0), "cuda:sm_120"),
        ((12, 1), "cuda:sm_120"),
    ],
)
def test_a_gpu_is_served_by_the_profile_whose_code_it_runs(capability: tuple[int, int], name: str) -> None:
    here = resolve("cuda", gpu(*capability))
    assert (here.name, here.multiprocessors, here.hardware) == (name, 16, f"cuda:sm_{capability[0]}{capability[1]}/0")
    assert resolve(name, gpu(*capability)) == here, "a job for that target is measured there"
    others = [one.name for one in PROFILES if one.name != name]
    assert not any(resolve(other, gpu(*capability)).is_here for other in others)


@pytest.mark.parametrize("capability", [(7, 5), (9, 1), (11, 0), (13, 0)])
def test_a_gpu_that_runs_no_profiles_code_is_refused(capability: tuple[int, int]) -> None:
    """Code for sm_90a serves 9.0 alone."""
    assert serving(capability) is None
    with pytest.raises(TargetUnavailable, match="which no target is for"):
        resolve("cuda", gpu(*capability))


def test_a_target_named_after_a_product_is_for_that_one_and_never_measured() -> None:
    """What a driver says of the GPU that is here comes with the architecture's name."""
    of_product, of_architecture = resolve("cuda:rtx3090", gpu(8, 6)), resolve("cuda:sm_86")
    assert (of_product.capability, of_product.multiprocessors, of_product.is_here) == ((8, 6), 82, False)
    assert of_product.architecture == of_architecture.architecture
    teraflops = of_product.ceilings(1).flop_per_s / 1e12
    assert teraflops == pytest.approx(35.6, rel=0.01), "as the data sheet has it"
