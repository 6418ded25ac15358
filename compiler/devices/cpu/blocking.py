"""How axes are cut into parts, and registers filled with sums: what the algorithms that block products share."""

from __future__ import annotations

from compiler.devices.cpu.target import CpuTarget

TASKS_PER_LANE = 4
"""Into so many work is cut where lanes share it, so that none waits long for the last."""
REST_PARTS = 4
"""Of a register tile: where a size ends rows, the last tile has as many of its quarters as it takes."""


def parts(total: int, part: int) -> int:
    """How many parts of a size cover a total."""
    return -(-total // part)


def rest_step(part: int) -> int:
    """Rows of the last register tile of so many rows are a multiple of this where a size ends them."""
    return parts(part, REST_PARTS)


def part_of_lane(groups: int, lanes: int) -> int:
    """Of groups that tasks are made of, how many a task has: a plan of one lane has one task."""
    return -(-groups // (min(groups, TASKS_PER_LANE * lanes) if lanes > 1 else 1))


def even_part(total: int, most: int) -> int:
    """The part that splits a total into as few parts as `most` allows, as evenly as possible."""
    return parts(total, parts(total, most))


def most_rows(vectors: int, target: CpuTarget, parts: int = 1) -> int:
    """Rows of a register tile of so many vectors, of which products take so many `parts` each.

    Their sums, a row of B and broadcast elements of A fill the registers.
    """
    return max((target.vector_registers - parts * (vectors + target.broadcasts)) // vectors, 1)
