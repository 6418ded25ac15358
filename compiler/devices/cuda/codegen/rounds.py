"""Work that threads share out in rounds, how many of them there are being written down.

In `for (at = thread; at < count; at += threads)` the assembler does not know that `thread` is less than `threads`: it
unrolls for any number of rounds and takes the few that there are one after the other, a trip to memory each. Here all
but the last are without condition, so that what they load is on its way together.
"""

from __future__ import annotations

from contextlib import ExitStack

from compiler.codegen.writer import Writer


def in_rounds(
    writer: Writer, number: str, count: int, first: str, threads: int, at_once: int, kind: str = "int"
) -> ExitStack:
    """A loop whose body sees each `number` below `count` that thread `first` of `threads` has.

    `at_once` rounds are unrolled.
    """
    stack, rounds, whole = ExitStack(), -(-count // threads), count // threads
    place, always = first, ""
    if rounds > 1:
        turn = writer.name("round")
        writer.line(f"#pragma unroll {min(rounds, at_once)}")
        stack.enter_context(writer.block(f"for ({kind} {turn} = 0; {turn} < {rounds}; {turn}++)"))
        place, always = f"{first} + {turn} * {threads}", f"{turn} < {whole} || " if whole else ""
    else:
        stack.enter_context(writer.block(""))
    writer.line(f"const {kind} {number} = {place};")
    if whole < rounds:
        stack.enter_context(writer.block(f"if ({always}{number} < {count})"))
    return stack
