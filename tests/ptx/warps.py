"""What the threads of a warp do together: shuffles, votes, matches, reductions, ldmatrix.

Source: "PTX ISA", "shfl.sync", "vote.sync", "match.sync", "activemask", "redux.sync", "ldmatrix".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tests.ptx.decode import Controlled, Decoder, Operands, spread
from tests.ptx.fault import Fault
from tests.ptx.gang import ENDED, WAIT, Gang, Lanes, Step
from tests.ptx.values import bits_of, typed

Together = Callable[[Gang, np.ndarray], None]
"""What threads do together: a row for each warp, in the order of its lanes, which are the same in all rows."""
ALL_LANES = 0xFFFFFFFF
G, T = np.arange(32) // 4, np.arange(32) % 4
"""Of each lane: the row and the pair of columns of an 8 x 8 matrix that it holds."""


def by_mask(operands: Operands, together: Together, mask: str) -> Controlled:
    """An instruction of those lanes of a warp that a mask names, which order what they do to memory."""
    read, orders = operands.read(mask, "b32"), operands.words[0] == "bar"
    if operands.instruction.guard:
        raise Fault("unknown", f"a guard: {operands.instruction.text}")

    def run(gang: Gang, ids: np.ndarray, at: int) -> None:
        gang.state[ids] = WAIT
        here = gang.ids[(gang.state == WAIT) & (gang.at == at)]
        masks = spread(gang, here, read(gang, here)).astype(np.int64)
        if (masks >> gang.lane[here] & 1 == 0).any():
            raise Fault("divergence", "a lane is not in the mask that it gives")
        warps = gang.warp[here]
        whole = (np.bincount(warps, minlength=gang.warp[-1] + 1) == 32)[warps] & (masks == ALL_LANES)
        if whole.any():
            act(gang, here[whole].reshape(-1, 32), at)
        for warp in np.unique(warps[~whole]):
            for mask in np.unique(masks[~whole & (warps == warp)]):
                part(gang, here[~whole & (warps == warp) & (masks == mask)], int(mask), at)

    def part(gang: Gang, members: np.ndarray, mask: int, at: int) -> None:
        warp = gang.ids[gang.warp == gang.warp[members[0]]]
        named = warp[(mask >> gang.lane[warp] & 1) == 1]
        if (gang.state[named] == ENDED).any():
            raise Fault("divergence", "the mask names a lane that has ended")
        if members.size == named.size:
            act(gang, members[None], at)

    def act(gang: Gang, rows: np.ndarray, at: int) -> None:
        if gang.clocks is not None and orders:
            for row in rows:
                gang.clocks.meet(row)
        together(gang, rows)
        gang.go_on(rows.ravel(), at)

    return Controlled(run)


def aligned(operands: Operands, together: Together, size: int = 32) -> Controlled:
    """An instruction that all threads of a warp, or of a warpgroup, carry out (`.aligned`)."""
    if operands.instruction.guard:
        raise Fault("unknown", f"a guard: {operands.instruction.text}")

    def run(gang: Gang, ids: np.ndarray, at: int) -> None:
        for group in gang.gathered(ids, at, size):
            if group.shape[1] != size:
                raise Fault("divergence", f"{group.shape[1]} threads where {size} are to be")
            together(gang, group)

    return Controlled(run)


def shuffle(operands: Operands) -> Controlled:
    """shfl.sync.mode.b32 d{|p}, a, b, c, mask: `c` holds a clamp, and above it which bits of lanes are a segment's."""
    mode, texts = operands.words[2], operands.texts
    writes = [operands.write(name) for name in texts[0].split("|")]
    value, by, limits = operands.reads("b32", 1, 4)

    def together(gang: Gang, ids: np.ndarray) -> None:
        lane = gang.lane[ids]
        values = np.zeros((ids.shape[0], 32), np.uint32)
        np.put_along_axis(values, lane, spread(gang, ids, value(gang, ids)), axis=1)
        shift = spread(gang, ids, by(gang, ids)).astype(np.int64) & 31
        both = spread(gang, ids, limits(gang, ids)).astype(np.int64)
        clamp, segment = both & 31, both >> 8 & 31
        most, least = lane & segment | clamp & ~segment, lane & segment
        source = {
            "up": lane - shift,
            "down": lane + shift,
            "bfly": lane ^ shift,
            "idx": least | shift & ~segment,
        }[mode]
        inside = source >= most if mode == "up" else source <= most
        source = np.where(inside, source, lane)
        if not np.isin(source, lane[0]).all():
            raise Fault("divergence", "shfl from a lane that takes no part")
        writes[0](gang, ids, np.take_along_axis(values, source, axis=1))
        if len(writes) > 1:
            writes[1](gang, ids, inside)

    return by_mask(operands, together, texts[4])


def vote(operands: Operands) -> Controlled:
    mode, texts = operands.words[2], operands.texts
    write, truth = operands.write(texts[0]), operands.read(texts[1], "pred")

    def together(gang: Gang, ids: np.ndarray) -> None:
        held = spread(gang, ids, truth(gang, ids))
        one, every = held.any(axis=1), held.all(axis=1)
        found = {
            "ballot": (held << gang.lane[ids]).sum(axis=1).astype(np.uint32),
            "any": one,
            "all": every,
            "uni": every | ~one,
        }[mode]
        write(gang, ids, np.broadcast_to(found[:, None], ids.shape))

    return by_mask(operands, together, texts[2])


def match(operands: Operands) -> Controlled:
    mode, texts, kind = operands.words[1], operands.texts, operands.words[-1]
    writes, value = [operands.write(name) for name in texts[0].split("|")], operands.read(texts[1], kind)

    def together(gang: Gang, ids: np.ndarray) -> None:
        values, bits = spread(gang, ids, value(gang, ids)), 1 << gang.lane[ids]
        same = values[:, :, None] == values[:, None, :]
        masks = (same * bits[:, None, :]).sum(axis=2)
        if mode == "all":
            masks = np.where(same.all(axis=(1, 2))[:, None], masks, 0)
        writes[0](gang, ids, masks.astype(np.uint32))
        if len(writes) > 1:
            writes[1](gang, ids, masks != 0)

    return by_mask(operands, together, texts[2])


REDUCTIONS: Mapping[str, np.ufunc] = {
    **{"add": np.add, "min": np.minimum, "max": np.maximum},
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor},
}


def reduce(operands: Operands) -> Controlled:
    """redux.sync."""
    name, kind, texts = operands.words[2], operands.words[-1], operands.texts
    write, value = operands.write(texts[0]), operands.read(texts[1], kind)

    def together(gang: Gang, ids: np.ndarray) -> None:
        values = typed(spread(gang, ids, value(gang, ids)), kind)
        found = bits_of(REDUCTIONS[name].reduce(values, axis=1).astype(values.dtype), kind)
        write(gang, ids, np.broadcast_to(found[:, None], ids.shape))

    return by_mask(operands, together, texts[2])


def active(operands: Operands) -> Step:
    """activemask: the lanes that are carried out together here."""
    write = operands.write(operands.texts[0])

    def run(gang: Gang, lanes: Lanes) -> None:
        ids = gang.of(lanes)
        warps = gang.warp[ids]
        masks = np.bincount(warps, weights=(1 << gang.lane[ids]).astype(np.float64))
        write(gang, lanes, masks[warps].astype(np.uint32))

    return run


def load_matrices(operands: Operands) -> Controlled:
    """ldmatrix: 8 x 8 matrices of 16 bits, whose rows' addresses eight lanes each give."""
    words, texts = operands.words, operands.texts
    count = next(int(word[1:]) for word in words if word in ("x1", "x2", "x4"))
    writes, address = [operands.write(name) for name in operands.many(texts[0])], operands.address(texts[1], "u32")
    if len(writes) != count or "m8n8" not in words:
        raise Fault("unknown", operands.instruction.text)

    def together(gang: Gang, ids: np.ndarray) -> None:
        rows = address(gang, ids)
        for number, write in enumerate(writes):
            givers = slice(8 * number, 8 * number + 8)
            octets = gang.load("shared", ids[:, givers].ravel(), rows[:, givers].ravel(), 16)
            matrix = np.ascontiguousarray(octets).view(np.uint16).reshape(-1, 8, 8)
            matrix = matrix.transpose(0, 2, 1) if "trans" in words else matrix
            pairs = np.ascontiguousarray(np.stack([matrix[:, G, 2 * T], matrix[:, G, 2 * T + 1]], axis=2))
            write(gang, ids, pairs.view(np.uint32)[:, :, 0])

    return aligned(operands, together)


DECODERS: Mapping[str, Decoder] = {
    **{"shfl": shuffle, "vote": vote, "match": match, "redux": reduce, "activemask": active},
    "ldmatrix": load_matrices,
}
