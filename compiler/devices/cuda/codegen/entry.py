"""The __global__ function of a launch: which blocks carry out which tile function, and what each waits for before.

    extern "C" __global__ void name(inputs..., outputs..., [scratch], [counters])  one kernel: tile is blockIdx.x
    extern "C" __global__ void name(x_0, y_0, x_1, y_1)                            two: the first blocks run the first

On sm_90 and later a launch may begin before the one that it depends on has ended (programmatic dependent launch). So it
lets its own dependents start, then waits for its predecessor before anything but constants is read; a kernel that
fetches its weights first waits in its tile function instead (`waits`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.codegen.writer import Writer

SM90, SM90A = "TW_SM90", "TW_SM90A"
"""Conditions of the preprocessor: sm_90 and later; what sm_90a alone has, which no later GPU runs. The greater one
holds the other."""


@dataclass(frozen=True)
class TileFunction:
    """What one block of `threads` threads of a kernel does, and how a __global__ function calls it.

    `text` defines `name_tile`. It takes the `parameters`, by C type and name, then dynamic shared memory if `shared`,
    then the tile. `waits` says that it calls `tw_grid_dependency_wait` itself. `resident` blocks at least are to fit a
    multiprocessor; 0: as the assembler sees fit. It exists where its `condition` holds, SM90 or SM90A; empty:
    everywhere.
    """

    name: str
    text: str
    parameters: tuple[tuple[str, str], ...]
    threads: int
    shared: bool = False
    waits: bool = False
    resident: int = 0
    condition: str = ""


@dataclass(frozen=True)
class Part:
    """Blocks of a launch, from `begin` to before `end`, which carry out a tile function.

    Without an `end` all that are left.
    """

    tile: TileFunction
    begin: int = 0
    end: int | None = None


def entry_text(name: str, parts: Sequence[Part]) -> str:
    """The __global__ function of a launch that consists of parts.

    Where there are several, it is given what each is given, in order.
    """
    given = [_given(part.tile, f"_{at}" if len(parts) > 1 else "") for at, part in enumerate(parts)]
    threads = max(part.tile.threads for part in parts)
    asked = [part.tile.resident for part in parts if part.tile.resident]
    bounds = f"{threads}, {min(asked)}" if asked else f"{threads}"
    declared = declaration([parameter for own in given for parameter in own])
    writer = Writer()
    with writer.block(f'extern "C" __global__ void __launch_bounds__({bounds}) {name}({declared})'):
        writer.line("tw_grid_launch_dependents();")
        if len(parts) == 1:
            _call(writer, parts[0], given[0], threads)
        else:
            for at, (part, own) in enumerate(zip(parts, given, strict=True)):
                condition = "else" if part.end is None else f"{'else ' if at else ''}if (blockIdx.x < {part.end})"
                with writer.block(condition):
                    _call(writer, part, own, threads)
    conditions = dict.fromkeys(part.tile.condition for part in parts if part.tile.condition)
    return under(" && ".join(conditions), writer.text())


def _given(tile: TileFunction, suffix: str) -> list[tuple[str, str]]:
    return [(kind, called + suffix) for kind, called in tile.parameters]


def _call(writer: Writer, part: Part, given: Sequence[tuple[str, str]], threads: int) -> None:
    """What one block of a part does.

    Threads that the tile function has no use for end: `__syncthreads` is for those that have not (CUDA C++ Programming
    Guide, "Synchronization Functions", compute capability 7.0 and later).
    """
    tile = part.tile
    if tile.threads < threads:
        writer.line(f"if (threadIdx.x >= {tile.threads}) return;")
    if not tile.waits:
        writer.line("tw_grid_dependency_wait();")
    arguments = [called for _, called in given] + ["tw_dynamic_shared()"] * tile.shared
    arguments.append(f"blockIdx.x - {part.begin}" if part.begin else "blockIdx.x")
    writer.line(f"{tile.name}_tile({', '.join(arguments)});")


def declaration(parameters: Sequence[tuple[str, str]]) -> str:
    """Parameters, given by C type and name, as a function declares them."""
    return ", ".join(f"{kind}{called}" for kind, called in parameters)


def under(condition: str, text: str) -> str:
    """Text that is there where a condition of the preprocessor holds; empty: everywhere."""
    return f"#if {condition}\n{text}#endif\n" if condition else text
