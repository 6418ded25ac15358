"""Instructions of asynchronous copies and of mbarriers.

Source: "PTX ISA", "Data Movement and Conversion Instructions: Asynchronous copy" and "mbarrier".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from tests.ptx.copies import TensorMap, swizzled
from tests.ptx.decode import Controlled, Decoder, Operands, Read, spread
from tests.ptx.fault import Fault
from tests.ptx.gang import SPIN, Gang, Lanes, Step
from tests.ptx.memory import PARAMETERS, WINDOW, aligned
from tests.ptx.parse import split

TENSOR = re.compile(r"\[\s*([\w$%#.]+)\s*,\s*\{([^}]*)\}\s*\]")
MAP_BYTES = 8
"""Of what stands for a tensor map among the parameters, those that name it."""


def copy(operands: Operands) -> Step:
    """cp.async and its kind."""
    words, texts = operands.words, operands.texts
    if "bulk" in words:
        return bulk(operands)
    if words[2] == "commit_group":
        return _on_groups(lambda gang, ids: np.add.at(gang.groups.copy_group, ids, 1))
    if words[2] in ("wait_group", "wait_all"):
        pending = int(texts[0]) if words[2] == "wait_group" else -1  # -1: the open group too
        return _on_groups(lambda gang, ids: gang.groups.wait_copies(ids, pending))
    if words[2] == "mbarrier":
        if "noinc" not in words:
            raise Fault("unknown", operands.instruction.text)
        address = operands.address(texts[0], "u32")
        return _on_groups(lambda gang, ids: gang.groups.arrive_after_copies(ids, address(gang, ids)))
    shared, source = operands.address(texts[0], "u32"), operands.address(texts[1])
    size = int(texts[2], 0)
    read = operands.read(texts[3], "u32") if len(texts) > 3 else None
    if size not in ((16,) if "cg" in words else (4, 8, 16)):
        raise Fault("unknown", operands.instruction.text)

    def run(gang: Gang, lanes: Lanes) -> None:
        ids = gang.of(lanes)
        wanted = np.full(ids.size, size) if read is None else spread(gang, ids, read(gang, ids)).astype(np.int64)
        gang.groups.copy(ids, shared(gang, ids), source(gang, ids), wanted, size)

    return run


def _on_groups(act: object) -> Step:
    assert callable(act)

    def run(gang: Gang, lanes: Lanes) -> None:
        act(gang, gang.of(lanes))

    return run


def bulk(operands: Operands) -> Step:
    """cp.async.bulk: between global and shared memory, of bytes or of boxes of tensors; groups of a thread's."""
    words, texts = operands.words, operands.texts
    if "prefetch" in words:
        return _on_groups(lambda gang, ids: None)
    if words[3] == "commit_group":
        return _on_groups(lambda gang, ids: np.add.at(gang.groups.bulk_group, ids, 1))
    if words[3] == "wait_group":
        return _on_groups(lambda gang, ids: gang.groups.wait_bulk(ids, int(texts[0])))
    if words[3] == "tensor":
        return tensor(operands)
    if words[3:5] != ("shared::cluster", "global"):
        raise Fault("unknown", operands.instruction.text)
    shared, source = operands.address(texts[0], "u32"), operands.address(texts[1])
    size, mbarrier = operands.read(texts[2], "u32"), operands.address(texts[3], "u32")

    def run(gang: Gang, lanes: Lanes) -> None:
        for thread in gang.of(lanes):
            one = np.array([thread])
            to, of, count = shared(gang, one), source(gang, one), int(spread(gang, one, size(gang, one))[0])
            aligned(to, 16)
            aligned(of, 16)
            if count % 16:
                raise Fault("misaligned", f"a bulk copy of {count} bytes")
            places = gang.shared.places(gang.cluster[one], to, count)[0]
            at = int(gang.mbarriers.places(one, mbarrier(gang, one))[0, 0])
            origin = gang.memory.places(of, count)[0]
            gang.groups.bring(int(thread), places, lambda origin=origin: gang.memory.octets[origin], at)  # type: ignore[misc]

    return run


def _tensor_map(gang: Gang, address: int) -> TensorMap:
    at = address - PARAMETERS
    name = gang.launch.parameters[at : at + MAP_BYTES].tobytes()
    found = gang.launch.maps.get(name)
    if not isinstance(found, TensorMap):
        raise Fault("out-of-bounds", f"there is no tensor map at {address:#x}")
    return found


def tensor(operands: Operands) -> Step:
    """cp.async.bulk.tensor, tile mode: a box to shared memory, of one block or of several (multicast), or from it."""
    words, texts = operands.words, operands.texts
    loads = words[5].startswith("shared")
    found = TENSOR.match(texts[1] if loads else texts[0])
    if found is None or "tile" not in words:
        raise Fault("unknown", operands.instruction.text)
    map_address, corner = operands.read(found[1], "u64"), [operands.read(text, "s32") for text in split(found[2])]
    shared = operands.address(texts[0] if loads else texts[1], "u32")
    mbarrier = operands.address(texts[2], "u32") if loads else None
    mask = operands.read(texts[3], "u16") if loads and any("multicast" in word for word in words) else None

    def run(gang: Gang, lanes: Lanes) -> None:
        for thread in gang.of(lanes):
            one = np.array([thread])
            box = _tensor_map(gang, int(spread(gang, one, map_address(gang, one))[0]))
            at = tuple(int(spread(gang, one, read(gang, one)).view(np.int32)[0]) for read in corner)
            to = shared(gang, one)
            aligned(to, 128)
            offsets = swizzled((to[0] & (WINDOW - 1)) + np.arange(box.bytes), box.swizzle)
            sources, inside = box.sources(at)
            if mbarrier is None:
                first = gang.shared.places(gang.cluster[one], to - (to & (WINDOW - 1)), box.bytes)[0, 0]
                _store_box(gang, int(thread), int(first) + offsets, sources, inside, box.item)
                continue
            barrier = mbarrier(gang, one)
            for rank in _ranks(gang, one, mask, int(to[0] // WINDOW - 1)):
                window = np.array([(rank + 1) * WINDOW])
                gang.shared.places(gang.cluster[one], window + offsets.max(), 1)
                first = gang.shared.places(gang.cluster[one], window, 1)[0, 0]
                place = gang.mbarriers.places(one, window + (barrier & (WINDOW - 1)))[0, 0]
                bring = _box_reader(gang, sources, inside, box.item)
                gang.groups.bring(int(thread), int(first) + offsets, bring, int(place))

    return run


def _ranks(gang: Gang, one: np.ndarray, mask: Read | None, own: int) -> list[int]:
    """Blocks of the cluster that a box goes to."""
    if mask is None:
        return [own]
    bits = int(spread(gang, one, mask(gang, one))[0])
    return [rank for rank in range(16) if bits >> rank & 1]


def _box_reader(gang: Gang, sources: np.ndarray, inside: np.ndarray, item: int):  # type: ignore[no-untyped-def]
    """The bytes of a box, zeros beyond the tensor, when they are asked for."""

    def read() -> np.ndarray:
        octets = np.zeros((sources.size, item), np.uint8)
        octets[inside] = gang.memory.octets[gang.memory.places(sources[inside], item)]
        return octets.ravel()

    return read


def _store_box(gang: Gang, thread: int, places: np.ndarray, targets: np.ndarray, inside: np.ndarray, item: int) -> None:
    def deliver(octets: np.ndarray) -> None:
        gang.memory.octets[gang.memory.places(targets[inside], item)] = octets.reshape(-1, item)[inside]

    gang.groups.take(thread, places, deliver)


def mbarrier(operands: Operands) -> Step | Controlled:
    """mbarrier.init, inval, arrive, try_wait, test_wait."""
    words, texts = operands.words, operands.texts
    if words[1] == "init":
        address, count = operands.address(texts[0], "u32"), operands.read(texts[1], "u32")
        return _on_groups(
            lambda gang, ids: gang.mbarriers.begin(ids, address(gang, ids), spread(gang, ids, count(gang, ids)))
        )
    if words[1] == "arrive":
        at = operands.address(texts[1], "u32")
        announced = operands.read(texts[2], "u32") if "expect_tx" in words else None

        def arrive(gang: Gang, lanes: Lanes) -> None:
            ids = gang.of(lanes)
            expected = None if announced is None else spread(gang, ids, announced(gang, ids))
            gang.mbarriers.arrive(ids, at(gang, ids), expected)

        return arrive
    if words[1] not in ("try_wait", "test_wait") or "parity" not in words or operands.instruction.guard:
        raise Fault("unknown", operands.instruction.text)
    write, address, parity = operands.write(texts[0]), operands.address(texts[1], "u32"), operands.read(texts[2], "u32")

    def wait(gang: Gang, ids: np.ndarray, at: int) -> None:
        over = gang.mbarriers.over(ids, address(gang, ids), spread(gang, ids, parity(gang, ids)))
        write(gang, ids, over)
        gang.at[ids] = at + 1
        gang.state[ids[~over]] = SPIN

    return Controlled(wait)


DECODERS: Mapping[str, Decoder] = {"cp": copy, "mbarrier": mbarrier}
