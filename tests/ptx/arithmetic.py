"""Instructions that compute: integers, floats, logic, comparisons, conversions.

Sums of an fma are taken in float64 and then rounded: of float32 that may differ from one rounding by one unit in the
last place in rare cases. Approximations (`.approx`) are as good as float32 can be, better than the manual demands.

Source: "PTX ISA", "Integer Arithmetic", "Extended-Precision", "Floating Point", "Comparison and Selection", "Logic and
Shift Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from tests.ptx.decode import Decoder, Operands, spread
from tests.ptx.fault import Fault
from tests.ptx.gang import Gang, Lanes, Step
from tests.ptx.parse import BYTES
from tests.ptx.values import FLOATS, UNSIGNED, bits_of, convert, flushed, typed

COMPARISONS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    **{
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    },
    **{"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal},
}
TRUTHS: Mapping[str, Callable[..., np.ndarray]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "mov": lambda truth: truth,
}


def compare(how: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A comparison of numbers; of floats the ordered ones are false for NaN, those that end with `u` true."""
    unordered = np.isnan(a) | np.isnan(b) if a.dtype.kind == "f" else np.zeros(np.broadcast(a, b).shape, bool)
    if how in ("num", "nan"):
        return ~unordered if how == "num" else unordered
    or_unordered = a.dtype.kind == "f" and how.endswith("u")
    found = COMPARISONS[how[:-1] if or_unordered else how](a, b)
    result: np.ndarray = found | unordered if or_unordered else found & ~unordered
    return result


def set_predicate(operands: Operands) -> Step:
    """setp.comparison{.logic}.type p{|q}, a, b{, c}."""
    words, texts = operands.words, operands.texts
    kind, how = words[-1], words[1]
    logic = next((word for word in words[2:-1] if word in ("and", "or", "xor")), "")
    writes = [operands.write(name) for name in texts[0].split("|")]
    a, b = operands.read(texts[1], kind), operands.read(texts[2], kind)
    other = operands.read(texts[3], "pred") if logic else None

    def run(gang: Gang, lanes: Lanes) -> None:
        found = compare(how, typed(a(gang, lanes), kind), typed(b(gang, lanes), kind))
        for write, truth in zip(writes, (found, ~found), strict=False):
            write(gang, lanes, TRUTHS[logic](truth, other(gang, lanes)) if other is not None else truth)

    return run


def select(operands: Operands) -> Step:
    kind, texts = operands.words[-1], operands.texts
    write, a, b = operands.write(texts[0]), operands.read(texts[1], kind), operands.read(texts[2], kind)
    truth = operands.read(texts[3], "pred")

    def run(gang: Gang, lanes: Lanes) -> None:
        write(gang, lanes, np.where(truth(gang, lanes), a(gang, lanes), b(gang, lanes)))

    return run


def conversion(operands: Operands) -> Step:
    """cvt, of one value or of two into the halves of a register, the first one into the upper half."""
    to, kind = operands.words[-2:]
    texts, words = operands.texts, operands.words[1:-2]
    if to in ("f16x2", "bf16x2"):
        write, upper, lower = operands.write(texts[0]), operands.read(texts[1], kind), operands.read(texts[2], kind)

        def pack(gang: Gang, lanes: Lanes) -> None:
            high, low = (convert(one(gang, lanes), to[:-2], kind, words).astype(np.uint32) for one in (upper, lower))
            write(gang, lanes, high << np.uint32(16) | low)

        return pack
    write, value = operands.write(texts[0], to), operands.read(texts[1], kind)
    return lambda gang, lanes: write(gang, lanes, convert(value(gang, lanes), to, kind, words))


def move(operands: Operands) -> Step:
    """mov: a register, the address of a variable, or a register from or to several that are parts of it."""
    kind, texts = operands.words[-1], operands.texts
    to, of = operands.many(texts[0]), operands.many(texts[1])
    width = BYTES[kind]
    if len(of) > 1:
        part = width // len(of)
        write, reads = operands.write(to[0]), [operands.read(one, f"b{8 * part}") for one in of]

        def join(gang: Gang, lanes: Lanes) -> None:
            whole = np.zeros(gang.of(lanes).size, UNSIGNED[width])
            for at, read in enumerate(reads):
                whole |= read(gang, lanes).astype(UNSIGNED[width]) << UNSIGNED[width].type(8 * part * at)
            write(gang, lanes, whole)

        return join
    read = operands.read(of[0], kind)
    part, writes = width // len(to), [operands.write(one) for one in to]

    def take(gang: Gang, lanes: Lanes) -> None:
        whole = read(gang, lanes)
        for at, write in enumerate(writes):
            bits = whole if len(writes) == 1 else whole >> UNSIGNED[width].type(8 * part * at)
            write(gang, lanes, bits if len(writes) == 1 else bits.astype(UNSIGNED[part]))

    return take


# ---- integers


def wide(operands: Operands) -> Step:
    """mul.wide, mad.wide: the whole product, in twice the width."""
    kind, texts = operands.words[-1], operands.texts
    double = f"{kind[0]}{16 * BYTES[kind]}"
    write, a, b = operands.write(texts[0]), operands.read(texts[1], kind), operands.read(texts[2], kind)
    c = operands.read(texts[3], double) if len(texts) > 3 else None
    dtype = typed(np.zeros(1, UNSIGNED[2 * BYTES[kind]]), double).dtype

    def run(gang: Gang, lanes: Lanes) -> None:
        product = typed(a(gang, lanes), kind).astype(dtype) * typed(b(gang, lanes), kind).astype(dtype)
        bits = bits_of(product, double)
        write(gang, lanes, bits if c is None else bits + c(gang, lanes))

    return run


def high(kind: str, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """The upper half of a product."""
    width = BYTES[kind]
    exact = np.asarray(a).astype(object) * np.asarray(b).astype(object)
    mask = (1 << 8 * width) - 1
    bits = np.array([(int(one) >> 8 * width) & mask for one in np.ravel(exact)], UNSIGNED[width])
    bits = bits.reshape(np.shape(exact))
    return bits if c is None else bits + bits_of(c, kind)


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Toward zero; by zero, whatever the manual leaves open: all bits."""
    divisor = np.where(b == 0, 1, b)
    found = a // divisor
    if a.dtype.kind == "i":
        found = found + ((found * divisor != a) & ((a < 0) != (divisor < 0)))
    return np.where(b == 0, np.array(-1).astype(a.dtype), found).astype(a.dtype)


def shift_left(kind: str, a: np.ndarray, count: np.ndarray) -> np.ndarray:
    bits = 8 * BYTES[kind]
    a = bits_of(a, kind)
    result: np.ndarray = np.where(count < bits, a << np.minimum(count, bits - 1).astype(a.dtype), a.dtype.type(0))
    return result


def shift_right(kind: str, a: np.ndarray, count: np.ndarray) -> np.ndarray:
    bits = 8 * BYTES[kind]
    shifted = a >> np.minimum(count, bits - 1).astype(a.dtype)
    result: np.ndarray = shifted if kind[0] == "s" else np.where(count < bits, shifted, a.dtype.type(0))
    return result


def count_ones(a: np.ndarray) -> np.ndarray:
    octets = np.ascontiguousarray(a).reshape(-1, 1).view(np.uint8)
    result: np.ndarray = np.unpackbits(octets, axis=1).sum(axis=1).astype(np.uint32)
    return result


def leading_zeros(kind: str, a: np.ndarray) -> np.ndarray:
    return np.array([8 * BYTES[kind] - int(one).bit_length() for one in np.ravel(bits_of(a, kind))], np.uint32)


def reversed_bits(kind: str, a: np.ndarray) -> np.ndarray:
    width = 8 * BYTES[kind]
    return np.array([int(f"{int(one):0{width}b}"[::-1], 2) for one in np.ravel(a)], UNSIGNED[BYTES[kind]])


INTEGERS: Mapping[str, Callable[..., np.ndarray]] = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "abs": np.abs, "min": np.minimum, "max": np.maximum},
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "neg": np.negative},
    "mad": lambda a, b, c: a * b + c,
    "div": quotient,
    "rem": lambda a, b: a - quotient(a, b) * b,
    "cnot": lambda a: (a == 0).astype(a.dtype),
}
BY_KIND: Mapping[str, Callable[..., np.ndarray]] = {
    **{"shl": shift_left, "shr": shift_right, "clz": leading_zeros, "brev": reversed_bits},
    "popc": lambda kind, a: count_ones(a),
}


def integers(operands: Operands) -> Step:
    name, kind, texts = operands.words[0], operands.words[-1], operands.texts
    counts = name in ("shl", "shr")
    kinds = [kind, "u32"] if counts else [kind] * len(texts[1:])
    write = operands.write(texts[0])
    reads = [operands.read(text, one) for text, one in zip(texts[1:], kinds, strict=True)]
    compute = partial(high, kind) if "hi" in operands.words else INTEGERS.get(name) or partial(BY_KIND[name], kind)
    result = "u32" if name in ("popc", "clz") else kind

    def run(gang: Gang, lanes: Lanes) -> None:
        found = compute(*[typed(read(gang, lanes), one) for read, one in zip(reads, kinds, strict=True)])
        write(gang, lanes, bits_of(found, result))

    return run


# ---- floats


def least(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The other one where one is NaN; -0 is less than +0."""
    equal = (a == b) & (np.signbit(a) != np.signbit(b))
    return np.where(equal, np.where(np.signbit(a), a, b), np.fmin(a, b))


def greatest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    equal = (a == b) & (np.signbit(a) != np.signbit(b))
    return np.where(equal, np.where(np.signbit(a), b, a), np.fmax(a, b))


def _exact(compute: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda *numbers: compute(*[one.astype(np.float64) for one in numbers])


FLOATING: Mapping[str, Callable[..., np.ndarray]] = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs},
    **{"sqrt": np.sqrt, "min": least, "max": greatest},
    "fma": _exact(lambda a, b, c: a * b + c),
    "mad": _exact(lambda a, b, c: a * b + c),
    "rsqrt": _exact(lambda a: 1 / np.sqrt(a)),
    "rcp": _exact(lambda a: 1 / a),
    "ex2": _exact(np.exp2),
    "lg2": _exact(np.log2),
    "sin": _exact(np.sin),
    "cos": _exact(np.cos),
    "tanh": _exact(np.tanh),
    "copysign": lambda a, b: np.copysign(b, a),
}


DIRECTED: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "rm": lambda near, exact: near > exact,
    "rp": lambda near, exact: near < exact,
    "rz": lambda near, exact: np.abs(near) > np.abs(exact),
}
"""Where the nearest float32 lies on the wrong side of what is exact, for rounding down, up and toward zero."""


def rounded(exact: np.ndarray, directed: str) -> np.ndarray:
    """Float32 next to float64, on the side that a rounding asks for."""
    near = np.asarray(exact).astype(np.float32)
    toward = np.where(near > exact, np.float32(-np.inf), np.float32(np.inf))
    return np.where(DIRECTED[directed](near, exact), np.nextafter(near, toward), near)


def floats(operands: Operands) -> Step:
    name, kind, words = operands.words[0], operands.words[-1], operands.words
    directed = next((word for word in words if word in DIRECTED), "")
    if name not in FLOATING or (directed and (kind != "f32" or name in ("min", "max"))):
        raise Fault("unknown", operands.instruction.text)
    write, reads = operands.write(operands.texts[0]), operands.reads(kind, 1)
    compute, flushes, saturates, passes_nan = FLOATING[name], "ftz" in words, "sat" in words, "NaN" in words

    def run(gang: Gang, lanes: Lanes) -> None:
        numbers: Sequence[np.ndarray] = [typed(read(gang, lanes), kind) for read in reads]
        numbers = [flushed(one) for one in numbers] if flushes else numbers
        if directed:
            found = rounded(_exact(compute)(*numbers), directed)
        else:
            found = np.asarray(compute(*numbers)).astype(FLOATS[kind])
        found = flushed(found) if flushes else found
        if saturates:
            found = np.where(np.isnan(found), 0, np.clip(found, 0, 1)).astype(FLOATS[kind])
        if passes_nan:
            found = np.where(np.isnan(numbers[0]) | np.isnan(numbers[1]), FLOATS[kind].type(np.nan), found)
        write(gang, lanes, bits_of(found, kind))

    return run


# ---- bits


def truths(operands: Operands) -> Step:
    write, reads = operands.write(operands.texts[0]), operands.reads("pred", 1)
    compute = TRUTHS[operands.words[0]]
    return lambda gang, lanes: write(gang, lanes, compute(*[read(gang, lanes) for read in reads]))


def by_type(operands: Operands) -> Step:
    """Instructions that several kinds of types have."""
    kind = operands.words[-1]
    if kind == "pred":
        return truths(operands)
    if "wide" in operands.words:
        return wide(operands)
    return floats(operands) if kind in FLOATS else integers(operands)


def of_words(compute: Callable[..., np.ndarray]) -> Decoder:
    """An instruction of 32-bit words that computes each from those of its operands, given as uint64."""

    def decode(operands: Operands) -> Step:
        write, reads = operands.write(operands.texts[0]), operands.reads("b32", 1)
        words = operands.words

        def run(gang: Gang, lanes: Lanes) -> None:
            given = [spread(gang, lanes, read(gang, lanes)).astype(np.uint64) for read in reads]
            write(gang, lanes, compute(words, *given).astype(np.uint32))

        return run

    return decode


def logic_of_three(words: Sequence[str], a: np.ndarray, b: np.ndarray, c: np.ndarray, table: np.ndarray) -> np.ndarray:
    """lop3: bit (4a + 2b + c) of the table."""
    found = np.zeros_like(a)
    for at in range(32):
        shift = np.uint64(at)
        index = (a >> shift & 1) << np.uint64(2) | (b >> shift & 1) << np.uint64(1) | (c >> shift & 1)
        found |= (table >> index & 1) << shift
    return found


def funnel(words: Sequence[str], low: np.ndarray, upper: np.ndarray, count: np.ndarray) -> np.ndarray:
    count = count & np.uint64(31) if "wrap" in words else np.minimum(count, np.uint64(32))
    both = upper << np.uint64(32) | low
    result: np.ndarray = (both << count >> np.uint64(32) if "l" in words else both >> count) & np.uint64(0xFFFFFFFF)
    return result


def permuted(words: Sequence[str], a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
    """prmt: each byte of the result is one of eight, or eight times its sign."""
    if len(words) != 2:
        raise Fault("unknown", ".".join(words))
    both, found = a | b << np.uint64(32), np.zeros_like(a)
    for at in range(4):
        choice = selector >> np.uint64(4 * at) & np.uint64(15)
        octet = both >> np.uint64(8) * (choice & np.uint64(7)) & np.uint64(255)
        signs = np.where(octet & np.uint64(128), np.uint64(255), np.uint64(0))
        found |= np.where(choice & np.uint64(8), signs, octet) << np.uint64(8 * at)
    return found


def dot(words: Sequence[str], a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """dp4a, dp2a: sums of products of bytes, or of halves by bytes of one half of b."""
    name, kind_a, kind_b = words[0], words[-2][0], words[-1][0]
    size = 4 if name == "dp4a" else 2
    halves = a.astype(np.uint32)[:, None].view(f"{'iu'[kind_a == 'u']}{4 // size}").astype(np.int64)
    octets = b.astype(np.uint32)[:, None].view(f"{'iu'[kind_b == 'u']}1").astype(np.int64)
    if size == 2:
        octets = octets[:, :2] if "lo" in words else octets[:, 2:]
    result: np.ndarray = ((halves * octets).sum(axis=1) + c.astype(np.int64)) & 0xFFFFFFFF
    return result


def insert_field(operands: Operands) -> Step:
    """bfi d, a, b, position, length: the lowest bits of a in place of some of b."""
    kind, texts = operands.words[-1], operands.texts
    write, reads = operands.write(texts[0]), [*operands.reads(kind, 1, 3), *operands.reads("u32", 3)]
    bits = 8 * BYTES[kind]

    def run(gang: Gang, lanes: Lanes) -> None:
        given = [spread(gang, lanes, read(gang, lanes)).tolist() for read in reads]
        found = []
        for a, b, at, length in zip(*given, strict=True):
            mask = ((1 << (length & 255)) - 1) << (at & 255) & ((1 << bits) - 1)
            found.append(b & ~mask | a << (at & 255) & mask)
        write(gang, lanes, np.array(found, UNSIGNED[BYTES[kind]]))

    return run


def extract_field(operands: Operands) -> Step:
    """bfe d, a, position, length: of signed types with the sign of the last bit that is there."""
    kind, texts = operands.words[-1], operands.texts
    write, reads = operands.write(texts[0]), [operands.read(texts[1], kind), *operands.reads("u32", 2)]
    bits = 8 * BYTES[kind]

    def field(a: int, at: int, length: int) -> int:
        at, length = at & 255, length & 255
        found = a >> at & ((1 << length) - 1)
        if kind[0] == "s" and length and a >> min(at + length - 1, bits - 1) & 1:
            found |= -1 << max(min(length, bits - at), 0)
        return found & ((1 << bits) - 1)

    def run(gang: Gang, lanes: Lanes) -> None:
        given = [spread(gang, lanes, read(gang, lanes)).tolist() for read in reads]
        write(gang, lanes, np.array([field(*one) for one in zip(*given, strict=True)], UNSIGNED[BYTES[kind]]))

    return run


DECODERS: Mapping[str, Decoder] = {
    **dict.fromkeys((*INTEGERS, *BY_KIND, *FLOATING), by_type),
    **{"setp": set_predicate, "selp": select, "cvt": conversion, "bfi": insert_field, "bfe": extract_field},
    "mov": lambda operands: truths(operands) if operands.words[-1] == "pred" else move(operands),
    **{"lop3": of_words(logic_of_three), "shf": of_words(funnel), "prmt": of_words(permuted)},
    **{"dp4a": of_words(dot), "dp2a": of_words(dot)},
}
