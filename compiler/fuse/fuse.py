"""The order in which a graph's operators are turned into kernels and joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler import errors
from compiler.fuse.attention.floats import join_attention
from compiler.fuse.draft import Draft, Op, Ops, bind, is_copy, only_block, store_axes
from compiler.fuse.epilogue import join
from compiler.fuse.inline import inline
from compiler.fuse.layouts.alias import Buffers, place_concats, place_outputs, place_views
from compiler.fuse.layouts.channels_last import choose_layouts
from compiler.fuse.layouts.costs import cheaper_layouts, is_cheaper
from compiler.fuse.layouts.past_concat import carry_past_concats
from compiler.fuse.layouts.transposes import fuse_transposes
from compiler.fuse.long_sums import split_long_sums
from compiler.fuse.refusal import Refusal, name_of
from compiler.fuse.regions import Opened, with_regions
from compiler.fuse.scalars import with_scalars
from compiler.fuse.sizes.bounded import with_bounds
from compiler.fuse.sizes.ends import with_ends
from compiler.fuse.sizes.unread import with_unread
from compiler.fuse.widened import widen_in_readers
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.expr import Load
from compiler.ir.graph import Graph, Node
from compiler.ir.kernel import Block, Kernel, Routine
from compiler.ir.machine import Costs
from compiler.ir.tensor import Layout
from compiler.ops import OPERATORS
from compiler.ops.operator import Unsupported


@dataclass(frozen=True)
class Fused:
    """The kernel graph, how many kernels there were before fusion, and why kernels that touch were not joined."""

    kernels: KernelGraph
    before: int
    refusals: tuple[Refusal, ...]

    def verify(self) -> None:
        """Raises VerifyError."""
        self.kernels.verify()

    def __str__(self) -> str:
        """Why kernels that touch were not joined."""
        return "\n".join(map(str, self.refusals))


MOST_REFUSALS = 50
"""Nodes that a refusal lists."""
STEPS = ("epilogue", "attention", "layouts", "views", "inline", "slices", "joins")
"""What fusion consists of, in the order in which the steps are first taken. Whether a batch runs in slices
(`compiler.fuse.batches.batch`) is decided on before kernels are tiled, what `compiler.fuse.joins` offers once they
are."""


def fuse(
    graph: Graph,
    without: frozenset[str] = frozenset(),
    costs: Costs | None = None,
    free: frozenset[int] = frozenset(),
    *,
    is_body: bool = False,
) -> Fused:
    """Kernels for a graph, without the steps that are named by `without`.

    A value keeps its id as its buffer's id. Values that fusion removed have no buffer.

    `free`: graph inputs and outputs that need not lie as a user gives and wants them, in a graph cut out of a larger
    one.

    First transposes are fused into maps, and maps that compute are joined to the kernels before them: a bias, an
    activation, a residual addition run on each result while it is in a register. Then attention is joined. Then layouts
    are chosen, by `costs` if there are any, and copies become views. Last, the maps that remain are fused into the
    kernels after them.
    """
    inner: list[Fused] = []

    def fused(body: Graph) -> KernelGraph:
        inner.append(fuse(body, without, costs, is_body=True))
        return inner[-1].kernels

    opened = with_regions(with_bounds(graph), fused)
    graph = opened.graph
    draft = _draft(opened)
    before = len(draft.ops) + sum(one.before for one in inner)
    refusals: list[Refusal] = []
    rule = choose_layouts(graph, draft.plain, free) if "layouts" not in without else {}
    if "inline" not in without:
        widen_in_readers(draft)
    if "epilogue" not in without:
        fuse_transposes(draft, rule)
        _sweep(draft, _join_reducing, refusals, single_reader=False)
        _sweep(draft, _join_computing, refusals, single_reader=False)
        if carry_past_concats(draft):
            _sweep(draft, _join_computing, refusals, single_reader=False)
    if "attention" not in without:
        join_attention(draft, refusals)
    rule = {**rule, **{value: rule[like] for value, like in draft.like.items() if like in rule}}
    kernels, standing = _laid_out(draft, rule, without, refusals)
    if costs is not None and rule:
        cheaper = cheaper_layouts(draft, rule, costs)
        other, otherwise = _laid_out(draft, cheaper, without, refusals) if cheaper != rule else (kernels, standing)
        if other is not kernels and is_cheaper(graph, other, kernels, costs):
            kernels, standing = other, otherwise
    kernels = with_unread(with_ends(kernels), frozenset() if is_body else frozenset(kernels.outputs))
    return Fused(kernels, before, (*standing, *(one for body in inner for one in body.refusals)))


def _laid_out(
    draft: Draft, layouts: Mapping[int, Layout], without: frozenset[str], refusals: Sequence[Refusal]
) -> tuple[KernelGraph, tuple[Refusal, ...]]:
    """The kernel graph under some layouts, and the refusals that stand; the draft stays as it is."""
    types, views, like = dict(draft.types), dict(draft.views), dict(draft.like)
    draft = replace(draft, ops=draft.ops.copy(), types=types, views=views, like=like, layouts=layouts)
    refusals = list(refusals)
    buffers = Buffers(_buffers(draft, layouts))
    if "views" not in without:
        place_concats(draft, buffers)
        place_views(draft, buffers)
        place_outputs(draft, buffers)
    if "inline" not in without:
        _sweep(draft, inline, refusals, single_reader=True)
    if "epilogue" not in without:
        _sweep(draft, join, refusals, single_reader=False)
    draft.drop_dead()
    standing = _standing(refusals, draft)
    buffers.of.update((buffer.id, buffer) for buffer in split_long_sums(draft))
    return _kernel_graph(draft.graph, draft, buffers), standing


def _standing(refusals: list[Refusal], draft: Draft) -> tuple[Refusal, ...]:
    """The refusals between kernels that are there in the end, each once: a later step may fuse what one step stores."""
    pairs = {
        (value, f"{op.kernel.family} -> {reader.kernel.family}")
        for op in draft.ops
        for value in op.outputs
        for reader in draft.ops.readers(value)
    }
    stored = {value for value, _ in pairs}
    return tuple(
        dict.fromkeys(
            one
            for one in refusals
            if (one.value, one.kernels) in pairs or (one.step != "epilogue" and one.value in stored)
        )
    )


def _join_reducing(producer: Op, consumer: Op, draft: Draft) -> Op | str:
    """`_join_computing` for kernels that reduce alone.

    Where a map reads the results of one and of a map, it runs on those of the first.
    """
    if only_block(producer) is not None:
        return ""
    return _join_computing(producer, consumer, draft)


def _join_computing(producer: Op, consumer: Op, draft: Draft) -> Op | str:
    """`join`, leaving copies alone, without a reason for the report: they may become views.

    Two maps of which nothing else reads the first become one map, which may be fused into kernels after it.
    """
    if is_copy(producer) or is_copy(consumer):
        return ""
    joined = join(producer, consumer, draft)
    if isinstance(joined, str) or only_block(producer) is None or set(producer.outputs) & set(joined.outputs):
        return joined
    whole = inline(producer, consumer, draft)
    return joined if isinstance(whole, str) else whole


def _kernels(opened: Opened) -> Iterator[tuple[Node, Kernel | Routine]]:
    """Each node with its definition. At the end raises UnsupportedModel with a Refusal for each node that has none."""
    refused = []
    graph = opened.graph
    for node in graph.nodes:
        if node.bodies:
            yield node, opened.regions[node.outputs[0]]
            continue
        ins = tuple(None if value is None else graph.type(value) for value in node.inputs)
        outs = tuple(graph.type(value) for value in node.outputs)
        try:
            kernel = OPERATORS[node.op].define(node, ins, outs)
        except Unsupported as no:
            refused.append(errors.Refusal(no.reason, no.fix, node.source, node.op))
            continue
        kernel.verify()
        yield node, kernel
    if refused:
        raise errors.UnsupportedModel(
            f"{len(refused)} of the model's nodes cannot be compiled", refusals=tuple(refused[:MOST_REFUSALS])
        )


def _draft(opened: Opened) -> Draft:
    ops: list[Op] = []
    graph = opened.graph
    types = {id: value.type for id, value in graph.values.items()}
    for node, kernel in _kernels(opened):
        inputs = {slot.name: value for slot, value in zip(kernel.inputs, node.used, strict=True)}
        outputs = {slot.name: value for slot, value in zip(kernel.outputs, node.outputs, strict=True)}
        if isinstance(kernel, Kernel):
            known = {slot: graph.constants[value] for slot, value in inputs.items() if value in graph.constants}
            parts = [part for one in _independent(with_scalars(kernel, known)) for part in _without_last_map(one)]
            ops += [bind(part, inputs | outputs, outputs, (node.source,)) for part in parts]
        else:
            ops.append(Op(kernel, node.used, node.outputs, (node.source,)))
    draft = Draft(graph, Ops(ops), types)
    draft.drop_dead()
    return draft


def _independent(kernel: Kernel) -> list[Kernel]:
    """One kernel per output where no block needs another (a Split)."""
    written = [block.writes for block in kernel.blocks]
    apart = len(kernel.outputs) == len(kernel.blocks) > 1 and all(len(names) == 1 for names in written)
    outputs = {slot.name for slot in kernel.outputs}
    if not apart or kernel.temps or kernel.sequential or any(block.reads & outputs for block in kernel.blocks):
        return [kernel]
    parts = []
    for block in kernel.blocks:
        output = tuple(slot for slot in kernel.outputs if slot.name in block.writes)
        parts.append(_pulled_out(replace(kernel, outputs=output, blocks=(block,))))
    return parts


def _without_last_map(kernel: Kernel) -> list[Kernel]:
    """A kernel of two parts where its last block is a map that needs numbers alone which the others store.

    So is the DynamicQuantizeLinear: what reads its bytes may make them where it brings its operand into order.
    """
    *first, last = kernel.blocks
    before = frozenset[str]().union(*(block.writes for block in first))
    numbers = tuple(slot for slot in kernel.outputs if slot.name in last.reads and not slot.type.rank)
    apart = bool(numbers) and not (last.monoid or last.sequential or kernel.shared or last.writes & before)
    if not apart or last.reads & before != {slot.name for slot in numbers}:
        return [kernel]
    outputs = tuple(slot for slot in kernel.outputs if slot.name in before)
    rest = tuple(slot for slot in kernel.outputs if slot.name in last.writes)
    inputs = (*kernel.inputs, *numbers)
    return [
        replace(kernel, outputs=outputs, blocks=tuple(first)),
        _pulled_out(replace(kernel, inputs=inputs, outputs=rest, blocks=(last,), temps=())),
    ]


def _pulled_out(kernel: Kernel) -> Kernel:
    """A single block's own axes moved into the shared ones, which is how maps are written."""
    block = kernel.blocks[0]
    return replace(kernel, shared=(*kernel.shared, *block.axes), blocks=(replace(block, axes=()),))


def _sweep(
    draft: Draft, merge: Callable[[Op, Op, Draft], Op | str], refusals: list[Refusal], *, single_reader: bool
) -> None:
    """Tries every producer with every reader of it until no pair merges.

    With `single_reader`, a producer read elsewhere stays unless it only moves elements, and then goes when its last
    reader has taken it in.
    """
    changed = True
    while changed:
        changed = False
        for op in list(draft.ops):
            merged = _merged(draft, op, merge, refusals, single_reader=single_reader)
            while merged is not None:
                changed = True
                merged = _merged(draft, merged, merge, refusals, single_reader=single_reader)


def _merged(
    draft: Draft,
    producer: Op,
    merge: Callable[[Op, Op, Draft], Op | str],
    refusals: list[Refusal],
    *,
    single_reader: bool,
) -> Op | None:
    """Merges a producer with its first reader that permits it; what the producer became, None if nothing was merged.

    A chain of maps is thus fused into a kernel from its head on, before these are joined to each other.
    """
    if producer not in draft.ops or (single_reader and not _may_vanish(draft, producer)):
        return None
    for consumer in [reader for value in producer.outputs for reader in draft.ops.readers(value)]:
        place = draft.place_of_both(producer, consumer) if merge is not inline else consumer
        result = merge(producer, consumer, draft) if place is not None else "another kernel needs the value in between"
        if isinstance(result, str):
            if result:
                refusals.append(_refusal(producer, consumer, merge, result))
            continue
        assert place is not None
        draft.ops.replace([producer, consumer] if merge is not inline else [consumer], result, place)
        draft.drop_dead()
        return result if merge is not inline else producer
    return None


def _refusal(producer: Op, consumer: Op, merge: Callable[[Op, Op, Draft], Op | str], reason: str) -> Refusal:
    family = consumer.kernel.family
    kernels, where = f"{producer.kernel.family} -> {family}", name_of(consumer.sources, family)
    value = next(value for value in producer.outputs if value in consumer.inputs)
    return Refusal("inline" if merge is inline else "epilogue", kernels, where, reason, value)


def _may_vanish(draft: Draft, producer: Op) -> bool:
    """Whether taking a map into its reader can make it disappear: one reader, no graph output."""
    block = only_block(producer)
    if block is None or producer.outputs[0] in draft.kept:
        return False
    return len(draft.ops.readers(producer.outputs[0])) == 1 or isinstance(block.values[0], Load)


def _buffers(draft: Draft, layouts: Mapping[int, Layout]) -> dict[int, Buffer]:
    graph = draft.graph
    used = {value for op in draft.ops for value in (*op.inputs, *op.outputs)} | {*graph.inputs, *graph.outputs}
    return {
        value: Buffer.whole(
            value, draft.types[value], layouts.get(value), "" if value in draft.like else graph.values[value].name
        )
        for value in sorted(used)
    }


def _kernel_graph(graph: Graph, draft: Draft, buffers: Buffers) -> KernelGraph:
    used = {value for op in draft.ops for value in (*op.inputs, *op.outputs)} | {*graph.inputs, *graph.outputs}
    used |= {buffers.of[value].storage for value in used}
    calls = tuple(Call(op.kernel, op.inputs, op.outputs, _in_place(op, buffers), op.sources) for op in draft.ops)
    constants: dict[int, np.ndarray] = {
        value: graph.constants[value] for value in sorted(used) if value in graph.constants
    }
    return KernelGraph(
        {value: buffers.of[value] for value in sorted(used)}, calls, graph.inputs, graph.outputs, constants
    )


def _in_place(op: Op, buffers: Buffers) -> tuple[tuple[int, int], ...]:
    """Outputs that may lie exactly over an input: of one geometry, each element read only where it is then written."""
    kernel = op.kernel
    if not isinstance(kernel, Kernel) or kernel.sequential:
        return ()
    pairs = []
    for at_out, (slot, value) in enumerate(zip(kernel.outputs, op.outputs, strict=True)):
        for at_in, (source, read) in enumerate(zip(kernel.inputs, op.inputs, strict=True)):
            out, into = buffers.of[value], buffers.of[read]
            same = (out.type, out.layout.dims, out.strides) == (into.type, into.layout.dims, into.strides)
            if (
                same
                and out.is_contiguous
                and all(_same_point(block, source.name, slot.name, out) for block in kernel.blocks)
            ):
                pairs.append((at_out, at_in))
    return tuple(pairs)


def _same_point(block: Block, source: str, out: str, buffer: Buffer) -> bool:
    loads = [load for value in block.values for load in value.loads if load.slot == source]
    if not loads:
        return True
    stores = [store for store in block.stores if store.slot == out]
    if block.monoid or len(block.stores) != 1 or not stores or store_axes(stores[0], buffer.type.dims) is None:
        return False
    return all(load.index == stores[0].index for load in loads)
