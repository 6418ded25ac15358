"""Small models with the structure of those that people export: what varies in them varies as it does there.

Weights are random, of a fixed seed. `Weights` holds them, so that the graphs can be written in ONNX's text form.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

from tests.compiler.pipelines import boosting

F32, I64 = np.float32, np.int64
BREVITAS = "onnx.brevitas"


class Weights:
    """Constants of a graph: random ones by name and shape, and given ones."""

    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)
        self.held: dict[str, np.ndarray] = {}

    def draw(self, **shapes: Sequence[int]) -> None:
        """Normal numbers; matrices and filters are scaled by the number of terms that a result sums."""
        for name, shape in shapes.items():
            terms = np.prod(shape[1:]) if len(shape) == 4 else shape[0] if len(shape) == 2 else 4
            self.held[name] = (self._chance.standard_normal(shape) * terms**-0.5).astype(F32)

    def give(self, **arrays: Any) -> None:
        """Arrays, and numbers as int64."""
        for name, array in arrays.items():
            found = np.asarray(array)
            self.held[name] = found.astype(F32) if found.dtype == np.float64 else found

    def model(self, text: str, *opsets: tuple[str, int], opset: int = 17) -> bytes:
        """The graph of a text with these constants."""
        imports = ", ".join(f'"{name}" : {version}' for name, version in (("", opset), *opsets))
        made = parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> {text}")
        made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in self.held.items())
        return bytes(made.SerializeToString())


def cached_decoder(width: int = 16, heads: int = 2, words: int = 24, most: int = 520) -> bytes:
    """One layer of a decoder with a past that grows: tokens [1, s], caches [1, heads, p, each] -> logits and caches."""
    weights, each = Weights(1), width // heads
    weights.draw(table=(words, width), place=(most, width), wq=(width, width), wk=(width, width), wv=(width, width))
    weights.draw(wo=(width, width), up=(width, 2 * width), down=(2 * width, width), head=(width, words))
    weights.give(gamma=np.ones(width), beta=np.zeros(width), scale=F32(each**-0.5), low=F32(-1e9), zero=F32(0))
    weights.give(split=[1, -1, heads, each], flat=[1, -1, width], none=0, one=1, two=2, front=[0], last=[1])
    return weights.model(f"""g (int64[1,s] tokens, float[1,{heads},p,{each}] past_k, float[1,{heads},p,{each}] past_v)
    => (float[1,s,{words}] logits, float[1,{heads},t,{each}] present_k, float[1,{heads},t,{each}] present_v) {{
        shape = Shape(tokens)
        new = Gather(shape, one)
        pshape = Shape(past_k)
        past = Gather(pshape, two)
        total = Add(past, new)
        places = Range(past, total, one)
        embedded = Gather(table, tokens)
        position = Gather(place, places)
        x = Add(embedded, position)
        n = LayerNormalization<axis = -1>(x, gamma, beta)
        q0 = MatMul(n, wq)  k0 = MatMul(n, wk)  v0 = MatMul(n, wv)
        q1 = Reshape(q0, split)  k1 = Reshape(k0, split)  v1 = Reshape(v0, split)
        q = Transpose<perm = [0, 2, 1, 3]>(q1)
        k = Transpose<perm = [0, 2, 1, 3]>(k1)
        v = Transpose<perm = [0, 2, 1, 3]>(v1)
        present_k = Concat<axis = 2>(past_k, k)
        present_v = Concat<axis = 2>(past_v, v)
        kt = Transpose<perm = [0, 1, 3, 2]>(present_k)
        products = MatMul(q, kt)
        scaled = Mul(products, scale)
        all = Range(none, total, one)
        row = Unsqueeze(places, last)
        seen = LessOrEqual(all, row)
        mask = Where(seen, zero, low)
        masked = Add(scaled, mask)
        shares = Softmax<axis = -1>(masked)
        mixed = MatMul(shares, present_v)
        turned = Transpose<perm = [0, 2, 1, 3]>(mixed)
        joined = Reshape(turned, flat)
        attended = MatMul(joined, wo)
        middle = Add(x, attended)
        m = LayerNormalization<axis = -1>(middle, gamma, beta)
        wide = MatMul(m, up)
        active = Relu(wide)
        narrow = MatMul(active, down)
        after = Add(middle, narrow)
        logits = MatMul(after, head)
    }}""")


def transcriber(width: int = 16, mels: int = 8, words: int = 24, steps: int = 12) -> bytes:
    """Sound [1, mels, frames] to tokens [n, 1] as Whisper does it: an encoder, and a loop that decodes until its end.

    The loop attends to what the encoder gives, and carries its own keys, which grow by one in each turn.
    """
    weights = Weights(2)
    weights.draw(c1=(width, mels, 3), c2=(width, width, 3), wq=(width, width), wk=(width, width), wv=(width, width))
    weights.draw(table=(words, width), dq=(width, width), dk=(width, width), cq=(width, width), ck=(width, width))
    weights.draw(cv=(width, width), head=(width, words), position=(steps, width))
    weights.give(gamma=np.ones(width), beta=np.zeros(width), scale=F32(width**-0.5), most=steps, on=np.array(True))
    weights.give(start=np.array([1]), none=np.zeros((0, width)), end=3, front=[0])
    return weights.model(
        f"""g (float[1,{mels},frames] mel) => (int64[n,1] tokens, float[1,m,{width}] states) {{
        e1 = Conv<pads = [1, 1]>(mel, c1)
        e2 = Gelu(e1)
        e3 = Conv<pads = [1, 1], strides = [2]>(e2, c2)
        e4 = Gelu(e3)
        e = Transpose<perm = [0, 2, 1]>(e4)
        n = LayerNormalization(e, gamma, beta)
        q = MatMul(n, wq)  k = MatMul(n, wk)  v = MatMul(n, wv)
        kt = Transpose<perm = [0, 2, 1]>(k)
        products = MatMul(q, kt)
        scaled = Mul(products, scale)
        shares = Softmax(scaled)
        mixed = MatMul(shares, v)
        states = Add(e, mixed)
        flat = Squeeze(states, front)
        keys0 = MatMul(flat, ck)
        keys = Transpose(keys0)
        values = MatMul(flat, cv)
        lastone, kept, tokens = Loop<body = step (int64 i, bool c, int64[1] token, float[past,{width}] own)
            => (bool again, int64[1] next, float[longer,{width}] more, int64[1] word) {{
            x0 = Gather(table, token)
            here = Unsqueeze(i, front)
            p = Gather(position, here)
            x = Add(x0, p)
            k1 = MatMul(x, dk)
            more = Concat<axis = 0>(own, k1)
            q1 = MatMul(x, dq)
            mt = Transpose(more)
            s1 = MatMul(q1, mt)
            s2 = Softmax(s1)
            a1 = MatMul(s2, more)
            x1 = Add(x, a1)
            q2 = MatMul(x1, cq)
            s3 = MatMul(q2, keys)
            s4 = Mul(s3, scale)
            s5 = Softmax(s4)
            a2 = MatMul(s5, values)
            x2 = Add(x1, a2)
            x3 = LayerNormalization(x2, gamma, beta)
            logits = MatMul(x3, head)
            next = ArgMax<axis = -1, keepdims = 0>(logits)
            word = Identity(next)
            found = Squeeze(next, front)
            is_end = Equal(found, end)
            again = Not(is_end)
        }}>(most, on, start, none)
    }}""",
        opset=20,
    )


def detector(channels: int = 8, classes: int = 3) -> bytes:
    """Image [1, 3, 64, 64] to boxes, scores and classes [n, ...] that NonMaxSuppression keeps, by limits of the run."""
    weights, cells = Weights(3), 16
    weights.draw(w1=(channels, 3, 3, 3), w2=(channels, channels, 3, 3), wb=(4, channels, 1, 1))
    weights.draw(ws=(classes, channels, 1, 1))
    rows = (np.arange(cells) + 0.5) / cells
    grid = np.stack(np.meshgrid(rows, rows, indexing="ij"), -1).reshape(1, cells * cells, 2)
    weights.give(grid=grid.astype(F32), boxes_of=[1, 4, -1], scores_of=[1, classes, -1], tenth=F32(0.15), two=F32(2.0))
    weights.give(first=[0], second=[1], third=[2], fourth=[3], last=[2], ends=[4], minus=[-1], past=[3])
    return weights.model("""g (float[1,3,64,64] image, int64[1] most, float[1] iou, float[1] least)
    => (float[n,4] boxes, float[n] scores, int64[n] classes) {
        a1 = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(image, w1)
        a2 = Sigmoid(a1)
        a3 = Mul(a1, a2)
        a4 = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a3, w2)
        a5 = Relu(a4)
        b1 = Conv(a5, wb)
        b2 = Reshape(b1, boxes_of)
        b3 = Transpose<perm = [0, 2, 1]>(b2)
        moves = Slice(b3, first, third, last)
        centre0 = Tanh(moves)
        centre1 = Mul(centre0, tenth)
        centre = Add(centre1, grid)
        sizes = Slice(b3, third, ends, last)
        size0 = Exp(sizes)
        size = Mul(size0, tenth)
        half = Div(size, two)
        low = Sub(centre, half)
        high = Add(centre, half)
        all = Concat<axis = 2>(low, high)
        s1 = Conv(a5, ws)
        s2 = Reshape(s1, scores_of)
        s3 = Sigmoid(s2)
        kept = NonMaxSuppression(all, s3, most, iou, least)
        class1 = Slice(kept, second, third, second)
        classes = Squeeze(class1, second)
        box1 = Slice(kept, third, past, second)
        box2 = Squeeze(box1, second)
        flat = Squeeze(all, first)
        boxes = Gather(flat, box2)
        scores = GatherND(s3, kept)
    }""")


def voice_activity(width: int = 8) -> bytes:
    """Sound [1, samples], state [2, 1, width] and a rate to a probability and the next state, as Silero is written.

    The rate selects one of two networks while running, and in each an If asks the state for a reset.
    """
    weights = Weights(4)
    for rate, taps in (("hi", 32), ("lo", 16)):
        weights.draw(**{f"{rate}_basis": (2 * width, 1, taps), f"{rate}_filter": (width, width, 3)})
        weights.draw(**{f"{rate}_w": (1, 4 * width, width), f"{rate}_r": (1, 4 * width, width)})
        weights.draw(**{f"{rate}_head": (width, 1), f"{rate}_b": (1, 8 * width)})
    weights.give(rate=16000, first=[0], second=[1], third=[2], middle=[width], ends=[2 * width], limit=F32(40.0))

    def branch(rate: str, stride: int) -> str:
        return f"""{rate} () => (float[1,1] {rate}_p, float[2,1,{width}] {rate}_n) {{
            {rate}_wide = Unsqueeze(x, second)
            {rate}_f = Conv<strides = [{stride}]>({rate}_wide, {rate}_basis)
            {rate}_re = Slice({rate}_f, first, middle, second)
            {rate}_im = Slice({rate}_f, middle, ends, second)
            {rate}_re2 = Mul({rate}_re, {rate}_re)
            {rate}_im2 = Mul({rate}_im, {rate}_im)
            {rate}_sq = Add({rate}_re2, {rate}_im2)
            {rate}_m = Sqrt({rate}_sq)
            {rate}_c = Conv<pads = [1, 1]>({rate}_m, {rate}_filter)
            {rate}_a = Relu({rate}_c)
            {rate}_s = Transpose<perm = [2, 0, 1]>({rate}_a)
            {rate}_loud = ReduceMax<keepdims = 0>({rate}_a)
            {rate}_reset = Greater({rate}_loud, limit)
            {rate}_state = If<
                then_branch = {rate}_t () => (float[2,1,{width}] {rate}_z) {{ {rate}_z = Sub(state, state) }},
                else_branch = {rate}_e () => (float[2,1,{width}] {rate}_i) {{ {rate}_i = Identity(state) }}
            >({rate}_reset)
            {rate}_h0 = Slice({rate}_state, first, second, first)
            {rate}_c0 = Slice({rate}_state, second, third, first)
            {rate}_y, {rate}_h, {rate}_k = LSTM<hidden_size = {width}>(
                {rate}_s, {rate}_w, {rate}_r, {rate}_b, , {rate}_h0, {rate}_c0)
            {rate}_n = Concat<axis = 0>({rate}_h, {rate}_k)
            {rate}_h1 = Squeeze({rate}_h, first)
            {rate}_o = MatMul({rate}_h1, {rate}_head)
            {rate}_p = Sigmoid({rate}_o)
        }}"""

    return weights.model(f"""g (float[1,samples] x, float[2,1,{width}] state, int64 sr)
    => (float[1,1] probability, float[2,1,{width}] next) {{
        is_high = Equal(sr, rate)
        probability, next = If<then_branch = {branch("hi", 16)}, else_branch = {branch("lo", 8)}>(is_high)
    }}""")


def graph_network(features: int = 6, width: int = 8) -> bytes:
    """Two layers of graph convolution over nodes [n, features] and edges [2, m]: means of neighbours and oneself."""
    weights = Weights(5)
    weights.draw(w1=(features, width), w2=(width, 3), b1=(width,))
    weights.give(first=0, second=1, axis=[0], column=[1], one=F32(1.0))

    def layer(x: str, w: str, to: str) -> str:
        return f"""{to}_xw = MatMul({x}, {w})
        {to}_sent = Gather({to}_xw, source)
        {to}_zero = Sub({to}_xw, {to}_xw)
        {to}_got = ScatterND<reduction = "add">({to}_zero, rows, {to}_sent)
        {to}_sum = Add({to}_got, {to}_xw)
        {to} = Div({to}_sum, degree)
        """

    return weights.model(f"""g (float[n,{features}] x, int64[2,m] edges) => (float[n,3] y, float[1,3] whole) {{
        source = Gather<axis = 0>(edges, first)
        target = Gather<axis = 0>(edges, second)
        rows = Unsqueeze(target, column)
        ones_x = ReduceSum<keepdims = 0>(x, column)
        ones_0 = Sub(ones_x, ones_x)
        each_0 = Gather(ones_0, source)
        each = Add(each_0, one)
        count0 = ScatterND<reduction = "add">(ones_0, rows, each)
        count1 = Add(count0, one)
        degree = Unsqueeze(count1, column)
        {layer("x", "w1", "l1")}
        biased = Add(l1, b1)
        active = Relu(biased)
        {layer("active", "w2", "y")}
        whole = ReduceMean<axes = [0]>(y)
    }}""")


def text_detector(channels: int = 8) -> bytes:
    """Image [1, 3, h, w] to a map of probabilities [1, 1, h, w], as PaddleOCR's DB detector is exported."""
    weights, c = Weights(6), channels
    weights.draw(stem=(c, 3, 3, 3), deep1=(c, 1, 3, 3), point1=(2 * c, c, 1, 1), deep2=(2 * c, 1, 3, 3))
    weights.draw(point2=(2 * c, 2 * c, 1, 1), se1=(4, 2 * c, 1, 1), se2=(2 * c, 4, 1, 1), lat1=(c, 2 * c, 1, 1))
    weights.draw(lat2=(c, 2 * c, 1, 1), out=(c, c, 3, 3), up1=(2 * c, c, 2, 2), up2=(c, 1, 2, 2))
    weights.draw(scale=(c,), shift=(c,), mean=(c,))
    weights.give(var=np.full(c, 0.5), two=[2], four=[4], empty=np.zeros(0), start=[0])
    weights.give(third=2, fourth=3)
    return weights.model("""g (float[1,3,h,w] image) => (float[1,1,h,w] chances) {
        a0 = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(image, stem)
        a1 = BatchNormalization(a0, scale, shift, mean, var)
        a = HardSwish(a1)
        b0 = Conv<strides = [2, 2], pads = [1, 1, 1, 1], group = 8>(a, deep1)
        b1 = Conv(b0, point1)
        b = HardSwish(b1)
        c0 = Conv<strides = [2, 2], pads = [1, 1, 1, 1], group = 16>(b, deep2)
        s0 = GlobalAveragePool(c0)
        s1 = Conv(s0, se1)
        s2 = Relu(s1)
        s3 = Conv(s2, se2)
        s4 = HardSigmoid(s3)
        c1 = Mul(c0, s4)
        c2 = Conv(c1, point2)
        c = HardSwish(c2)
        p1 = Conv(c, lat1)
        p2 = Conv(b, lat2)
        shape = Shape(p2)
        sizes = Slice(shape, two, four, start)
        front0 = Shape(p1)
        front = Slice(front0, start, two, start)
        wanted = Concat<axis = 0>(front, sizes)
        p3 = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(
            p1, , , wanted)
        p4 = Add(p3, p2)
        p5 = Conv<pads = [1, 1, 1, 1]>(p4, out)
        p6 = Concat<axis = 1>(p5, p3)
        u1 = ConvTranspose<strides = [2, 2]>(p6, up1)
        u2 = Relu(u1)
        u3 = ConvTranspose<strides = [2, 2]>(u2, up2)
        chances = Sigmoid(u3)
    }""")


def churn() -> bytes:
    """Gradient boosting over categories that are strings, of any number of rows."""
    return bytes(boosting("rows").SerializeToString())


def encoder_block(width: int = 16, heads: int = 2, words: int = 24, most: int = 32) -> bytes:
    """One layer of BERT in float32, for quantising tools: ids and mask [b, s] -> states [b, s, width]."""
    weights, each = Weights(7), width // heads
    weights.draw(table=(words, width), place=(most, width), wq=(width, width), wk=(width, width), wv=(width, width))
    weights.draw(wo=(width, width), up=(width, 2 * width), down=(2 * width, width), kinds=(2, width))
    weights.draw(bq=(width,), bk=(width,), bv=(width,), bo=(width,), bu=(2 * width,), bd=(width,))
    weights.give(gamma=np.ones(width), beta=np.zeros(width), root=F32(each**0.5), low=F32(-10000.0), one=F32(1.0))
    weights.give(split=[0, 0, heads, each], flat=[0, 0, width], none=0, second=1, front=[0], wide=[1, 2])
    weights.give(r2=F32(2**0.5), half=F32(0.5), places=np.arange(most)[None], ends=[1])
    return weights.model(f"""g (int64[b,s] ids, int64[b,s] mask) => (float[b,s,{width}] states) {{
        shape = Shape(ids)
        count = Gather(shape, second)
        length = Unsqueeze(count, front)
        here = Slice(places, front, length, ends)
        embedded = Gather(table, ids)
        position = Gather(place, here)
        x0 = Add(embedded, position)
        x = LayerNormalization<axis = -1>(x0, gamma, beta)
        mq = MatMul(x, wq)  mk = MatMul(x, wk)  mv = MatMul(x, wv)
        q0 = Add(bq, mq)  k0 = Add(bk, mk)  v0 = Add(bv, mv)
        q1 = Reshape(q0, split)  k1 = Reshape(k0, split)  v1 = Reshape(v0, split)
        q = Transpose<perm = [0, 2, 1, 3]>(q1)
        k = Transpose<perm = [0, 2, 3, 1]>(k1)
        v = Transpose<perm = [0, 2, 1, 3]>(v1)
        products = MatMul(q, k)
        scaled = Div(products, root)
        m0 = Unsqueeze(mask, wide)
        m1 = Cast<to = 1>(m0)
        m2 = Sub(one, m1)
        m3 = Mul(m2, low)
        masked = Add(scaled, m3)
        shares = Softmax<axis = -1>(masked)
        mixed = MatMul(shares, v)
        turned = Transpose<perm = [0, 2, 1, 3]>(mixed)
        joined = Reshape(turned, flat)
        o0 = MatMul(joined, wo)
        o1 = Add(bo, o0)
        o2 = Add(o1, x)
        middle = LayerNormalization<axis = -1>(o2, gamma, beta)
        u0 = MatMul(middle, up)
        u1 = Add(bu, u0)
        g0 = Div(u1, r2)
        g1 = Erf(g0)
        g2 = Add(g1, one)
        g3 = Mul(u1, g2)
        g4 = Mul(g3, half)
        d0 = MatMul(g4, down)
        d1 = Add(bd, d0)
        d2 = Add(d1, middle)
        states = LayerNormalization<axis = -1>(d2, gamma, beta)
    }}""")


def quantised_block(folder: Path) -> bytes:
    """`encoder_block` in int8, as ONNX Runtime's quantiser writes it, and its optimiser after that."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain, quantised, optimised = (folder / f"{name}.onnx" for name in ("plain", "quantised", "optimised"))
    plain.write_bytes(encoder_block())
    quantize_dynamic(plain, quantised, weight_type=QuantType.QInt8, reduce_range=True)  # see tests/peers.py
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(optimised)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 3
    onnxruntime.InferenceSession(quantised, options, providers=["CPUExecutionProvider"])
    return optimised.read_bytes()


QUANT = f"""<domain: "{BREVITAS}", opset_import: ["" : 17]>
Quant <signed: int = 1, narrow: int = 0, rounding_mode: string = "ROUND"> (x, scale, zero, bits) => (y) {{
    signed_i = Constant<value_int: int = @signed>()
    narrow_i = Constant<value_int: int = @narrow>()
    is_signed = Cast<to = 1>(signed_i)
    is_narrow = Cast<to = 1>(narrow_i)
    one = Constant<value_float = 1.0>()
    two = Constant<value_float = 2.0>()
    fewer = Sub(bits, one)
    half = Pow(two, fewer)
    least = Sub(is_narrow, half)
    low = Mul(is_signed, least)
    used = Sub(bits, is_signed)
    whole = Pow(two, used)
    most = Sub(whole, one)
    unsigned = Sub(one, is_signed)
    less = Mul(unsigned, is_narrow)
    high = Sub(most, less)
    divided = Div(x, scale)
    moved = Add(divided, zero)
    rounded = Round(moved)
    kept0 = Max(rounded, low)
    kept = Min(kept0, high)
    back = Sub(kept, zero)
    y = Mul(back, scale)
}}"""


def brevitas_network(channels: int = 8, *, defined: bool = False) -> bytes:
    """Images [n, 1, 12, 12] to scores: filters of 4 bits with a scale each, activations of 4 and 8 bits.

    defined  with what Quant means as a function of the model, for those who do not know it
    """
    weights = Weights(8)
    weights.draw(w1=(channels, 1, 3, 3), w2=(channels, channels, 3, 3), head=(channels, 5), b1=(channels,))
    weights.give(
        s1=np.linspace(0.05, 0.1, channels).reshape(-1, 1, 1, 1), s2=F32(0.0213), s3=F32(0.0937), s4=F32(0.1531)
    )
    weights.give(four=F32(4), eight=F32(8), zero=F32(0), middle=F32(0), flat=[0, -1])
    data = weights.model(
        """g (float[n,1,12,12] x) => (float[n,5] y) {
        x0 = Quant<signed = 1, narrow = 0, rounding_mode = "ROUND">(x, s2, zero, eight)
        f1 = Quant<signed = 1, narrow = 1, rounding_mode = "ROUND">(w1, s1, zero, four)
        a1 = Conv(x0, f1, b1)
        a2 = Relu(a1)
        a3 = Quant<signed = 0, narrow = 0, rounding_mode = "ROUND">(a2, s4, zero, four)
        f2 = Quant<signed = 1, narrow = 1, rounding_mode = "ROUND">(w2, s3, zero, four)
        c1 = Conv<strides = [2, 2]>(a3, f2)
        c2 = Relu(c1)
        c3 = Quant<signed = 0, narrow = 0, rounding_mode = "ROUND">(c2, s4, middle, eight)
        p1 = GlobalAveragePool(c3)
        p2 = Reshape(p1, flat)
        h = Quant<signed = 1, narrow = 1, rounding_mode = "ROUND">(head, s3, zero, four)
        y = MatMul(p2, h)
    }""".replace("= Quant", f"= {BREVITAS}.Quant"),
        (BREVITAS, 1),
    )
    if defined:
        made = onnx.load_from_string(data)
        made.functions.append(parser.parse_function(QUANT))
        return bytes(made.SerializeToString())
    return data
