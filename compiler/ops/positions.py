# Trilu


def _diagonal(node: Node) -> int:
    value = node.attrs.get("k", 0)
    value = value[0] if isinstance(value, tuple) else value
    return int(value) if isinstance(value, int | float) else 0


def _define_trilu(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, k = given(types, 0), _diagonal(node)

    def where(axes: tuple[Axis, ...]) -> Expr:
        from compiler.ir.expr import Apply, Position
        from compiler.ir.tensor import DType

        distance = Position(Index.of(axes[-1]) - Index.of(axes[-2]))
        kept = Apply("ge" if node.attrs.get("upper", 1) else "le", (distance, Const(k, DType.I64)))
        return Where(kept, Load("x0", at(axes), x.dtype), number(0, x.dtype))

    return view_kernel("Trilu", types[:1], outs[0], where)


def _reference_trilu(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    return ((np.triu if node.attrs.get("upper", 1) else np.tril)(x, _diagonal(node)),)


