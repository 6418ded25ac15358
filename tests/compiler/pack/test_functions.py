from __future__ import annotations

from compiler.pack.functions import cut, gather, kernels_of
from tests.bench.replay.artifacts import KERNELS

CUDA = """\
#include "tw_cuda.h"

/* Conv+Relu: f16[1, 8]
 * node 4 */
__device__ __forceinline__ void k4_conv_tile(const tw_f16 *t_x0, int z) {
    if (z) {
    }
}

extern "C" __global__ void __launch_bounds__(128, 1) s4_kernels(const tw_f16 *t_x0_0) {
    k4_conv_tile(t_x0_0, 1);
}

static __attribute__((noinline, visibility("hidden"))) void k5_gemm(const float *a) {
}
"""


def test_functions_go_with_their_comments_and_the_rest_stays() -> None:
    source = cut(KERNELS)
    assert list(source.functions) == ["k0_conv_4", "k0_conv", "k1_softmax"]
    assert source.functions["k0_conv_4"].startswith("/* Four at a time. */\nstatic inline void")
    assert source.functions["k1_softmax"].endswith("    k++;\n}"), "an empty line ends no function"
    assert source.rest.strip() == '#include "tw_kernel.h"'


def test_attributes_and_launch_bounds_are_no_names() -> None:
    source = cut(CUDA)
    assert list(source.functions) == ["k4_conv_tile", "s4_kernels", "k5_gemm"]
    assert source.functions["k4_conv_tile"].startswith("/* Conv+Relu")
    assert source.rest.strip() == '#include "tw_cuda.h"'


def test_nothing_is_lost_where_a_file_is_not_as_printers_write_it() -> None:
    odd = (
        "static const struct call calls[] = {\n    {k0, 1},\n};\nint f(void)\n{\n}\n/* at the end */\nvoid g(void) {\n"
    )
    source = cut(odd)
    assert not source.functions
    assert sorted(source.rest.splitlines()) == sorted(odd.splitlines())


def test_functions_of_one_name_are_all_kept() -> None:
    twice = "void f(int) {\n    a;\n}\nvoid f(long) {\n    b;\n}\n"
    assert list(cut(twice).functions.values()) == ["void f(int) {\n    a;\n}", "void f(long) {\n    b;\n}"]
    gathered = gather({"one.c": twice, "two.c": "void f(char) {\n    c;\n}\n"})
    assert sorted(gathered.places.values()) == ["one.c", "one.c", "two.c"]
    assert len(gathered.functions) == 3


def test_helpers_belong_to_the_kernel_of_their_number() -> None:
    of = kernels_of(["k1_conv_input_f4", "k1_conv", "k12_gemm", "k1_conv_2x16", "tw_run"])
    assert of == {
        "k1_conv": "k1_conv",
        "k1_conv_2x16": "k1_conv",
        "k1_conv_input_f4": "k1_conv",
        "k12_gemm": "k12_gemm",
        "tw_run": "tw_run",
    }
