"""Maps on vectors of bytes: on every fourth byte at a time, in 32-bit lanes, whose results are put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.codegen.expressions import INTEGERS, Emitter, Vector, quantised
from compiler.codegen.writer import Writer
from compiler.forms.byte_maps import lies_along
from compiler.forms.factors import by_one_factor, is_positional
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Apply, Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block
from compiler.ir.tensor import DType

QUARTERS = 4


@dataclass(frozen=True)
class ByteVector:
    """A vector of bytes along `channel`, whose C variable is that of its first; `count` are there, empty for all."""

    writer: Writer
    slots: Slots
    channel: Axis
    count: str

    def loaded(self, slot: str, index: tuple[Index, ...]) -> str:
        """The bytes at a place, in C."""
        place = self._place(slot, index)
        return f"tw_load_bytes_n({place}, {self.count})" if self.count else f"tw_load_bytes({place})"

    def store(self, slot: str, index: tuple[Index, ...], value: str) -> None:
        """Writes bytes to a place."""
        place = self._place(slot, index)
        stored = f"tw_store_bytes_n({place}, {value}, {self.count});" if self.count else ""
        self.writer.line(stored or f"tw_store_bytes({place}, {value});")

    def finish(self, value: Load, parts: Sequence[str], maps: Sequence[Block]) -> None:
        """Runs maps (`are_byte_maps`) of a value, of whose every fourth channel from each on `parts` names the lanes.

        Lanes are of fp32 where the value is, else integers.
        """
        results = _composed(maps, self.slots)
        read = [load for expr in results.values() for load in expr.loads if load != value]
        loads = [load for load in dict.fromkeys(read) if lies_along(load, self.channel, self.slots)]
        if loads:
            self.writer.include("tw_bytes.h")
        whole = {load: self._named("tw_bytes", self.loaded(load.slot, load.index)) for load in loads}
        emitter = Emitter(self.writer, self.slots.address, Vector(self.channel), numerics=self.slots.numerics)
        for factor in (factor for expr in results.values() for factor in _factors(expr)):
            emitter.vector_of(factor)
        made: dict[Load, list[str]] = {result: [] for result in results}
        for quarter, part in enumerate(parts):
            emitter.held[value] = part
            for load, name in whole.items():
                emitter.held[load] = self._named("vi", quarter_of(self.writer, name, quarter, load.type))
            with emitter.scope():
                for result, expr in results.items():
                    rounded = quantised(expr)
                    made[result].append(emitter.vector_of(rounded[0] if rounded else expr))
        for result, expr in results.items():
            kind, four = INTEGERS[result.type], ", ".join(made[result])
            rounded = quantised(expr)
            self.writer.include("tw_quantise.h" if rounded else "tw_quarters.h")
            text = (
                f"tw_quantised_quarters_{kind}({four}, {rounded[1]})"
                if rounded
                else f"tw_quarters_joined_{kind}({four})"
            )
            self.store(result.slot, result.index, text)

    def _place(self, slot: str, index: tuple[Index, ...]) -> str:
        pointer, offset = self.slots.address(slot, index)
        return f"{pointer} + {Emitter(self.writer, self.slots.address).index(offset)}"

    def _named(self, ctype: str, text: str) -> str:
        name = self.writer.name("v")
        self.writer.line(f"const {ctype} {name} = {text};")
        return name


def quarter_of(writer: Writer, name: str, quarter: int, dtype: DType) -> str:
    """Every fourth of a vector's bytes, from the one numbered `quarter` on, in lanes."""
    writer.include("tw_quarters.h")
    return f"tw_quarter_{INTEGERS[dtype]}({name}, {quarter})"


def replaced(maps: Sequence[Block], value: Load, by: Expr) -> list[Block]:
    """Maps that read something else in place of a value."""

    def of(expr: Expr) -> Expr:
        return by if expr == value else expr

    return [replace(block, values=tuple(one.transform(of) for one in block.values)) for block in maps]


def _composed(maps: Sequence[Block], slots: Slots) -> dict[Load, Expr]:
    """What maps store in memory, by its place, computed from what they read there and from the value before them."""
    known: dict[Expr, Expr] = {}
    for block in maps:
        for store, value in zip(block.stores, block.values, strict=True):
            whole = value.transform(lambda expr: known.get(expr, expr))
            known[Load(store.slot, store.index, value.dtype)] = whole
    return {
        place: expr.transform(by_one_factor)
        for place, expr in known.items()
        if isinstance(place, Load) and place.slot in slots.buffers
    }


def _factors(expr: Expr) -> list[Expr]:
    """What lanes are multiplied by that is the same for all."""
    products = [part.args for part in expr.walk() if isinstance(part, Apply) and part.function == "mul"]
    return [
        factor
        for value, factor in products
        if factor.dtype is DType.F32 and is_positional(factor) and not is_positional(value)
    ]
