"""example.c: how the artifact is run from C, with the model's shapes filled in.

Names from the model do not occur in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from compiler.ir.open_shapes import OpenShapes
from compiler.ir.program import Program
from compiler.ir.tensor import DType

_KINDS: Mapping[str, str] = {"i": "TW_INT", "u": "TW_UINT", "f": "TW_FLOAT", "b": "TW_BOOL"}
"""By the first letter of a DType's name; BF16 is an exception, and so are small types, which are bytes."""

_LIMITS = """ *
 * Other outputs mean something only where each number in `open.limits` of manifest.json lies between its `min` and
 * `max`: `output` there is the number of the output that holds it, from 0. `broken` compares.
"""
_BROKEN = """struct limit {
    int output;
    int64_t least, most;
};

/* What must hold for the outputs to mean anything, in the order of `open.limits` in manifest.json. */
static const struct limit limits[] = {
@ROWS@
};

/* The number of the first limit that does not hold, which `says` there what is wrong; -1 where all hold. */
static int broken(const tw_tensor *outputs) {
    for (int at = 0; at < (int)(sizeof limits / sizeof *limits); at++) {
        const int64_t *found = outputs[limits[at].output].data;
        if (*found < limits[at].least || *found > limits[at].most) return at;
    }
    return -1;
}

"""
_COMPARED = """    int limit = broken(tensors + INPUTS);
    if (limit >= 0) {
        fprintf(stderr, "the outputs mean nothing: open.limits[%d] of manifest.json does not hold\\n", limit);
        return 2;
    }
"""


def example_c(program: Program, shapes: OpenShapes | None = None) -> str:
    """The source of a program that needs `model.h`, `model.so` and `weights.bin` beside it.

    shapes  which axes are open: each dimension is given its largest size
    """
    sizes = [str(one.high) for one in shapes.dimensions] if shapes else []
    dims: list[int] = []
    ports = []
    for port in (*program.inputs, *program.outputs):
        dtype = port.type.dtype
        kind = "TW_UINT" if dtype.is_small else "TW_BFLOAT" if dtype is DType.BF16 else _KINDS[dtype.value[0]]
        ports.append(f"    {{{kind}, {dtype.bytes * 8}, {port.type.rank}, {len(dims)}}},")
        dims += port.type.dims
    limits = shapes.limits if shapes else ()
    rows = [f"    {{{one.output}, {_long(one.low)}, {_long(one.high)}}}," for one in limits]
    filled = {
        "LIMITS": _BROKEN.replace("@ROWS@", "\n".join(rows)) if limits else "",
        "COMPARED": _COMPARED if limits else "",
        "INPUTS": str(len(program.inputs)),
        "OUTPUTS": str(len(program.outputs)),
        "SIZES": str(len(sizes)),
        "LARGEST": ", ".join([*sizes, "0"]),
        "DIMS": ", ".join(map(str, [*dims, 0])),
        "PORTS": "\n".join([*ports, "    {0, 0, 0, 0},"]),
    }
    text = (files("compiler.pack") / "example.c").read_text("utf-8")
    for mark, value in filled.items():
        text = text.replace(f"@{mark}@", value)
    return text.replace(" */", f"{_LIMITS} */", 1) if limits else text


def _long(number: int) -> str:
    """An int64 as C writes it, the least one too."""
    return "INT64_MIN" if number == -(2**63) else f"INT64_C({number})"
