"""Reductions that several blocks share.

Each leaves its partial results in scratch memory, and the last one to arrive adds them up. The sum's order is that of
the parts, whichever block comes last, so that a kernel gives the same bits in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.codegen.writer import Writer

RESULTS_AT_ONCE = 4
"""Of a thread, where a block has more of them than threads."""


@contextmanager
def last_block(writer: Writer, group: str, parts: int, flag: str) -> Iterator[None]:
    """What only the last of the `parts` blocks of a group does, after all of them have written their part.

    `group` numbers the group's counter, `flag` is the address of an int in shared memory. Counters are left zero.
    """
    writer.line("__syncthreads();")
    with writer.block("if (threadIdx.x == 0)"):
        writer.line(f"*{flag} = tw_add_release(counters + {group}, 1) == {parts - 1};")
    writer.line("__syncthreads();")
    with writer.block(f"if (*{flag})"):
        writer.line(f"if (threadIdx.x == 0) counters[{group}] = 0;")
        yield
