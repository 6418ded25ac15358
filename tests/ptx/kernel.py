"""Kernels written for tests: each thread loads what it is given, computes, and stores what it found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.ptx.machine import Machine
from tests.ptx.values import UNSIGNED

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
DECLARED = (
    ".reg .pred %p<16>; .reg .b16 %h<32>; .reg .b32 %r<160>; .reg .f32 %f<160>; .reg .b64 %d<32>; "
    ".reg .f64 %g<16>; .reg .b32 %tid; .reg .b64 %at; .reg .b64 %in<8>; .reg .b64 %out;"
)


def kernel(body: str, inputs: int, *, shared: str = "") -> str:
    """A unit with the kernel `k`, whose parameters are the addresses of inputs, `%in0` and so on, and of `%out`."""
    parameters = ", ".join(f".param .u64 p{at}" for at in range(inputs + 1))
    loads = " ".join(f"ld.param.u64 %in{at}, [p{at}];" for at in range(inputs))
    begin = f"mov.u32 %tid, %tid.x; {loads} ld.param.u64 %out, [p{inputs}];"
    return f"{HEAD}{shared}\n.visible .entry k({parameters})\n{{\n{DECLARED}\n{begin}\n{body}\nret;\n}}\n"


def run(
    body: str,
    inputs: Sequence[np.ndarray],
    out: np.ndarray,
    *,
    threads: int = 32,
    blocks: int = 1,
    cluster: int = 1,
    shared: str = "",
    races: bool = True,
    between: bool = False,
) -> np.ndarray:
    """What the kernel leaves in an array that held `out`. Raises Fault."""
    machine = Machine(kernel(body, len(inputs), shared=shared), races=races, between=between)
    addresses = []
    for array in (*inputs, out):
        octets = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        addresses.append(machine.memory.allocate(max(octets.size, 1)))
        machine.memory.put(addresses[-1], octets)
    arguments = [address.to_bytes(8, "little") for address in addresses]
    machine.launch("k", [blocks], [threads], arguments, cluster=cluster)
    return machine.memory.get(addresses[-1], out.nbytes).view(out.dtype).reshape(out.shape)


def each(code: str, *inputs: np.ndarray, kind: str = "b32", out: str = "b32") -> np.ndarray:
    """What `code` makes of the bits of each thread: inputs in `%r0`, ... (`%d`, `%h` by `kind`), its result in `%r9`.

    Results are of `out`, found in `%r9`, `%d9` or `%h9`.
    """
    names = {"b16": "%h", "b32": "%r", "b64": "%d"}
    width, size = int(kind[1:]) // 8, int(out[1:]) // 8
    lines = []
    for at in range(len(inputs)):
        lines.append(f"mad.wide.u32 %at, %tid, {width}, %in{at}; ld.global.{kind} {names[kind]}{at}, [%at];")
    lines.append(code)
    lines.append(f"mad.wide.u32 %at, %tid, {size}, %out; st.global.{out} [%at], {names[out]}9;")
    bits = [np.ascontiguousarray(one).view(UNSIGNED[width]) for one in inputs]
    count = bits[0].size
    return run("\n".join(lines), bits, np.zeros(count, UNSIGNED[size]), threads=count)
