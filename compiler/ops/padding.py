# Pad


def _pads(node: Node, rank: int) -> tuple[tuple[int, int], ...]:
    pads = ints(node, "pads") or ()
    axes = axes_of(node, rank) or tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"{len(pads)} pads do not fit {len(axes)} axes", "give a begin and an end for each axis")
    found = [(0, 0)] * rank
    for position, axis in enumerate(axes):
        found[axis] = (pads[position], pads[position + len(axes)])
    return tuple(found)


def _infer_pad(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    if node.attrs.get("mode", "constant") not in ("constant", "reflect", "edge", "wrap"):
        raise Unsupported(f"mode {node.attrs['mode']!r} is unknown", "use constant, reflect, edge or wrap")
    dims = tuple(dim + sum(pad) for dim, pad in zip(x.dims, _pads(node, x.rank), strict=True))
    if any(dim < 0 for dim in dims):
        raise Unsupported(f"pads cut more than there is of {list(x.dims)}", "export with smaller negative pads")
    return (TensorType(x.dtype, dims),)


def _pad_value(node: Node) -> float:
    value = node.attrs.get("constant_value", 0)
    value = value[0] if isinstance(value, tuple) else value
    return value if isinstance(value, int | float | bool) else 0


def _reference_pad(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    pads = _pads(node, x.ndim)
    cut = tuple(slice(max(-begin, 0), extent - max(-end, 0)) for (begin, end), extent in zip(pads, x.shape, strict=True))
    grow = [(max(begin, 0), max(end, 0)) for begin, end in pads]
    mode = node.attrs.get("mode", "constant")
    if mode == "constant":
        return (np.pad(x[cut], grow, constant_values=_pad_value(node)),)
    return (np.pad(x[cut], grow, mode=str(mode)),)  # type: ignore[call-overload]


def _define_pad(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, mode = given(types, 0), node.attrs.get("mode", "constant")
    pads = _pads(node, x.rank)

    def where(axes: tuple[Axis, ...]) -> Expr:
        if mode == "constant":
            index = tuple(Index.of(axis) - begin for axis, (begin, _) in zip(axes, pads, strict=True))
            tests = [test for i, extent in zip(index, x.dims, strict=True) if (test := inside(i, extent)) is not None]
            condition, load = conjunction(tests), Load("x0", index, x.dtype)
            return load if condition is None else Where(condition, load, number(_pad_value(node), x.dtype))
        return _mirrored(axes, pads, x, str(mode))

    return view_kernel("Pad", types[:1], outs[0], where)


def _mirrored(axes: tuple[Axis, ...], pads: tuple[tuple[int, int], ...], x: TensorType, mode: str) -> Expr:
    """Axis by axis: before the tensor, in it, or after it, each with an affine index."""

    def choose(axis: int, index: tuple[Index, ...]) -> Expr:
        if axis == x.rank:
            return Load("x0", index, x.dtype)
        extent, (begin, end) = x.dims[axis], pads[axis]
        if max(begin, end) > (extent - 1 if mode == "reflect" else extent) and mode != "edge":
            raise Unsupported(f"pads of {max(begin, end)} are wider than the extent {extent}", "pad in several steps")
        here = Index.of(axes[axis]) - begin
        low, high = here.range
        middle = choose(axis + 1, (*index, here))
        before = {"reflect": here * -1, "edge": Index.of(0), "wrap": here + extent}[mode]
        after = {"reflect": here * -1 + 2 * (extent - 1), "edge": Index.of(extent - 1), "wrap": here - extent}[mode]
        if high >= extent and (test := inside(here - low, extent - low)) is not None:
            middle = Where(test, middle, choose(axis + 1, (*index, after)))
        if low < 0 and (test := inside(here, high + 1)) is not None:
            middle = Where(test, middle, choose(axis + 1, (*index, before)))
        return middle

    return choose(0, ())


