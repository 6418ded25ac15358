"""GroupQueryAttention of com.microsoft over ai.onnx: heads of queries that share keys and values, over a cache.

Source: ONNX Runtime's ContribOperators.md; for padding, windows and the cache, its CPU kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.fused import AGAIN, across, is_there, number, real
from compiler.frontend.expansions.rotary import at_positions, rotated
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Unsupported

KEY, VALUE, PAST_KEY, PAST_VALUE, SEQLENS, TOTAL, COS, SIN, POSITIONS, BIAS, SINK, K_SCALE, V_SCALE = range(1, 14)


@dataclass(frozen=True)
class Sizes:
    """Of one call: rows of the batch, new tokens, tokens of the cache before and after, heads, their width."""

    batch: int
    new: int
    before: int
    after: int
    heads: int
    shared: int
    width: int

    @property
    def groups(self) -> int:
        """How many heads of queries share one of keys and values."""
        return self.heads // self.shared


def grouped(site: Site) -> Expansion:
    """Attention of each new token to those of its row that are not after it; the keys and values with the new ones.

    Inputs: query [B, S, N h] with key and value [B, S, K h], or all three beside each other in the query; past key and
    value [B, K, P, h]; the last token's position of each row [B]; the largest count of tokens; cosines and sines;
    positions [B, S]; a bias of scores [1 or B, 1 or N, S, T]; a score of each head that has no value [N].

    The cache grows to T tokens, the larger of P and the count; where the count is not known when compiling it keeps
    its size, as a buffer that past and present share does. Places of the cache that no token is in hold what they held.
    """
    sizes = _sizes(site)
    composition = Composition(site)
    call, ints = composition.call, composition.ints
    q, k, v = _apart(site, composition, sizes)
    # [B, 1]: how many tokens of each row lie in the cache already; a prompt that is padded at its end has none.
    last = call("Reshape", call("Cast", f"x{SEQLENS}", to=7), ints(sizes.batch, 1), allowzero=0)
    least = composition.constant(np.array(0, np.int64))
    past = call("Max", call("Sub", last, composition.constant(np.array(sizes.new - 1, np.int64))), least)
    places = call("Add", past, composition.constant(np.arange(sizes.new, dtype=np.int64)[None]))  # [B, S]
    if site.integer("do_rotary", 0):
        q, k = _turned(site, composition, sizes, (q, k), places)
    k, v = (_cached(composition, sizes, at, new, past) for at, new in ((PAST_KEY, k), (PAST_VALUE, v)))
    y = _mixed(site, composition, sizes, (q, k, v), places)
    return composition.gives(y, k, v)


def _sizes(site: Site) -> Sizes:
    """Raises Unsupported for forms that are not compiled, and for sizes that do not fit each other."""
    for at, name in ((K_SCALE, "k_scale"), (V_SCALE, "v_scale")):
        if is_there(site, at):
            raise Unsupported(f"its cache is quantised, by {name!r}", "export with a cache of floats")
    if site.integer("qk_output", 0) or any(site.call.outputs[3:]):
        raise Unsupported("its products of queries and keys are asked for", "export without output 'output_qk'")
    heads, shared = site.integer("num_heads", 0), site.integer("kv_num_heads", 0)
    if heads < 1 or shared < 1 or heads % shared:
        raise Unsupported(f"{heads} heads of queries are no multiple of {shared} heads of keys", AGAIN)
    query = site.first
    packed = not is_there(site, KEY)
    count = heads + 2 * shared if packed else heads
    if query.rank != 3 or query.dims[2] % count or is_there(site, VALUE) is packed:
        raise Unsupported(f"{query} holds no {heads} heads with {shared} of keys and of values", AGAIN)
    batch, new, whole = query.dims
    width = whole // count
    total = site.constants[TOTAL] if len(site.constants) > TOTAL else None
    before = 0
    if is_there(site, PAST_KEY) and is_there(site, PAST_VALUE):
        kinds = site.given(PAST_KEY), site.given(PAST_VALUE)
        before = kinds[0].dims[2] if kinds[0].rank == 4 else 0
        _demand(all(kind.dims == (batch, shared, before, width) for kind in kinds), *kinds)
    if total is None and before < new:
        raise Unsupported(
            "input 'total_sequence_length' must be known when compiling where past and present share no buffer",
            "fix it by an option of the inputs, or bind the dimensions that it is computed from",
        )
    after = before if total is None else max(before, int(total.reshape(-1)[0]))
    if after < new or (not packed and (site.given(KEY).dims != site.given(VALUE).dims)):
        raise Unsupported(f"{new} new tokens do not fit a cache of {after}", AGAIN)
    if not packed:
        _demand(site.given(KEY).dims == (batch, new, shared * width), query, site.given(KEY))
    _demand(site.given(SEQLENS).elements == batch, query, site.given(SEQLENS))
    return Sizes(batch, new, before, after, heads, shared, width)


def _demand(fits: bool, *kinds: TensorType) -> None:
    if not fits:
        raise Unsupported(f"{' and '.join(map(str, kinds))} do not fit together", AGAIN)


def _apart(site: Site, composition: Composition, sizes: Sizes) -> tuple[str, str, str]:
    """Queries [B, N, S, h], new keys and values [B, K, S, h]."""
    call, ints = composition.call, composition.ints
    counts = (sizes.heads, sizes.shared, sizes.shared)
    parts = ["x0", f"x{KEY}", f"x{VALUE}"]
    if not is_there(site, KEY):
        ends = np.cumsum((0, *(count * sizes.width for count in counts))).tolist()
        parts = [call("Slice", "x0", ints(begin), ints(end), ints(2)) for begin, end in pairwise(ends)]
    q, k, v = (
        call("Transpose", composition.reshape(part, sizes.batch, sizes.new, count, sizes.width), perm=(0, 2, 1, 3))
        for part, count in zip(parts, counts, strict=True)
    )
    return q, k, v


def _turned(
    site: Site, composition: Composition, sizes: Sizes, operands: tuple[str, str], places: str
) -> tuple[str, str]:
    """Queries and keys rotated by their positions, those of `position_ids` where it is given."""
    cos, sin = site.given(COS), site.given(SIN)
    half = cos.dims[-1]
    _demand(cos.rank == 2 and cos.dims == sin.dims and 2 * half <= sizes.width, cos, sin)
    if is_there(site, POSITIONS):
        places = f"x{POSITIONS}"
    tables = at_positions(composition, (f"x{COS}", f"x{SIN}"), places)
    pairs = bool(site.integer("rotary_interleaved", 0))
    q, k = (rotated(composition, part, tables, half, sizes.width, pairs) for part in operands)
    return q, k


def _cached(composition: Composition, sizes: Sizes, at: int, new: str, past: str) -> str:
    """[B, K, T, h]: a cache with the new tokens of each row after its past ones.

    A cache that grows is padded, which fusion makes one pass with the tokens that are put into it.
    """
    call = composition.call

    def padded(part: str, more: int) -> str:
        return call("Pad", part, composition.ints(0, 0, 0, 0, 0, 0, more, 0), mode="constant") if more else part

    if sizes.before == 0:
        return padded(new, sizes.after - sizes.new)
    starts = composition.reshape(past, sizes.batch)
    cache = padded(f"x{at}", sizes.after - sizes.before)
    return call("TensorScatter", cache, new, starts, axis=2, mode="linear")


def _mixed(site: Site, composition: Composition, sizes: Sizes, operands: tuple[str, str, str], places: str) -> str:
    """[B, S, N h]: softmax(softcap(scale Q K^T) + bias) V over the tokens that each may see.

    Scores are [B, K, N / K, S, T]: heads of queries that share keys are a dimension of their own. With a sink, a score
    of each head that takes its share of the sum and has no value, there is a key more before the first: of zeros, with
    a value of zeros.
    """
    call, ints = composition.call, composition.ints
    dtype, sink = site.first.dtype, _sink(site, composition, sizes)
    q, *cached = operands
    q = composition.reshape(q, sizes.batch, sizes.shared, sizes.groups, sizes.new, sizes.width)
    k, v = (call("Unsqueeze", part, ints(2)) for part in cached)
    k = across(composition, k, 5)
    if sink:
        k = call("Pad", k, ints(0, 0, 0, 0, 1, 0, 0, 0, 0, 0), mode="constant")
        v = call("Pad", v, ints(0, 0, 0, 1, 0, 0, 0, 0, 0, 0), mode="constant")
    scale = real(site, "scale", 0.0) or float(sizes.width) ** -0.5
    scores = call("Mul", call("MatMul", q, k), number(composition, scale, dtype))
    softcap = real(site, "softcap", 0.0)
    if softcap > 0:
        cap = number(composition, softcap, dtype)
        scores = call("Mul", call("Tanh", call("Div", scores, cap)), cap)
    if is_there(site, BIAS):
        bias = _bias(site, composition, sizes)
        if sink:
            bias = call("Pad", bias, ints(0, 0, 0, 0, 1, 0, 0, 0, 0, 0), mode="constant")
        scores = call("Add", scores, bias)
    own = call("Unsqueeze", places, ints(1, 2, 4))  # [B, 1, 1, S, 1]
    numbers = np.arange(sizes.after + 1, dtype=np.int64) - 1 if sink else np.arange(sizes.after, dtype=np.int64)
    keys = composition.constant(numbers)
    seen = call("LessOrEqual", keys, own)
    window = site.integer("local_window_size", -1)
    if window > 0:
        first = call("Greater", keys, call("Sub", own, composition.constant(np.array(window, np.int64))))
        first = call("Or", first, composition.constant(numbers < 0)) if sink else first
        seen = call("And", seen, first)
    if sink:
        scores = call("Where", composition.constant(numbers < 0), sink, scores)
    lowest = -65504.0 if dtype is DType.F16 else -3e38
    scores = call("Where", seen, scores, number(composition, lowest, dtype))
    mixed = call("Transpose", call("MatMul", call("Softmax", scores, axis=-1), v), perm=(0, 3, 1, 2, 4))
    return composition.reshape(mixed, sizes.batch, sizes.new, sizes.heads * sizes.width)


def _sink(site: Site, composition: Composition, sizes: Sizes) -> str:
    """[1, K, N / K, 1, 1]: the score of each head's sink, 0 for a smooth softmax; the empty name without any."""
    if is_there(site, SINK):
        _demand(site.given(SINK).elements == sizes.heads, site.first, site.given(SINK))
        return composition.reshape(f"x{SINK}", 1, sizes.shared, sizes.groups, 1, 1)
    return number(composition, 0.0, site.first.dtype) if site.integer("smooth_softmax", 0) > 0 else ""


def _bias(site: Site, composition: Composition, sizes: Sizes) -> str:
    """What is added to scores, [1 or B, 1 or K, 1 or N / K, 1 or S, T]."""
    bias, ints, part = site.given(BIAS), composition.ints, f"x{BIAS}"
    wanted = (sizes.batch, sizes.heads, sizes.new)
    fits = bias.rank == 4 and all(extent in (1, size) for extent, size in zip(bias.dims[:3], wanted, strict=True))
    _demand(fits and bias.dims[3] >= sizes.after, site.first, bias)
    if bias.dims[3] > sizes.after:
        part = composition.call("Slice", part, ints(0), ints(sizes.after), ints(3))
    batch, heads, new = bias.dims[:3]
    apart = (sizes.shared, sizes.groups) if heads == sizes.heads else (1, 1)
    return composition.reshape(part, batch, *apart, new, sizes.after)
