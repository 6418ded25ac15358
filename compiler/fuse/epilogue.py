"""A map run on each value a kernel produces, while it is still in a register."""

from __future__ import annotations

from dataclasses import replace

from compiler.forms.normal_form import rename_slots
from compiler.fuse.draft import Draft, Op, bind, joined_family, only_block, size, store_axes, work
from compiler.ir.expr import Load, Where
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType

MAX_EXPR = 160
CHEAP_WORK = 6
"""Work per element (see `draft.work`) that costs less than reading a wider element."""


def join(producer: Op, consumer: Op, draft: Draft) -> Op | str:
    """One op that does both, or the reason why not.

    The value between them becomes a temporary unless something else reads it.
    """
    first, second = producer.kernel, consumer.kernel
    block = only_block(consumer)
    if not isinstance(first, Kernel) or not isinstance(second, Kernel) or block is None:
        return "the consumer is not a map"
    if first.sequential:
        return "the producer runs in sequence"
    value = next(v for v in producer.outputs if v in consumer.inputs)
    if draft.needs(other for other in consumer.inputs if other != value) & set(producer.outputs):
        return "the map reads another result of the kernel, or a view of one, too"
    slot = next(s.name for s, bound in zip(second.inputs, consumer.inputs, strict=True) if bound == value)
    out = next(s.name for s, bound in zip(first.outputs, producer.outputs, strict=True) if bound == value)
    writer = _only_writer(first, out)
    if writer is None:
        return "several blocks write the value"
    if out in writer.reads:
        return "the kernel reads the value again at later steps"
    mapping = _axis_mapping(writer, out, slot, second, block, draft.types[value].dims, in_groups=_sums_integers(first))
    if isinstance(mapping, str):
        return mapping
    if size(block.values[0]) > MAX_EXPR or len(first.blocks) > 12:
        return "the kernel would grow too large"
    if _widens(consumer, draft, value):
        return "the map only widens the value, which its readers can do"
    return _joined(producer, consumer, draft, value, (out, slot), mapping, writer)


def _widens(consumer: Op, draft: Draft, value: int) -> bool:
    """Whether a map only makes a value take more bytes, as dequantising does, so that readers should compute it.

    So it is where the value is stored as it is, too, or where no other map could follow before anything is stored.
    """
    block, result = only_block(consumer), consumer.outputs[0]
    if block is None or draft.types[result].dtype.bytes <= draft.types[value].dtype.bytes:
        return False
    if any(other not in draft.graph.constants for other in consumer.inputs if other != value):
        return False
    if work(block.values[0]) > CHEAP_WORK or result in draft.kept:
        return False
    stays = value in draft.kept or len(draft.ops.readers(value)) > 1
    return stays or all(only_block(reader) is None for reader in draft.ops.readers(result))


def _only_writer(kernel: Kernel, slot: str) -> Block | None:
    """The block that writes a value, if a block that follows all others can run at its points.

    It is the last block, or no block has axes of its own.
    """
    writers = [block for block in kernel.blocks if slot in block.writes]
    follows = writers[-1:] == [*kernel.blocks[-1:]] or not any(block.axes for block in kernel.blocks)
    return writers[0] if len(writers) == 1 and follows else None


def _axis_mapping(
    writer: Block, out: str, slot: str, second: Kernel, block: Block, dims: tuple[int, ...], *, in_groups: bool
) -> dict[Axis, Index] | str:
    """Where in the producer each of the consumer's axes is, if it reads every element once, at its own point.

    With `in_groups` a dimension may be made up of several axes of the producer.
    """
    store = next(store for store in writer.stores if store.slot == out)
    stored = _places(store, dims) if in_groups else _axes(store, dims)
    if stored is None:
        return "the value is not stored in order"
    loads = [load for load in block.values[0].loads if load.slot == slot]
    if len({load.index for load in loads}) != 1:
        return "the map reads the value at several places"
    mapping: dict[Axis, Index] = {}
    for place, extent, index in zip(stored, dims, loads[0].index, strict=True):
        term = index.terms[0][0] if len(index.terms) == 1 else None
        if not place.terms and index == Index.of(0):
            continue
        if (
            not place.terms
            or not isinstance(term, Axis)
            or index != Index.of(term)
            or term.extent != extent
            or term in mapping
        ):
            return "the map does not read the value point by point"
        mapping[term] = place
    if any(axis.extent > 1 and axis not in mapping for axis in second.shared):
        return "the map repeats the value along an axis"
    return mapping


def _sums_integers(kernel: Kernel) -> bool:
    """Whether a kernel sums products of integers, which a map behind it makes four times as short."""
    return any(block.monoid == "sum" and block.accumulator is DType.I32 for block in kernel.blocks)


def _axes(store: Store, dims: tuple[int, ...]) -> tuple[Index, ...] | None:
    """The axis of each dimension if a store covers its tensor in order, once (0: extent 1); None if it does not."""
    axes = store_axes(store, dims)
    return None if axes is None else tuple(Index.of(0) if axis is None else Index.of(axis) for axis in axes)


def _places(store: Store, dims: tuple[int, ...]) -> tuple[Index, ...] | None:
    """The same, where a dimension may be made up of several axes, as channels are of groups and their members."""
    met: list[Axis] = []
    for index, extent in zip(store.index, dims, strict=True):
        step = 1
        for axis, factor in sorted(index.terms, key=lambda term: term[1]):
            if not isinstance(axis, Axis) or factor != step or axis in met:
                return None
            met.append(axis)
            step *= axis.extent
        if index.const or step != extent:
            return None
    return store.index


def _joined(
    producer: Op,
    consumer: Op,
    draft: Draft,
    value: int,
    slots: tuple[str, str],
    mapping: dict[Axis, Index],
    writer: Block,
) -> Op:
    first, second = producer.kernel, consumer.kernel
    assert isinstance(first, Kernel)
    assert isinstance(second, Kernel)
    out, slot = slots
    others = [op for op in draft.ops.readers(value) if op is not consumer]
    stays = bool(others) or value in draft.kept
    names = {s.name: f"c_{s.name}" for s in (*second.inputs, *second.outputs)}
    kept_name = out if stays else "c_between"
    names[slot] = kept_name
    appended = rename_slots(second, names)
    block = appended.blocks[0]
    moved = replace(
        block,
        axes=writer.axes,
        values=tuple(v.substitute(mapping) for v in block.values),
        stores=tuple(Store(s.slot, tuple(i.substitute(mapping) for i in s.index)) for s in block.stores),
    )
    before = first if stays else rename_slots(first, {out: kept_name})
    between = () if stays else (Slot(kept_name, draft.types[value]),)
    blocks: tuple[Block, ...] = (*before.blocks, moved)
    if (kept := _kept_below(before.blocks[-1], moved, kept_name)) is not None and not stays:
        blocks, between = (*before.blocks[:-1], kept), ()
    kernel = Kernel(
        joined_family(first.family, second.family),
        inputs=(*before.inputs, *(s for s in appended.inputs if s.name != kept_name)),
        outputs=(*(s for s in before.outputs if s.name != kept_name or stays), *appended.outputs),
        blocks=blocks,
        temps=(*before.temps, *between),
        shared=first.shared,
    )
    inputs = {s.name: bound for s, bound in zip(first.inputs, producer.inputs, strict=True)}
    inputs |= {names[s.name]: bound for s, bound in zip(second.inputs, consumer.inputs, strict=True) if s.name != slot}
    outputs = {
        s.name: bound for s, bound in zip(first.outputs, producer.outputs, strict=True) if bound != value or stays
    }
    outputs |= {names[s.name]: bound for s, bound in zip(second.outputs, consumer.outputs, strict=True)}
    return bind(kernel, inputs, outputs, (*producer.sources, *consumer.sources))


def _kept_below(last: Block, bound: Block, between: str) -> Block | None:
    """A map over axes of its own, and a choice whether its result is kept, as one loop.

    None for any other reader: what it computes is better done in a loop that reads what another one stored.
    """
    (value,) = bound.values
    if last.monoid or not last.axes or len(last.stores) != 1 or last.stores[0].slot != between:
        return None
    if not isinstance(value, Where) or value.then != Load(between, last.stores[0].index, last.values[0].dtype):
        return None
    if any(load.slot == between for part in (value.condition, value.otherwise) for load in part.loads):
        return None
    return replace(bound, values=(Where(value.condition, last.values[0], value.otherwise),))
