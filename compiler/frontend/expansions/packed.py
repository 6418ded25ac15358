"""Products and tables of quantised numbers as com.microsoft has them, over ai.onnx.

Source: ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from compiler.encodings.aside import aside
from compiler.encodings.found import Found
from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.fused import AGAIN, across, is_there, real
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.frontend.reading.tensors import CODES
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

OWN_LSTM = "tilewright::DynamicQuantizeLSTM"
DEQUANTISED: Found[np.ndarray] = Found()
"""Matrices by their codes, which several bindings of a model share."""
ROWS_AT_ONCE = 64
"""Of a matrix that is transposed: a line of the cache."""


def _or_none(site: Site, position: int) -> str:
    return f"x{position}" if is_there(site, position) else ""


def to_float(site: Site) -> Expansion:
    """MatMulIntegerToFloat: (A - zero)(B - zero) scaled by both scales, and a bias.

    Inputs: A, B, scales of A and B, zero points of A and B, bias.
    """
    composition = Composition(site)
    zeros = _or_none(site, 4), _or_none(site, 5)
    return composition.gives(_product(site, composition, ("x0", "x1", *zeros), ("x2", "x3"), _or_none(site, 6)))


def dynamic(site: Site) -> Expansion:
    """DynamicQuantizeMatMul: A quantised by its own range, then `to_float`. Inputs: A, B, scale and zero of B, bias."""
    composition = Composition(site)
    a, scale, zero = composition.results("DynamicQuantizeLinear", ("x0",), 3)
    operands = (a, "x1", zero, _or_none(site, 3))
    return composition.gives(_product(site, composition, operands, (scale, "x2"), _or_none(site, 4)))


def _product(
    site: Site, composition: Composition, operands: tuple[str, ...], scales: tuple[str, str], bias: str
) -> str:
    """The product of integers as floats of the type of the scale of B."""
    call = composition.call
    whole = call("Cast", call("MatMulInteger", *operands), to=CODES[DType.F32])
    y = call("Mul", whole, call("Mul", *scales))
    return call("Add", y, bias) if bias else y


def gemm(site: Site) -> Expansion:
    """QGemm: alpha A B + C of quantised numbers, C in the scale of the products; quantised where y_scale is given.

    Inputs: A, its scale and zero, B, its scale and zero, C (i32), scale and zero of Y.
    """
    composition = Composition(site)
    call = composition.call
    a, b = (
        across(composition, f"x{at}", 2) if site.integer(f"trans{name}", 0) else f"x{at}"
        for at, name in ((0, "A"), (3, "B"))
    )
    zeros = _or_none(site, 2), _or_none(site, 5)
    if is_there(site, 5) and site.given(5).elements > 1 and not site.integer("transB", 0):
        raise Unsupported("B has a zero point for each column", "quantise it symmetrically")
    whole = call("MatMulInteger", a, b, *zeros)
    if is_there(site, 6):
        whole = call("Add", whole, "x6")
    real_ = call("Mul", call("Cast", whole, to=CODES[DType.F32]), call("Mul", "x1", "x4"))
    alpha = real(site, "alpha", 1.0)
    if alpha != 1.0:
        real_ = call("Mul", real_, composition.constant(np.array(alpha, np.float32)))
    return composition.gives(call("QuantizeLinear", real_, "x7", _or_none(site, 8)) if is_there(site, 7) else real_)


def where(site: Site) -> Expansion:
    """QLinearWhere: one of two quantised tensors, in the scale of the result."""
    composition = Composition(site)
    call = composition.call
    one, other = (call("DequantizeLinear", *(f"x{at}" for at in places)) for places in ((1, 2, 3), (4, 5, 6)))
    return composition.gives(call("QuantizeLinear", call("Where", "x0", one, other), "x7", "x8"))


def in_blocks(site: Site) -> Expansion:
    """MatMulNBits: A by B of N rows of K numbers of 2, 4 or 8 bits, in blocks that have a scale and a zero point each.

    Inputs: A, B (u8 [N, blocks, bytes]), scales [N blocks], zero points, g_idx (the block of each of K inputs), bias
    [N]. All but A and the bias must be constants.
    """
    bits, block = site.integer("bits", 4), site.integer("block_size", 0)
    rows, columns = site.integer("N", 0), site.integer("K", 0)
    if bits not in (2, 4, 8) or block < 1 or rows < 1 or columns < 1:
        raise Unsupported("its blocks are no numbers of 2, 4 or 8 bits", AGAIN)
    packed, scales = site.known(1, "B"), site.known(2, "scales")
    blocks = -(-columns // block)
    if packed is None or scales is None or packed.dtype != np.uint8:
        raise Unsupported("its B is no constant of bytes, or its scales are none", AGAIN)
    if scales.size != rows * blocks:
        raise Unsupported(
            f"it has {scales.size} scales, and {rows} rows of {blocks} blocks need {rows * blocks}", AGAIN
        )
    if (held := packed.size // rows * 8 // bits) < blocks * block or packed.size % rows:
        raise Unsupported(f"B holds {held} numbers a row, where {blocks * block} are needed", AGAIN)
    zeros: np.ndarray = np.full((rows, blocks), 2.0 ** (bits - 1), np.float32)
    if (given := site.known(3, "zero_points")) is not None:
        each = -(-blocks * bits // 8) if given.dtype == np.uint8 else blocks
        if given.size != rows * each:
            needed = f"{rows} rows of {blocks} blocks need {rows * each}"
            raise Unsupported(f"its zero_points have {given.size} elements, and {needed}", AGAIN)
        flat = unpacked(given.reshape(rows, -1), bits) if given.dtype == np.uint8 else given.reshape(rows, -1)
        zeros = flat[:, :blocks].astype(np.float32)
    order, of = _order(site, columns, blocks, block)
    factors = scales.reshape(rows, blocks).astype(np.float32)

    def dequantised(packed: np.ndarray) -> np.ndarray:
        codes = _across(unpacked(packed.reshape(rows, -1), bits))
        real_ = (codes if order is None else codes[order])[:columns].astype(np.float32)
        ends = np.searchsorted(of, np.arange(blocks + 1))
        for at in range(blocks):
            part = real_[ends[at] : ends[at + 1]]
            part -= zeros[:, at]
            part *= factors[:, at]
        return aside(real_)

    beside = hashlib.sha256(b"".join(one.tobytes() for one in (zeros, factors, of)))
    beside.update(b"" if order is None else order.tobytes())
    real_ = DEQUANTISED.of(packed, f"{bits} {block} {rows} {columns} {beside.hexdigest()}", dequantised)
    composition = Composition(site)
    dtype = site.first.dtype
    a = composition.cast("x0", dtype, DType.F32)  # weights are not rounded to a half type, as ONNX Runtime's are not
    if order is not None:
        a = composition.call("Gather", a, composition.constant(order), axis=-1)
    y = composition.call("MatMul", a, composition.constant(real_))
    y = composition.cast(y, DType.F32, dtype)
    return composition.gives(composition.call("Add", y, "x5") if is_there(site, 5) else y)


def _order(site: Site, columns: int, blocks: int, block: int) -> tuple[np.ndarray | None, np.ndarray]:
    """The order in which inputs lie block by block, and the block of each in that order, both int64[columns].

    Without g_idx they lie so as they are: None.
    """
    if not is_there(site, 4):
        return None, np.arange(columns) // block
    found = site.known(4, "g_idx")
    if found is None or found.size < columns or found.min() < 0 or found.max() >= blocks:
        raise Unsupported(f"its g_idx does not give one of {blocks} blocks to each of {columns} inputs", AGAIN)
    of = found.reshape(-1)[:columns].astype(np.int64)
    order = np.argsort(of, kind="stable")
    return order, of[order]


def unpacked(array: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of 2, 4 or 8 bits out of bytes along the last axis, the lowest bits first."""
    each = 8 // bits
    apart = np.empty((*array.shape, each), np.uint8)
    for at in range(each):
        np.right_shift(array, at * bits, out=apart[..., at])
        apart[..., at] &= 2**bits - 1
    return apart.reshape(*array.shape[:-1], -1)


def _across(codes: np.ndarray) -> np.ndarray:
    """A matrix of bytes transposed, a few rows at a time, so that what is read stays in the nearest cache."""
    across = np.empty(codes.shape[::-1], codes.dtype)
    for at in range(0, len(codes), ROWS_AT_ONCE):
        across[:, at : at + ROWS_AT_ONCE] = codes[at : at + ROWS_AT_ONCE].T
    return across


def table(site: Site) -> Expansion:
    """GatherBlockQuantized: rows of a constant table of 4 or 8 bits, in blocks along an axis.

    Inputs: data, indices, scales, zero points.
    """
    data, scales, zeros = (site.known(at, name) for at, name in ((0, "data"), (2, "scales"), (3, "zero_points")))
    if data is None or scales is None:
        raise Unsupported("it has no table", AGAIN)
    bits, block = site.integer("bits", 4), site.integer("block_size", 128)
    axis, along = site.integer("quantize_axis", 1) % data.ndim, site.integer("gather_axis", 0)
    is_packed = data.dtype == np.uint8
    if is_packed and axis != data.ndim - 1 and bits < 8:
        raise Unsupported("its table is packed along another axis than the last", AGAIN)
    codes = unpacked(data, bits) if is_packed else data
    middle = 2.0 ** (bits - 1) if is_packed else 0.0
    blocks = tuple(-(-dim // block) if at == axis else dim for at, dim in enumerate(codes.shape))
    held = (*blocks[:-1], -(-blocks[-1] * bits // 8)) if is_packed else blocks
    for name, array, wanted in (("scales", scales, blocks), ("zero_points", zeros, held)):
        if array is not None and array.shape != wanted:
            needed = f"blocks of {block} of {list(codes.shape)} numbers need {list(wanted)}"
            raise Unsupported(f"its {name} are {list(array.shape)}, and {needed}", AGAIN)
    if zeros is not None and is_packed and bits < 8:
        zeros = unpacked(zeros, bits)[..., : scales.shape[-1]]
    composition = Composition(site)
    if is_packed and data.ndim == 2 and (axis, along) == (1, 0) and codes.shape[1] == scales.shape[1] * block:
        return composition.gives(_rows(site, composition, (data, scales, zeros), bits))

    def spread(array: np.ndarray) -> np.ndarray:
        rows: np.ndarray = np.repeat(array.astype(np.float32), block, axis)
        return np.take(rows, np.arange(codes.shape[axis]), axis)

    real_ = (codes.astype(np.float32) - (middle if zeros is None else spread(zeros))) * spread(scales)
    whole = composition.constant(real_.astype(scales.dtype))
    return composition.gives(composition.call("Gather", whole, "x1", axis=along))


def _rows(
    site: Site, composition: Composition, table_: tuple[np.ndarray, np.ndarray, np.ndarray | None], bits: int
) -> str:
    """Rows of a table [rows, bytes] that stays packed: gathered as bytes, then made floats.

    Beside it are scales [rows, blocks] and, if given, zero points [rows, blocks], which are not packed.
    """
    data, scales, zeros = table_
    call, dims = composition.call, site.given(1).dims
    dtype = DType.of(scales.dtype)
    octets = call("Gather", composition.constant(data), "x1", axis=0)
    mask = composition.constant(np.array(2**bits - 1, np.uint8))
    parts = [
        call(
            "BitwiseAnd",
            call("BitShift", octets, composition.constant(np.array(at, np.uint8)), direction="RIGHT"),
            mask,
        )
        for at in range(0, 8, bits)
    ]
    beside = [composition.reshape(part, *dims, data.shape[1], 1) for part in parts]
    codes = call("Concat", *beside, axis=-1) if len(beside) > 1 else octets
    blocks = (*dims, scales.shape[1])
    numbers = composition.cast(composition.reshape(codes, *blocks, -1), DType.U8, DType.F32)
    middle = composition.constant(np.array(2.0 ** (bits - 1), np.float32))
    if zeros is not None:
        each = call("Gather", composition.constant(zeros.astype(np.float32)), "x1", axis=0)
        middle = composition.reshape(each, *blocks, 1)
    factors = call("Gather", composition.constant(scales.astype(np.float32)), "x1", axis=0)
    whole = call("Mul", call("Sub", numbers, middle), composition.reshape(factors, *blocks, 1))
    return composition.cast(composition.reshape(whole, *dims, data.shape[1] * 8 // bits), DType.F32, dtype)


def lstm(site: Site) -> Expansion:
    """DynamicQuantizeLSTM: products of x and W as bytes, then an LSTM whose states are made bytes at every step.

    Inputs: as of an LSTM but for W and R, codes [directions, inputs, 4 hidden]; then scale and zero point of W and of
    R, for a direction or each of its rows. x has one range, of all steps that a sequence has.
    """
    composition = Composition(site)
    call, ((directions, features, rows), wide) = composition.call, (site.given(1).dims, CODES[DType.I16])

    def each(position: int, *dims: int) -> str:
        """A scale or zero point for each row of each direction."""
        parts = composition.reshape(f"x{position}", directions, -1)
        return composition.reshape(call("Expand", parts, composition.ints(directions, rows)), *dims)

    octets, scale, zero = composition.results("DynamicQuantizeLinear", (_as_long(site, composition),), 3)
    w = composition.reshape(call("Transpose", "x1", perm=(1, 0, 2)), features, directions * rows)
    sums = _product(site, composition, (octets, w, zero, each(9, -1)), (scale, each(8, -1)), "")
    r = call("Sub", call("Cast", "x2", to=wide), call("Cast", each(11, directions, 1, rows), to=wide))
    r = call("Transpose", r, perm=(0, 2, 1))
    r = call("Cast", r, to=CODES[DType.I8]) if _are_bytes(site) else r
    rest = (_or_none(site, at) for at in range(3, 8))
    given = (sums, "", r, *rest, each(10, directions, rows))
    return composition.gives(*composition.results(OWN_LSTM, given, len(site.results), **site.call.attrs))


def _are_bytes(site: Site) -> bool:
    """Whether the codes of R less their zero points are known, and signed bytes."""
    codes, zeros = site.constants[2], site.constants[11]
    if codes is None or zeros is None:
        return False
    whole = codes.astype(np.int16) - (zeros.reshape(len(codes), 1, -1) if zeros.size > 1 else zeros).astype(np.int16)
    return bool(whole.min() >= -128 and whole.max() <= 127)


def _as_long(site: Site, composition: Composition) -> str:
    """x with zeros past the longest sequence, which no range has to hold."""
    if not is_there(site, 4):
        return "x0"
    call = composition.call
    steps = call("Slice", call("Shape", "x0"), composition.ints(0), composition.ints(1))
    ordinals = call("CumSum", call("Expand", composition.ints(1), steps), composition.ints(0))
    longest = call("ReduceMax", call("Cast", "x4", to=CODES[DType.I64]), keepdims=0)
    read = call("Unsqueeze", call("LessOrEqual", ordinals, longest), composition.ints(1, 2))
    return call("Where", read, "x0", composition.constant(np.zeros((), np.float32)))


PACKED: dict[str, Callable[[Site], Expansion]] = {
    "DynamicQuantizeLSTM": lstm,
    "DynamicQuantizeMatMul": dynamic,
    "GatherBlockQuantized": table,
    "MatMulIntegerToFloat": to_float,
    "MatMulNBits": in_blocks,
    "QGemm": gemm,
    "QLinearWhere": where,
}
