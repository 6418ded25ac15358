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
 * `max`: `output` there is the number of the output that holds it, from 0.
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
    filled = {
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
    return text.replace(" */", f"{_LIMITS} */", 1) if shapes and shapes.limits else text
