"""The vector functions of tw_kernel.h in NEON, against float64."""

from __future__ import annotations

import numpy as np

from compiler.devices.cpu.emulation.emulator import Guest
from tests.compiler.devices.cpu.codegen import test_math as here
from tests.compiler.devices.cpu.emulation.arm import NEON, arm
from tests.compiler.devices.cpu.library import built

STEP = 11
"""Of the samples that are judged on this machine's vectors, every so many."""
NAMES = [*(f"map_{name}" for name in here.FUNCTIONS), "pair_min", "pair_max"]


def wrapped(name: str) -> str:
    """A function as a kernel: operands, scratch, and from where to where."""
    arguments = "p[0], p[1], p[2]" if name.startswith("pair_") else "p[0], p[1]"
    return f"""__attribute__((visibility("default"))) void k_{name}(void **p, char *scratch, long begin, long end) {{
    (void)scratch, (void)begin;
    {name}({arguments}, end);
}}"""


def test_vector_functions_in_neon_keep_what_the_header_states() -> None:
    target = arm(NEON)
    source = "\n".join([here.SOURCE, here.PAIRS, *map(wrapped, NAMES)])
    code = built({"math.c": f"{source}\n"}, target)
    assert isinstance(code, Guest)

    def applied(name: str, *arrays: np.ndarray) -> np.ndarray:
        result = np.empty_like(arrays[0])
        code.call(f"k_{name}", [*arrays, result], np.empty(64, np.uint8), 0, len(result))
        return result

    spread = here.samples()[::STEP]
    x = np.concatenate([spread[: len(spread) // 4 * 4], here.SPECIAL])
    with np.errstate(all="ignore"):
        for name, function in here.TRUTH.items():
            error = here.ulps(applied(f"map_{name}", x), function(x.astype(np.float64)))
            worst = int(np.argmax(error))
            assert error[worst] <= here.stated()[name], f"{name}({x[worst]!r}) is off by {error[worst]:.3g} ULP"
        for name, function in here.EXACT.items():
            np.testing.assert_array_equal(applied(f"map_{name}", x), function(x), err_msg=name)
    a, b = (np.ascontiguousarray(part.reshape(-1)) for part in np.meshgrid(here.SPECIAL, here.SPECIAL))
    np.testing.assert_array_equal(applied("pair_min", a, b), np.minimum(a, b))
    np.testing.assert_array_equal(applied("pair_max", a, b), np.maximum(a, b))
