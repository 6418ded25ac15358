"""Loads, stores, atomic operations, and addresses.

Source: "PTX ISA", "Data Movement and Conversion Instructions": ld, st, cvta, mapa, isspacep, and "atom", "red".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from tests.ptx.decode import Controlled, Decoder, Operands, Read, parameter_at, spread
from tests.ptx.fault import Fault
from tests.ptx.gang import SPIN, Gang, Lanes, Step
from tests.ptx.memory import LOCAL, PARAMETERS, SHARED, WINDOW, WINDOW_BITS
from tests.ptx.parse import BYTES
from tests.ptx.values import UNSIGNED, bits_of, typed

SPACES = ("global", "shared", "local", "param", "const")
ORDERED = {"acquire", "relaxed", "volatile"}
"""Loads of what other threads may write meanwhile: who looks again lets others go on first."""


def space_of(words: tuple[str, ...]) -> str:
    """The state space that an instruction names."""
    return next((word.partition("::")[0] for word in words if word.partition("::")[0] in SPACES), "generic")


def place_of(operands: Operands, text: str, space: str) -> tuple[Read, str]:
    """Addresses of a load or store, and the state space where they are."""
    name, _, offset = text[1:-1].partition("+")
    name, shift = name.strip(), int(offset or "0", 0)
    function, linker = operands.function, operands.linker
    if space == "param":
        if function.is_entry and name in (places := parameter_at(function)):
            at = PARAMETERS + places[name] + shift
            return (lambda gang, lanes: np.full(gang.of(lanes).size, at)), "param"
        variables = {one.name: one for one in (*function.parameters, *function.results)} | function.local
        if name in variables:
            at = linker.place(function.name, variables[name], name) + shift
            return (lambda gang, lanes: np.full(gang.of(lanes).size, at)), "local"
    return operands.address(text), space


def vector_of(operands: Operands) -> tuple[str, int]:
    """The type of a load or store, and of how many values."""
    return operands.words[-1], next((int(word[1:]) for word in operands.words if re.fullmatch(r"v[248]", word)), 1)


def load(operands: Operands) -> Step | Controlled:
    (kind, count), space = vector_of(operands), space_of(operands.words)
    width = BYTES[kind]
    address, space = place_of(operands, operands.texts[1], space)
    writes = [operands.write(name, kind) for name in operands.many(operands.texts[0])]

    acquires, is_ordered = orders_at_device(operands.words, "acquire"), bool(ORDERED & set(operands.words))

    def run(gang: Gang, lanes: Lanes) -> None:
        addresses = address(gang, lanes)
        octets = gang.look(lanes, addresses, width) if is_ordered and space == "global" else None
        if octets is None:
            octets = gang.load(space, lanes, addresses, width * count)
        elif acquires and gang.words is not None:
            ids = gang.of(lanes)
            for at, place in enumerate(gang.memory.places(addresses, width)[:, 0]):
                gang.words.acquire(ids[at : at + 1], int(place))
        values = np.ascontiguousarray(octets).view(UNSIGNED[width])
        for at, write in enumerate(writes):
            write(gang, lanes, values[:, at])

    if not is_ordered or operands.instruction.guard:
        return run

    def look(gang: Gang, ids: np.ndarray, at: int) -> None:
        run(gang, ids)
        gang.at[ids], gang.state[ids] = at + 1, SPIN

    return Controlled(look)


def orders_at_device(words: tuple[str, ...], which: str) -> bool:
    """Whether an access releases, or acquires, for all blocks of the device."""
    return bool({which, "acq_rel"} & set(words)) and bool({"gpu", "sys"} & set(words))


def store(operands: Operands) -> Step:
    (kind, count), space = vector_of(operands), space_of(operands.words)
    width = BYTES[kind]
    address, space = place_of(operands, operands.texts[0], space)
    reads = [operands.read(name, kind) for name in operands.many(operands.texts[1])]
    assert len(reads) == count, operands.instruction.text

    def run(gang: Gang, lanes: Lanes) -> None:
        values = np.empty((gang.of(lanes).size, count), UNSIGNED[width])
        for at, read in enumerate(reads):
            values[:, at] = read(gang, lanes)
        gang.store(space, lanes, address(gang, lanes), values.view(np.uint8))

    return run


UPDATES: Mapping[str, Callable[..., np.ndarray]] = {
    "add": lambda old, a: old + a,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda old, a: np.where(old >= a, 0, old + 1).astype(old.dtype),
    "dec": lambda old, a: np.where((old == 0) | (old > a), a, old - 1).astype(old.dtype),
    "exch": lambda old, a: a,
    "cas": lambda old, a, b: np.asarray(np.where(old == a, b, old)),
}


def atomic(operands: Operands) -> Step:
    """atom and red: one thread after another, in the order of their numbers."""
    words, texts, kind = operands.words, operands.texts, operands.words[-1]
    name = next(word for word in words[1:] if word in UPDATES)
    space, width, returns = space_of(words), BYTES[kind], words[0] == "atom"
    write = operands.write(texts[0]) if returns else None
    address = operands.address(texts[returns])
    reads = [operands.read(text, kind) for text in texts[returns + 1 :]]

    releases, acquires = (orders_at_device(words, which) for which in ("release", "acquire"))

    def run(gang: Gang, lanes: Lanes) -> None:
        ids, addresses = gang.of(lanes), address(gang, lanes)
        given = [spread(gang, lanes, read(gang, lanes)) for read in reads]
        before = np.empty(ids.size, UNSIGNED[width])
        for at in range(ids.size):
            one = slice(at, at + 1)
            place = places_of(gang, space, ids[one], addresses[one], width)
            if gang.words is not None and place[0] is gang.memory.octets:
                where = int(place[1][0, 0])
                if acquires:
                    gang.words.acquire(ids[one], where)
                if releases:
                    gang.words.release(ids[one], where)
            old = np.ascontiguousarray(place[0][place[1]]).view(UNSIGNED[width])[:, 0]
            before[one] = old
            new = UPDATES[name](typed(old, kind), *[typed(value[one], kind) for value in given])
            place[0][place[1]] = bits_of(new, kind)[:, None].view(np.uint8)
        gang.events += 1
        if write is not None:
            write(gang, lanes, before)

    return run


def places_of(gang: Gang, space: str, ids: np.ndarray, addresses: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """Memory and the positions in it that an atomic operation updates. Raises Fault."""
    if (addresses % size).any():
        raise Fault("misaligned", f"an atomic operation at {int(addresses[0]):#x}")
    if space == "shared" or (space == "generic" and SHARED <= addresses[0] < LOCAL):
        offsets = addresses - (SHARED if space == "generic" else 0)
        places = gang.shared.places(gang.cluster[ids], offsets, size)
        gang.shared.accesses.update(ids, gang.shared.grains(places))
        return gang.shared.octets, places
    return gang.memory.octets, gang.memory.places(addresses, size)


BASES = {"shared": SHARED, "local": LOCAL, "global": 0, "const": 0, "param": 0}


def convert_address(operands: Operands) -> Step:
    """cvta, cvta.to: between the addresses of a state space and generic ones."""
    write, read = operands.write(operands.texts[0]), operands.read(operands.texts[1], "u64")
    base = np.uint64(BASES[space_of(operands.words)])
    if "to" in operands.words:
        return lambda gang, lanes: write(gang, lanes, read(gang, lanes) - base)
    return lambda gang, lanes: write(gang, lanes, read(gang, lanes) + base)


def map_address(operands: Operands) -> Step:
    """mapa: the same place in the shared memory of another block of the cluster."""
    kind, texts = operands.words[-1], operands.texts
    write, read, rank = operands.write(texts[0]), operands.read(texts[1], kind), operands.read(texts[2], "u32")
    base = SHARED if BYTES[kind] == 8 and space_of(operands.words) == "generic" else 0

    def run(gang: Gang, lanes: Lanes) -> None:
        offset = spread(gang, lanes, read(gang, lanes)).astype(np.int64) & (WINDOW - 1)
        ranks = spread(gang, lanes, rank(gang, lanes)).astype(np.int64)
        if (ranks >= gang.launch.cluster).any():
            raise Fault("out-of-bounds", f"block {int(ranks.max())} of a cluster of {gang.launch.cluster}")
        write(gang, lanes, (offset + (ranks + 1 << WINDOW_BITS) + base).astype(UNSIGNED[BYTES[kind]]))

    return run


def is_in_space(operands: Operands) -> Step:
    """isspacep."""
    write, read = operands.write(operands.texts[0]), operands.read(operands.texts[1], "u64")
    space = space_of(operands.words)

    def run(gang: Gang, lanes: Lanes) -> None:
        addresses = spread(gang, lanes, read(gang, lanes)).astype(np.int64)
        inside = np.zeros(addresses.size, bool)
        for name, mine, _ in gang.windows(addresses):
            inside[mine] = name == space
        write(gang, lanes, inside)

    return run


def nothing(operands: Operands) -> Step:
    """Hints."""
    return lambda gang, lanes: None


def fence(operands: Operands) -> Step:
    """One of proxies, or nothing: memory is sequentially consistent here."""
    if "proxy" not in operands.words or "async" not in operands.words:
        return nothing(operands)

    def run(gang: Gang, lanes: Lanes) -> None:
        if gang.clocks is not None:
            gang.clocks.fence(gang.of(lanes))

    return run


DECODERS: Mapping[str, Decoder] = {
    **{"ld": load, "ldu": load, "st": store, "atom": atomic, "red": atomic},
    **{"cvta": convert_address, "mapa": map_address, "isspacep": is_in_space},
    "fence": fence,
    **dict.fromkeys(("membar", "griddepcontrol", "prefetch", "prefetchu", "nanosleep", "discard"), nothing),
}
