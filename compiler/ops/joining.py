# Concat and Split


def _infer_concat(node: Node, types: Types) -> tuple[TensorType, ...]:
    first = given(types, 0)
    axis = axis_of(node, first.rank)
    there = [type for type in types if type is not None]
    for type in there:
        if type.rank != first.rank or any(a != b for d, (a, b) in enumerate(zip(type.dims, first.dims, strict=True)) if d != axis):
            raise Unsupported(f"shapes {[list(t.dims) for t in there]} do not join along axis {axis}", "bind shapes that agree")
    total = sum(type.dims[axis] for type in there)
    return (TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _reference_concat(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    there = [array for array in arrays if array is not None]
    return (np.concatenate(there, axis_of(node, there[0].ndim)),)


def _define_concat(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """One block per operand, each with the loops of its own slice."""
    there = [type for type in types if type is not None]
    axis = axis_of(node, there[0].rank)
    slots, blocks, begin = [], [], 0
    for position, type in enumerate(there):
        axes = axes_for(type.dims, f"p{position}_")
        index = list(at(axes))
        value = Load(f"x{position}", tuple(index), type.dtype)
        index[axis] = index[axis] + begin
        begin += type.dims[axis]
        slots.append(Slot(f"x{position}", type))
        if type.elements:
            blocks.append(Block(axes, (value,), (Store("y0", tuple(index)),)))
    return Kernel("Concat", tuple(slots), (Slot("y0", outs[0]),), tuple(blocks))


def _split_sizes(node: Node, extent: int, count: int) -> tuple[int, ...]:
    sizes = ints(node, "split")
    if sizes is None:
        part = -(-extent // count)
        sizes = (*([part] * (count - 1)), extent - part * (count - 1))
    if sum(sizes) != extent or len(sizes) != count or any(size < 0 for size in sizes):
        raise Unsupported(f"an extent of {extent} does not split into {list(sizes)}", "export with sizes that add up")
    return sizes


def _infer_split(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    axis = axis_of(node, x.rank)
    sizes = _split_sizes(node, x.dims[axis], len(node.outputs))
    return tuple(TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)


def _reference_split(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    axis = axis_of(node, x.ndim)
    sizes = _split_sizes(node, x.shape[axis], len(node.outputs))
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def _define_split(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """One block per output."""
    x = given(types, 0)
    axis, begin, blocks = axis_of(node, x.rank), 0, []
    for position, type in enumerate(outs):
        axes = axes_for(type.dims, f"p{position}_")
        index = list(at(axes))
        index[axis] = index[axis] + begin
        begin += type.dims[axis]
        blocks.append(Block(axes, (Load("x0", tuple(index), x.dtype),), (Store(f"y{position}", at(axes)),)))
    slots = tuple(Slot(f"y{position}", type) for position, type in enumerate(outs))
    return Kernel("Split", (Slot("x0", x),), slots, tuple(blocks))


