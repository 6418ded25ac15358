"""A model as its packed form: loaded at three sizes that show its axes, then rewritten for the tokens of many texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from compiler.contract import CompileOptions, DimRange, InputSpec
from compiler.errors import OptionsError
from compiler.frontend.load import Loaded, load
from compiler.frontend.ragged.alone import one_by_one
from compiler.frontend.ragged.packing import Packing
from compiler.frontend.ragged.roles import Seen, refused, see
from compiler.frontend.ragged.segments import Writer, demands, limits, scalar, segments
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import quoted
from compiler.frontend.reading.read import ModelFile, read
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import OpenDimension, OpenShapes, PackedTexts
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Operator

OFFSETS = "offsets"
"""The input that says where texts begin, with underscores where the model has one of that name."""
MOST_TEXTS = 64
"""Of a run, where dims do not say it."""
MOST_TOKENS = 2048
"""Of a run, unless one text may be longer: products of more rows are no faster."""
MASK = "mask"
"""In the name of an input that says which tokens count: all of a text that is not padded do."""
SHORTEST = 3
"""Tokens that the longest text must have for axes to be told apart."""
TRIED = 8
"""Tokens of a text for which it is tried whether the model can be packed."""
TYPICAL = 24
"""Tokens of a text, where nothing else is known."""


@dataclass(frozen=True)
class Texts:
    """A model that takes the tokens of many texts as one axis.

    options  of the compilation, with the dimensions of texts and tokens left out
    masks    inputs of the model that are ones for each token, and that no caller gives
    offsets  name of the input that says where texts begin
    most     texts of a run; `tokens` of all of them, `length` of the longest one
    """

    file: Path | bytes | ModelFile
    options: CompileOptions
    operators: Mapping[str, Operator]
    masks: tuple[str, ...]
    offsets: str
    most: int
    tokens: int
    length: int

    @cached_property
    def seen(self) -> Seen:
        """Which axes count tokens and texts. Raises UnsupportedModel for a model that mixes them with others."""
        sizes = ((1, self.length), (1, self.length - 1), (2, self.length))
        whole, shorter, several = (self._model(texts, length).graph for texts, length in sizes)
        return see(whole, shorter, several, self.length)

    @cached_property
    def loaded(self) -> Loaded:
        """The packed model at its capacity, with the numbers of tokens and of texts open."""
        graph, open_shapes = self._packed(self.tokens, self.most)
        whole = self._model(1, self.length)
        notices = tuple(f"{quoted(name)} is taken as ones: texts are not padded" for name in self.masks)
        return replace(whole, graph=graph, open_shapes=open_shapes, notices=notices)

    @cached_property
    def usual(self) -> Graph:
        """The packed model for as many tokens as there may be, in texts of a usual length."""
        return self._packed(self.tokens, len(self.usual_lengths), is_open=False)[0]

    @property
    def usual_lengths(self) -> tuple[int, ...]:
        """Of texts that fill a run: about the usual length each."""
        texts = max(1, min(self.most, self.tokens // min(TYPICAL, self.length)), -(-self.tokens // self.length))
        short, more = divmod(self.tokens, texts)
        return tuple(short + (at < more) for at in range(texts))

    def are_tokens(self) -> tuple[bool, ...]:
        """Of each output: whether it has a row for each token."""
        return tuple(self.seen.level(id) == "tokens" for id in self.seen.graph.outputs)

    def alone(self, lengths: Sequence[int]) -> Graph:
        """Texts of these lengths, each by the model of one text of exactly its length."""
        return one_by_one(lengths, lambda length: self._model(1, length).graph, self.are_tokens(), self.operators)

    def judged(self, seed: int) -> list[tuple[int, ...]]:
        """Lengths at which the packed model is judged: usual ones, one text, shortest ones, and some that are drawn.

        No more than a few different ones, for each of which the model is loaded.
        """
        random = np.random.default_rng(seed)
        few = sorted({1, self.length, *random.integers(1, self.length, 6, endpoint=True).tolist()})
        drawn: list[int] = []
        while len(drawn) < self.most and (left := self.length - sum(drawn)) > 0:
            drawn.append(int(random.choice([one for one in few if one <= left])))
        mixed = [one for one in (self.length, 1, 2, self.length // 2, 3, 7) if one <= self.length][: self.most]
        while sum(mixed) > self.tokens:
            mixed.pop(0)
        each = [self.usual_lengths, (self.length,), (1,) * min(self.most, self.tokens, 8), tuple(mixed), tuple(drawn)]
        return [one for at, one in enumerate(each) if one and one not in each[:at]]

    def _model(self, texts: int, length: int) -> Loaded:
        specs: dict[str, InputSpec] = dict(self.options.inputs)
        for name in self.options.ragged:
            specs[name] = InputSpec((texts, length), 1 if name in self.masks else None)
        return load(self.file, replace(self.options, inputs=specs, ragged={}), self.operators)

    def _packed(self, tokens: int, texts: int, is_open: bool = True) -> tuple[Graph, OpenShapes]:
        seen, writer = self.seen, Writer(self.operators)
        given, made = [], {}
        for id in seen.graph.inputs:
            kind, name = seen.graph.type(id), seen.graph.values[id].name
            if len(seen.token_axes(id)) != 1 or kind.elements != self.length:
                raise refused(f"input {quoted(name)} has the shape {list(kind.dims)}, and not a number for each token")
            given.append(writer.graph.input(TensorType(kind.dtype, (tokens,)), name))
            made[id] = writer.reshape(given[-1], [tokens if axis.tokens else 1 for axis in seen.roles[id]])
        offsets = writer.graph.input(TensorType(DType.I64, (texts + 1,)), self.offsets)
        if is_open:
            size, ends = (writer.graph.input(scalar(), f"size:{name}") for name in ("tokens", self.offsets))
        else:
            size, ends = writer.number(tokens), writer.number(texts + 1)
        at = segments(writer, offsets, size, self.length, tokens)
        packing = Packing(seen, writer, at, made)
        for node in seen.graph.nodes:
            packing.node(node)
        results, axes = [], []
        are_tokens = self.are_tokens()
        kinds = [*dict.fromkeys(are_tokens)]
        for id, is_token in zip(seen.graph.outputs, are_tokens, strict=True):
            name = seen.graph.values[id].name
            results.append((name, self._rows(writer, packing.made[id], id, is_token)))
            others = (None,) * (len(writer.shape(results[-1][1])) - 1)
            axes.append((len(are_tokens) + kinds.index(is_token), *others))
        if not is_open:
            return writer.graph.finish(results), OpenShapes((), (), ())
        counted = {True: (size, 0), False: (ends, 1)}
        hidden = [
            (f"size:{at}", writer.node("Sub", counted[kind][0], writer.number(counted[kind][1])))
            for at, kind in enumerate(kinds)
        ]
        held = demands(writer, offsets, at, self.length)
        hidden += [(f"limit:{number}", id) for number, (_, id, _, _) in enumerate(held, 1)]
        graph = writer.graph.finish([*results, *hidden])
        starts = np.concatenate([[0], np.cumsum(self.usual_lengths)])
        opened = OpenShapes(
            (OpenDimension("tokens", 1, tokens), OpenDimension(self.offsets, 2, texts + 1)),
            (*((0,),) * len(given), (1,)),
            tuple(axes),
            limits(held, len(results) + len(kinds)),
            ((len(given), (tuple(int(one) for one in starts),)),),
            texts=PackedTexts(self.length, self.masks, are_tokens),
        )
        return graph, opened

    def _rows(self, writer: Writer, whole: int, id: int, is_token: bool) -> int:
        """An output with a row for each token, or for each text. Raises UnsupportedModel for one that has none."""
        name, shape = quoted(self.seen.graph.values[id].name), writer.shape(whole)
        if is_token and not (len(shape) > 1 and shape[:2] == (1, self.tokens)):
            raise refused(f"output {name} is {list(shape)}, and its tokens are not its rows")
        if not is_token and self.seen.text_axis(id) != 0:
            raise refused(f"output {name} has neither a row for each token nor one for each text")
        return writer.reshape(whole, shape[1:]) if is_token else whole


def load_texts(file: Path | bytes | ModelFile, options: CompileOptions, operators: Mapping[str, Operator]) -> Texts:
    """The packed form of a model, of which `options.ragged` says which inputs hold a number for each token.

    Each of these has two axes, texts and tokens. Their sizes are the greatest of a run: dims say them by name, or the
    model does.

    Raises OptionsError where options do not fit the model, and what `load` raises. What is asked of the result raises
    UnsupportedModel where the model does not keep texts apart.
    """
    content = read(file, Limits())
    inputs = {one.name: one for one in content.body.inputs if one.name not in content.body.constants}
    given = {name: size.high if isinstance(size, DimRange) else size for name, size in options.binding.items()}
    used: set[str] = set()
    sizes: list[set[int]] = [set(), set()]
    for name, axis in options.ragged.items():
        if name not in inputs:
            known = ", ".join(map(quoted, inputs))
            raise OptionsError(f"ragged names {quoted(name)}, which is no input", fix=f"inputs are {known}")
        shape = inputs[name].shape or (None, None)
        if len(shape) != 2 or axis != 1:
            raise OptionsError(
                f"ragged says axis {axis} of input {quoted(name)}, whose shape is {list(shape)}",
                fix="name inputs [texts, tokens], and their axis 1",
            )
        for found, dim in zip(sizes, shape, strict=True):
            used |= {dim} if isinstance(dim, str) else set()
            found |= {size for size in (given.get(dim) if isinstance(dim, str) else dim,) if size}
    most, length = (max(found, default=0) for found in sizes)
    if length < SHORTEST:
        names = sorted(dim for name in options.ragged for dim in (inputs[name].shape or ())[1:] if isinstance(dim, str))
        fix = f"give it, such as {json.dumps({'dims': dict.fromkeys(names[:1] or ['sequence'], 512)})}"
        raise OptionsError("dims do not say how many tokens a text may have, 3 or more", fix=fix)
    most = min(most or MOST_TEXTS, MOST_TOKENS)
    rest = {name: size for name, size in options.binding.items() if name not in used}
    offsets = OFFSETS
    while offsets in inputs:
        offsets += "_"
    masks = tuple(name for name in options.ragged if MASK in name)
    if len(masks) == len(options.ragged):
        raise OptionsError("ragged names masks alone", fix="name the input of tokens too, such as input_ids")
    tokens = max(length, min(most * length, MOST_TOKENS))
    return Texts(file, replace(options, dims=rest), operators, masks, offsets, most, tokens, length)


def suggested_ragged(file: Path | bytes | ModelFile, options: CompileOptions) -> CompileOptions | None:
    """Options under which to try whether a model's texts can share an axis; None for a model that is none of texts.

    It is one of texts whose inputs are integers [texts, tokens], both open, with a mask among them, and which the
    options neither fix nor compile for what cannot have it. Raises what `read` raises.
    """
    content = read(file, Limits())
    inputs = [one for one in content.body.inputs if one.name not in content.body.constants]
    shapes = {one.shape for one in inputs}
    masks = [one for one in inputs if MASK in one.name]
    (shape,) = shapes if len(shapes) == 1 else (None,)
    if shape is None or len(shape) != 2 or not 0 < len(masks) < len(inputs) or options.inputs:
        return None
    if not all(isinstance(dim, str) for dim in shape) or any(one.dtype is None or one.dtype.is_float for one in inputs):
        return None
    ragged, dims = {one.name: 1 for one in inputs}, {str(shape[0]): 2, str(shape[1]): TRIED}
    try:
        return CompileOptions(target=options.target, ragged=ragged, dims=dims)
    except OptionsError:
        return None
