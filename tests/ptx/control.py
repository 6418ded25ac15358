"""Branches, calls, barriers: what steers threads.

Source: "PTX ISA", "Control Flow Instructions", and "Parallel Synchronization and Communication Instructions".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.ptx.barriers import ALL
from tests.ptx.decode import Controlled, Decoder, Operands, called, guard, spread
from tests.ptx.fault import Fault
from tests.ptx.gang import DEEPEST, ENDED, SPIN, Gang, Lanes, Step
from tests.ptx.parse import split
from tests.ptx.warps import by_mask


def branch(operands: Operands) -> Controlled:
    to, holds = operands.base + operands.function.labels[operands.texts[0]], guard(operands)

    def run(gang: Gang, ids: np.ndarray, at: int) -> None:
        gang.at[ids] = np.where(holds(gang, ids), to, at + 1)

    return Controlled(run)


def branch_by_table(operands: Operands) -> Controlled:
    """brx.idx."""
    labels = operands.function.targets[operands.texts[1]]
    places = np.array([operands.base + operands.function.labels[label] for label in labels])
    index, holds = operands.read(operands.texts[0], "u32"), guard(operands)

    def run(gang: Gang, ids: np.ndarray, at: int) -> None:
        truth = holds(gang, ids)
        numbers = spread(gang, ids, index(gang, ids)).astype(np.int64)
        if (numbers[truth] >= places.size).any():
            raise Fault("out-of-bounds", f"label {int(numbers.max())} of {places.size}")
        gang.at[ids] = np.where(truth, places[np.where(truth, numbers, 0)], at + 1)

    return Controlled(run)


def leave(operands: Operands) -> Controlled:
    """ret, exit: the end of a thread, or back to the caller."""
    holds = guard(operands)
    ends = operands.function.is_entry or operands.words[0] == "exit"

    def run(gang: Gang, ids: np.ndarray, at: int) -> None:
        truth = holds(gang, ids)
        gang.at[ids[~truth]] = at + 1
        going = ids[truth]
        if ends:
            gang.state[going] = ENDED
            gang.events += 1
            gang.block_barriers.complete()
        else:
            gang.depth[going] -= 1
            gang.at[going] = gang.returns[going, gang.depth[going]]

    return Controlled(run)


def call(operands: Operands) -> Controlled:
    """call: parameters are copied to where the function finds them, its result back when it has returned."""
    linker, caller = operands.linker, operands.function
    at_name = operands.texts.index(called(operands.instruction))
    lists = [split(text[1:-1]) for text in operands.texts if text.startswith("(")]
    results = lists.pop(0) if at_name else ()
    callee = linker.module.functions[operands.texts[at_name]]
    moves = [
        (linker.place(caller.name, caller.local[name], name), linker.place(callee.name, one, one.name), one.bytes)
        for name, one in zip(lists[0] if lists else (), callee.parameters, strict=True)
    ]
    if results:
        # Where the caller looks for the result is where the function puts it.
        for name, one in zip(results, callee.results, strict=True):
            wanted = linker.local.setdefault((caller.name, name), linker.place(callee.name, one, one.name))
            assert wanted == linker.place(callee.name, one, one.name), operands.instruction.text
    start = linker.starts[callee.name]

    def run(gang: Gang, ids: np.ndarray, at: int) -> None:
        for source, target, size in moves:
            gang.local.octets[ids, target : target + size] = gang.local.octets[ids, source : source + size]
        if (gang.depth[ids] >= DEEPEST).any():
            raise Fault("memory", "calls are too deep")
        gang.returns[ids, gang.depth[ids]] = at + 1
        gang.depth[ids] += 1
        gang.at[ids] = start

    return Controlled(run)


def trap(operands: Operands) -> Step:
    def run(gang: Gang, lanes: Lanes) -> None:
        raise Fault("trap", operands.instruction.text)

    return run


def _combined(operands: Operands) -> tuple[object, str]:
    """What a `bar.red` does with the predicates of all threads."""
    words = operands.words
    how, write = words[words.index("red") + 1], operands.write(operands.texts[0])

    def finish(gang: Gang, ids: np.ndarray, truth: np.ndarray) -> None:
        found = {"popc": np.uint32(truth.sum()), "and": truth.all(), "or": truth.any()}[how]
        write(gang, ids, np.full(ids.size, found))

    return finish, operands.texts[-1]


def barrier(operands: Operands) -> Controlled:
    """bar and barrier: sync, red, arrive; barrier.cluster; bar.warp."""
    words, texts = operands.words, list(operands.texts)
    if "warp" in words:
        return by_mask(operands, lambda gang, ids: None, texts[0])
    if "cluster" in words:
        return _of_cluster(operands)
    combine, value = None, None
    if "red" in words:
        combine, truth = _combined(operands)
        value, texts = operands.read(truth, "pred"), texts[1:-1]
    number = operands.read(texts[0], "u32")
    wanted = operands.read(texts[1], "u32") if len(texts) > 1 else None
    aligned, arrive = words[0] == "bar" or "aligned" in words, "arrive" in words
    text = operands.instruction.text
    if operands.instruction.guard:
        raise Fault("unknown", f"a guarded barrier: {text}")

    def come(gang: Gang, ids: np.ndarray, at: int) -> None:
        counts = np.full(ids.size, ALL) if wanted is None else spread(gang, ids, wanted(gang, ids)).astype(np.int64)
        if ((counts != ALL) & (counts % 32 != 0)).any():
            raise Fault("divergence", f"a barrier for {int(counts[0])} threads, which are no whole warps")
        finish = None if combine is None else (lambda all_ids, truth: combine(gang, all_ids, truth))  # type: ignore[operator]
        gang.block_barriers.come(
            ids,
            at,
            spread(gang, ids, number(gang, ids)).astype(np.int64),
            counts,
            arrive=arrive,
            values=None if value is None else spread(gang, ids, value(gang, ids)),
            finish=finish,
        )

    def run(gang: Gang, ids: np.ndarray, at: int) -> None:
        if not aligned:
            come(gang, ids, at)
            return
        groups = gang.gathered(ids, at, 32)
        if groups:
            come(gang, np.concatenate([group.ravel() for group in groups]), at)

    return Controlled(run)


def _of_cluster(operands: Operands) -> Controlled:
    aligned = "aligned" in operands.words

    def pass_on(gang: Gang, ids: np.ndarray, at: int) -> None:
        if "arrive" in operands.words:
            gang.cluster_barriers.arrive(ids)
            gang.state[ids], gang.at[ids] = 0, at + 1
            return
        passed = gang.cluster_barriers.wait(ids)
        gang.at[ids] = np.where(passed, at + 1, at)
        gang.state[ids] = np.where(passed, 0, SPIN)
        gang.events += bool(passed.any())

    def run(gang: Gang, ids: np.ndarray, at: int) -> None:
        groups = gang.gathered(ids, at, 32) if aligned else [ids]
        if groups:
            pass_on(gang, np.concatenate([group.ravel() for group in groups]), at)

    return Controlled(run)


DECODERS: Mapping[str, Decoder] = {
    **{"bra": branch, "brx": branch_by_table, "ret": leave, "exit": leave, "call": call, "trap": trap},
    **{"bar": barrier, "barrier": barrier},
}
