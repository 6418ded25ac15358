"""Scalar expressions and indices as C.

`Emitter` writes an expression as statements and returns the name of its value, each distinct sub-expression once. It
works at one of two widths: scalar, or a vector along one axis. Vectors hold fp32, or integers of up to 32 bits in
32-bit lanes; what has no vector form is computed lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from compiler.codegen.scalars import COMPARISONS, INFIX, LOGICAL, C, Dialect, convert, literal
from compiler.codegen.writer import Writer
from compiler.forms.factors import is_positional
from compiler.forms.numerics import EXACT, Numerics
from compiler.ir.arithmetic import bounds
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position, Where
from compiler.ir.index import Axis, FloorDiv, Index, Indirect, Mod
from compiler.ir.small import BITWISE
from compiler.ir.tensor import DType

VECTOR_FUNCTIONS = frozenset(
    (
        *("min", "max", "neg", "abs", "sign", "exp", "log", "sqrt", "rsqrt", "reciprocal"),
        *("tanh", "erf", "sigmoid", "expm1", "log1p", "floor", "ceil", "round"),
    )
)
INTEGERS: Mapping[DType, str] = {
    DType.I32: "i",
    DType.I16: "i16",
    DType.U16: "u16",
    DType.I8: "i8",
    DType.U8: "u8",
}
"""Integers that 32-bit lanes hold, and what ends the names of the C functions that load and store them."""
SHORT_HEADERS = {"erf_bf16": "tw_short_math.h", "sigmoid_bf16": "tw_short_sigmoid.h"}
"""Of functions whose results are rounded to bf16."""
ARITHMETIC = frozenset(("add", "sub", "mul"))


@dataclass(frozen=True)
class Vector:
    """The vector axis: its C variable is the index of lane 0; `count` the live lanes, a C expression, empty for all."""

    axis: Axis
    count: str = ""


class Emitter:
    """Writes expressions into a Writer.

    `address` turns a Load (or store target) into (C pointer, element offset). `held` maps loads that are values in
    registers, of this emitter's width, to their C names; `fixed` those that are one scalar for all lanes. `extents` are
    the shapes of slots; what is loaded from others counts as unsafe to load without need. `numerics` say where C may be
    coarser than an expression, and what lies behind the pointers that `address` gives.
    """

    dialect: ClassVar[Dialect] = C

    def __init__(
        self,
        writer: Writer,
        address: Callable[[str, tuple[Index, ...]], tuple[str, Index]],
        vector: Vector | None = None,
        extents: Mapping[str, tuple[int, ...]] | None = None,
        numerics: Numerics = EXACT,
    ) -> None:
        self.writer = writer
        self.numerics = numerics
        self.extents = extents or {}
        self.address = address
        self.vector = vector
        self.held: dict[Expr, str] = {}
        self.fixed: dict[Expr, str] = {}
        self.names: dict[Axis, str] = {}
        self._memo: list[dict[Expr, str]] = [{}]

    # Indices

    def index(self, index: Index) -> str:
        """An index as a C expression of type long."""
        text = ""
        for atom, factor in index.terms:
            body = self._atom(atom) if abs(factor) == 1 else f"{self._atom(atom)} * {abs(factor)}"
            sign = "-" if factor < 0 else "+" if text else ""
            text += f" {sign} {body}" if text else f"{sign}{body}"
        if not text:
            return str(index.const)
        return f"{text} {'-' if index.const < 0 else '+'} {abs(index.const)}" if index.const else text

    def _atom(self, atom: Axis | FloorDiv | Mod | Indirect) -> str:
        if isinstance(atom, Axis):
            return self.names.get(atom, atom.name)
        if isinstance(atom, Indirect):
            return f"(long)({self.scalar(atom.expr)})"
        inner = self.index(atom.index)
        if isinstance(atom, FloorDiv):
            return (
                f"(({inner}) / {atom.divisor})" if atom.index.range[0] >= 0 else f"tw_floordiv({inner}, {atom.divisor})"
            )
        return f"(({inner}) % {atom.divisor})" if atom.index.range[0] >= 0 else f"tw_floormod({inner}, {atom.divisor})"

    # Scopes

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names made inside are forgotten at the end (they live in an inner C block)."""
        self._memo.append({})
        yield
        self._memo.pop()

    def _known(self, expr: Expr) -> str | None:
        for memo in reversed(self._memo):
            if expr in memo:
                return memo[expr]
        return None

    def forget(self, slots: frozenset[str]) -> None:
        """Drops names of values that were computed from these slots: something has been stored there."""
        for memo in self._memo:
            for expr in [expr for expr in memo if any(load.slot in slots for load in expr.loads)]:
                del memo[expr]

    def _define(self, expr: Expr, ctype: str, text: str) -> str:
        name = self.writer.name("v")
        self.writer.line(f"const {ctype} {name} = {text};")
        self._memo[-1][expr] = name
        return name

    # Scalars

    def scalar(self, expr: Expr) -> str:
        """The C name (or literal) of the expression's value at one point."""
        if isinstance(expr, Const):
            return self.dialect.literal(expr.value, expr.type)
        if expr in self.held and self.vector is None:
            return self.held[expr]
        if expr in self.fixed:
            return self.fixed[expr]
        known = self._known(expr)
        if known is not None:
            return known
        return self._scalar(expr)

    def _scalar(self, expr: Expr) -> str:
        ctype = self.dialect.types[expr.dtype]
        if isinstance(expr, Position):
            return self._define(expr, ctype, self.dialect.convert(self.index(expr.index), DType.I64, expr.dtype))
        if isinstance(expr, Load):
            pointer, offset = self.address(expr.slot, expr.index)
            element = self.numerics.elements.get(pointer, expr.dtype)
            return self._define(expr, ctype, convert(f"{pointer}[{self.index(offset)}]", element, expr.dtype))
        if isinstance(expr, Where):
            return self._scalar_where(expr, ctype)
        if isinstance(expr, Cast):
            return self._define(expr, ctype, self.dialect.cast(self.scalar(expr.arg), expr))
        assert isinstance(expr, Apply)
        args = [self.scalar(arg) for arg in expr.args]
        return self._define(expr, ctype, self.dialect.apply(expr.function, args, expr.args[0].dtype))

    def _scalar_where(self, expr: Where, ctype: str) -> str:
        condition = self.scalar(expr.condition)
        name = self.writer.name("v")
        self.writer.line(f"{ctype} {name};")
        with self.writer.block(f"if ({condition})"), self.scope():
            self.writer.line(f"{name} = {self.scalar(expr.then)};")
        with self.writer.block("else"), self.scope():
            self.writer.line(f"{name} = {self.scalar(expr.otherwise)};")
        self._memo[-1][expr] = name
        return name

    # Vectors

    def value(self, expr: Expr) -> str:
        """The expression at this emitter's width: a vector when it has a vector axis, else a scalar."""
        return self.vector_of(expr) if self.vector else self.scalar(expr)

    def vf(self, expr: Expr) -> str:
        """The C name of an fp32 expression as a vector along the vector axis."""
        assert expr.dtype is DType.F32, expr
        return self.vector_of(expr)

    def vi(self, expr: Expr) -> str:
        """The C name of an integer expression, of a dtype of INTEGERS, as a vector of 32-bit lanes.

        The lanes are those of the vector axis.
        """
        assert expr.dtype in INTEGERS, expr
        return self.vector_of(expr)

    def vector_of(self, expr: Expr) -> str:
        """The C name of an expression of fp32, or of INTEGERS, as a vector along the vector axis."""
        assert self.vector is not None
        if expr in self.held:
            return self.held[expr]
        key = Apply("vector", (expr,))
        known = self._known(key)
        if known is not None:
            return known
        is_float = expr.dtype is DType.F32
        if not self.varies(expr):
            return self._define(key, _kind(expr), f"tw_splat{'' if is_float else '_i'}({self.scalar(expr)})")
        return self._vf(expr, key) if is_float else self._vi(expr, key)

    def varies(self, expr: Expr) -> bool:
        """Whether lanes may differ in an expression: by its axes, a value held in a vector, or the place of a load."""
        if self.vector is None:
            return False
        axis = self.vector.axis
        if axis in expr.axes or any(part in self.held for part in expr.walk()):
            return True
        return any(
            load not in self.fixed and axis in self.address(load.slot, load.index)[1].axes for load in expr.loads
        )

    def _is_contiguous(self, offset: Index) -> bool:
        """Whether the lanes read neighbouring elements: each reads for itself by an index held for every lane."""
        assert self.vector is not None
        computed = any(part in self.held for part in Position(offset).walk())
        return offset.coefficient(self.vector.axis) == 1 and not computed

    def _vf(self, expr: Expr, key: Expr) -> str:
        assert self.vector is not None
        if isinstance(expr, Load):
            pointer, offset = self.address(expr.slot, expr.index)
            if self._is_contiguous(offset):
                load, place = f"tw_load{self._load_ending(pointer)}", f"{pointer} + {self.index(offset)}"
                return self._define(
                    key, "vf", f"{load}_n({place}, {self.vector.count})" if self.vector.count else f"{load}({place})"
                )
        elif isinstance(expr, Apply):
            function, args = self.numerics.function(expr)
            if function == "gelu_bf16":
                self.writer.include("tw_short_gelu.h")
                return self._define(key, "vf", f"tw_gelu_bf16({self.vf(args[0])})")
            if expr.function in ("add", "sub", "mul", "div"):
                left, right = (self.vf(arg) for arg in expr.args)
                return self._define(key, "vf", f"{left} {INFIX[expr.function]} {right}")
            if expr.function in VECTOR_FUNCTIONS:
                return self._define(key, "vf", self._call(expr))
        elif isinstance(expr, Cast) and (loaded := self._loaded_bf16(expr.arg)):
            return self._define(key, "vf", loaded)
        elif isinstance(expr, Cast) and expr.arg.dtype in INTEGERS and expr.rounding != BITWISE:
            return self._define(key, "vf", f"tw_float_of({self.vi(expr.arg)})")
        elif isinstance(expr, Where):
            name = self._vector_where(expr)
            if name:
                self._memo[-1][key] = name
                return name
        return self._lanes(expr, key)

    def _loaded_bf16(self, expr: Expr) -> str:
        """Neighbouring elements of bf16 as fp32; empty for anything else."""
        assert self.vector is not None
        if not isinstance(expr, Load) or expr.type is not DType.BF16:
            return ""
        pointer, offset = self.address(expr.slot, expr.index)
        if not self._is_contiguous(offset):
            return ""
        self.writer.include("tw_short.h")
        place = f"{pointer} + {self.index(offset)}"
        return f"tw_load_bf16_n({place}, {self.vector.count})" if self.vector.count else f"tw_load_bf16({place})"

    def _vi(self, expr: Expr, key: Expr) -> str:
        assert self.vector is not None
        text = ""
        if isinstance(expr, Load):
            pointer, offset = self.address(expr.slot, expr.index)
            if self._is_contiguous(offset):
                load, place = f"tw_load_{INTEGERS[expr.dtype]}", f"{pointer} + {self.index(offset)}"
                text = f"{load}_n({place}, {self.vector.count})" if self.vector.count else f"{load}({place})"
            elif (byte := table_index(expr)) is not None:
                low = offset.const
                at = f"tw_add_i({self.vi(byte)}, tw_splat_i({low}))" if low else self.vi(byte)
                self.writer.include("tw_table.h")
                text = f"tw_table_{INTEGERS[expr.dtype]}({pointer}, {at})"
        elif isinstance(expr, Apply):
            wraps = expr.function in ARITHMETIC and expr.dtype is DType.I32
            if wraps or (expr.function in ("min", "max") and expr.dtype in INTEGERS):
                text = f"tw_{expr.function}_i({', '.join(self.vi(arg) for arg in expr.args)})"
        elif isinstance(expr, Cast):
            text = self._integer_cast(expr)
        elif isinstance(expr, Where):
            name = self._vector_where(expr)
            if name:
                self._memo[-1][key] = name
                return name
        return self._define(key, "vi", text) if text else self._lanes(expr, key)

    def _integer_cast(self, expr: Cast) -> str:
        """A conversion to integers; "" where it has no vector form."""
        source, (low, high) = expr.arg.dtype, bounds(expr.dtype)
        if source is DType.F32 and expr.saturate and expr.dtype is not DType.I32:
            if (rounded := rounded_about(expr)) is not None and not self.varies(rounded[1]):
                value, zero = rounded
                self.writer.include("tw_quantise.h")
                point = str(zero.value) if isinstance(zero, Const) else self.scalar(zero)
                return f"tw_quantised({self.vf(value)}, {low}, {high}, {point})"
            return f"tw_saturated({self.vf(expr.arg)}, {literal(low, source)}, {literal(high, source)})"
        if source not in INTEGERS:
            return ""
        own_low, own_high = bounds(source)
        if low <= own_low and own_high <= high:
            return self.vi(expr.arg)
        held = f"tw_max_i(tw_splat_i({low}), {self.vi(expr.arg)})"
        return f"tw_min_i(tw_splat_i({high}), {held})" if expr.saturate else ""

    def _call(self, expr: Apply) -> str:
        function, args = expr.function, list(expr.args)
        if function in ("min", "max"):
            if isinstance(args[0], Const):
                args.reverse()
            if isinstance(args[1], Const) and not math.isnan(args[1].value):
                return f"tw_{function}_of({self.vf(args[1])}, {self.vf(args[0])})"
        name, _ = self.numerics.function(expr)
        if name in SHORT_HEADERS:
            self.writer.include(SHORT_HEADERS[name])
        return f"tw_{name}({', '.join(self.vf(arg) for arg in args)})"

    def _vector_where(self, expr: Where) -> str:
        """A branch if the condition is one for all lanes, a select if it differs and both sides are safe; else ""."""
        assert self.vector is not None
        condition = expr.condition
        if not self.varies(condition):
            return self._branch(self.scalar(condition), expr, lambda: self.vector_of(expr.otherwise))
        if self._is_safe_choice(expr) and (live := self._live_lanes(condition)):
            name, first = self.writer.name("v"), "tw_first_n" if expr.dtype is DType.F32 else "tw_first_n_i"
            branches = f"{self.vector_of(expr.then)}, {live}, {self.vector_of(expr.otherwise)}"
            self.writer.line(f"const {_kind(expr)} {name} = {first}({branches});")
            return name
        if is_positional(condition) and _is_convex(condition, self.vector.axis):
            ends = f"{self._at_lane(condition, '0')} && {self._at_lane(condition, self._last_lane())}"
            return self._branch(ends, expr, lambda: self._lanes(expr, None))
        if not is_positional(condition) and self._is_safe_choice(expr):
            mask = self._mask(condition)
            if mask:
                name, select = self.writer.name("v"), "tw_select" if expr.dtype is DType.F32 else "tw_select_i"
                branches = f"{self.vector_of(expr.then)}, {self.vector_of(expr.otherwise)}"
                self.writer.line(f"const {_kind(expr)} {name} = {select}({mask}, {branches});")
                return name
        return ""

    def _is_safe_choice(self, expr: Where) -> bool:
        return self._safe(expr.then) and self._safe(expr.otherwise)

    def _live_lanes(self, condition: Expr) -> str:
        """How many lanes lie below a size that is loaded, in C; "" for any other condition."""
        assert self.vector is not None
        if not isinstance(condition, Apply) or condition.function != "lt":
            return ""
        place, size = condition.args
        if not isinstance(place, Position) or not isinstance(size, Load) or size.index or self.varies(size):
            return ""
        if size.type is not DType.I64 or place.index.coefficient(self.vector.axis) != 1:
            return ""
        name, at, past = self.writer.name("live"), self.index(place.index), self.scalar(size)
        left = f"{past} - ({at})"
        self.writer.line(f"const long {name} = {past} <= {at} ? 0 : {left} > TW_LANES ? TW_LANES : (long)({left});")
        return name

    def _branch(self, condition: str, expr: Where, otherwise: Callable[[], str]) -> str:
        name = self.writer.name("v")
        self.writer.line(f"{_kind(expr)} {name};")
        with self.writer.block(f"if ({condition})"), self.scope():
            self.writer.line(f"{name} = {self.vector_of(expr.then)};")
        with self.writer.block("else"), self.scope():
            self.writer.line(f"{name} = {otherwise()};")
        return name

    def _last_lane(self) -> str:
        assert self.vector is not None
        return f"({self.vector.count} - 1)" if self.vector.count else "(TW_LANES - 1)"

    def _at_lane(self, condition: Expr, lane: str) -> str:
        assert self.vector is not None
        name = self.writer.name("lane")
        self.writer.line(f"const long {name} = {self.names.get(self.vector.axis, self.vector.axis.name)} + {lane};")
        inner = self._scalar_twin({self.vector.axis: name})
        return inner.scalar(condition)

    def _safe(self, expr: Expr) -> bool:
        """Whether a branch may be evaluated where it is not wanted.

        No position guards what is in it, and none of its loads may leave its tensor.
        """
        if any(isinstance(part, Where) and is_positional(part.condition) for part in expr.walk()):
            return False
        return all(load in self.held or load in self.fixed or self._is_inside(load) for load in expr.loads)

    def _is_inside(self, load: Load) -> bool:
        """Whether a load stays in its tensor whatever its axes are.

        An index that is data may be anything where it is not wanted.
        """
        if any(isinstance(atom, Indirect) for index in load.index for atom, _ in index.terms):
            return False
        dims = self.extents.get(load.slot)
        if dims is None:
            return False
        return all(at.range[0] >= 0 and at.range[1] < extent for at, extent in zip(load.index, dims, strict=True))

    def _mask(self, condition: Expr) -> str:
        """A data-dependent condition over vectors as a lane mask; "" when it has no vector form."""
        if isinstance(condition, Apply) and condition.function in COMPARISONS and has_vectors(condition.args[0].dtype):
            left, right = (self.vector_of(arg) for arg in condition.args)
            return f"({left} {INFIX[condition.function]} {right})"
        if isinstance(condition, Apply) and condition.function in LOGICAL:
            masks = [self._mask(arg) for arg in condition.args]
            return f"({masks[0]} {INFIX[condition.function]} {masks[1]})" if all(masks) else ""
        if isinstance(condition, Apply) and condition.function == "not":
            mask = self._mask(condition.args[0])
            return f"(~{mask})" if mask else ""
        if isinstance(condition, Apply) and condition.function == "isnan" and condition.args[0].dtype is DType.F32:
            name = self.vf(condition.args[0])
            return f"({name} != {name})"
        return ""

    def _lanes(self, expr: Expr, key: Expr | None) -> str:
        """An expression computed lane by lane in scalar code."""
        assert self.vector is not None
        held = self._held_below(expr)
        name, lane = self.writer.name("v"), self.writer.name("lane")
        self.writer.line(f"{_kind(expr)} {name} = {{0}};")
        with self.writer.block(f"for (long {lane} = 0; {lane} < {self.vector.count or 'TW_LANES'}; {lane}++)"):
            axis = self.writer.name(self.vector.axis.name)
            self.writer.line(f"const long {axis} = {self.names.get(self.vector.axis, self.vector.axis.name)} + {lane};")
            inner = self._scalar_twin({self.vector.axis: axis})
            inner.held = {part: f"{self.held[part]}[{lane}]" for part in held}
            self.writer.line(f"{name}[{lane}] = {inner.scalar(expr)};")
        if key is not None:
            self._memo[-1][key] = name
        return name

    def _held_below(self, expr: Expr) -> list[Expr]:
        return [part for part in expr.walk() if part in self.held]

    def _scalar_twin(self, names: Mapping[Axis, str]) -> Emitter:
        twin = Emitter(self.writer, self.address, numerics=self.numerics)
        twin.names = {**self.names, **names}
        twin.fixed = self.fixed
        return twin

    # Stores

    def store(self, slot: str, index: tuple[Index, ...], value: str, dtype: DType = DType.F32) -> None:
        """Writes a value to an element; a vector to the elements along the vector axis, which have that `dtype`.

        A vector for elements of INTEGERS holds integers, for any others fp32.
        """
        pointer, offset = self.address(slot, index)
        element = self.numerics.elements.get(pointer, dtype)
        if self.vector is None:
            self.writer.line(f"{pointer}[{self.index(offset)}] = {convert(value, dtype, element)};")
            return
        if offset.coefficient(self.vector.axis) == 1 and has_vectors(dtype):
            ending = self.ending(pointer) or _suffix(dtype)
            name, place = f"tw_store{ending}", f"{pointer} + {self.index(offset)}"
            count = self.vector.count
            self.writer.line(f"{name}_n({place}, {value}, {count});" if count else f"{name}({place}, {value});")
            return
        lane = self.writer.name("lane")
        with self.writer.block(f"for (long {lane} = 0; {lane} < {self.vector.count or 'TW_LANES'}; {lane}++)"):
            axis = self.writer.name(self.vector.axis.name)
            self.writer.line(f"const long {axis} = {self.names.get(self.vector.axis, self.vector.axis.name)} + {lane};")
            place = self._scalar_twin({self.vector.axis: axis}).index(offset)
            stored = convert(f"{value}[{lane}]", DType.I32 if dtype in INTEGERS else DType.F32, element)
            self.writer.line(f"{pointer}[{place}] = {stored};")

    def _load_ending(self, pointer: str) -> str:
        if ending := self.ending(pointer):
            self.writer.include("tw_short.h")
        return ending

    def ending(self, pointer: str) -> str:
        """What ends the names of the C functions that load and store vectors of fp32 where elements are shorter."""
        return "_bf16" if self.numerics.elements.get(pointer) is DType.BF16 else ""


def has_vectors(dtype: DType) -> bool:
    """Whether lanes of a vector hold elements of a dtype."""
    return dtype is DType.F32 or dtype in INTEGERS


def is_vectorised(expr: Expr) -> bool:
    """Whether an expression pays as a vector: one of fp32 always, one of integers if all of it has a vector form.

    Most of what there is for fp32 has a vector form.
    """
    if expr.dtype is DType.F32:
        return True
    if isinstance(expr, Load) and (byte := table_index(expr)) is not None:
        return is_vectorised(byte)
    return expr.dtype in INTEGERS and all(_has_form(part) for part in expr.walk() if not isinstance(part, Position))


def _has_form(part: Expr) -> bool:
    """Whether one form, over whatever is below it, can be computed in vectors beside integers."""
    if isinstance(part, Apply) and part.dtype is DType.BOOL:
        return part.function in COMPARISONS | LOGICAL
    if isinstance(part, Apply) and part.dtype is DType.I32:
        return part.function in ARITHMETIC | {"min", "max"}
    if isinstance(part, Apply) and part.dtype in INTEGERS:
        return part.function in ("min", "max")
    if isinstance(part, Cast) and part.dtype in INTEGERS:
        narrows = part.saturate and part.dtype is not DType.I32 and part.arg.dtype is DType.F32
        return narrows or (part.arg.dtype in INTEGERS and (part.saturate or part.dtype is DType.I32))
    return has_vectors(part.dtype) or isinstance(part, Const)


def rounded_about(expr: Expr) -> tuple[Expr, Expr] | None:
    """(x, z) of round(x) + z that is saturated to integers, z an integer of INTEGERS, of less than 2^16."""
    if not isinstance(expr, Cast) or not expr.saturate or expr.arg.dtype is not DType.F32:
        return None
    zero: Expr = Const(0, DType.I32)
    expr = expr.arg
    if isinstance(expr, Apply) and expr.function == "add":
        expr, zero = expr.args
        zero = zero.arg if isinstance(zero, Cast) and zero.arg.dtype in INTEGERS else zero
        if isinstance(zero, Const):
            if not float(zero.value).is_integer() or abs(zero.value) >= 2**16:
                return None
            zero = Const(int(zero.value), DType.I32)
        elif zero.dtype not in INTEGERS or zero.dtype is DType.I32:
            return None
    return (expr.args[0], zero) if isinstance(expr, Apply) and expr.function == "round" else None


def quantised(expr: Expr) -> tuple[Expr, int] | None:
    """`rounded_about` where z is known."""
    x, zero = rounded_about(expr) or (expr, None)
    return (x, int(zero.value)) if isinstance(zero, Const) else None


def table_index(load: Load) -> Expr | None:
    """The byte that says which of a table's 256 bytes is loaded; None for another load."""
    if load.type not in (DType.U8, DType.I8) or len(load.index) != 1 or load.index[0].range != (0, 255):
        return None
    atoms = [atom for atom, factor in load.index[0].terms if factor == 1]
    (atom,) = atoms if len(atoms) == len(load.index[0].terms) == 1 else (None,)
    if not isinstance(atom, Indirect) or not isinstance(atom.expr, Cast):
        return None
    byte = atom.expr.arg
    return byte if byte.dtype in (DType.U8, DType.I8) else None


def _suffix(dtype: DType) -> str:
    return "" if dtype is DType.F32 else f"_{INTEGERS[dtype]}"


def _kind(expr: Expr) -> str:
    """The C type of an expression as a vector."""
    return "vf" if expr.dtype is DType.F32 else "vi"


def _is_convex(condition: Expr, axis: Axis) -> bool:
    """Whether the lanes that satisfy a condition are one segment, so that its two ends decide for all."""
    if isinstance(condition, Apply) and condition.function == "and":
        return all(_is_convex(arg, axis) for arg in condition.args)
    if isinstance(condition, Apply) and condition.function in ("ge", "gt", "le", "lt"):
        return all(
            isinstance(arg, Const) or (isinstance(arg, Position) and arg.index.coefficient(axis) is not None)
            for arg in condition.args
        )
    return axis not in condition.axes
