"""Points beyond sizes that are known while running: what is stored there is stored without computing anything else.

Where a kernel has no such bound nothing is written. See `compiler.forms.bounds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import prod

from compiler.codegen.expressions import Emitter, Vector, has_vectors, is_vectorised
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid
from compiler.codegen.writer import Writer
from compiler.forms.bounds import Beyond, Bound, Stored, beyond_bounds, leading
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Load, Position
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel

TASKS = "for (long tile = begin; tile < end; tile++)"


@dataclass(frozen=True)
class Span:
    """Places `first` .. `past` - 1 of some axes, row-major, as C expressions.

    A place is one point of each axis, or `steps` neighbouring ones of them.
    """

    axes: tuple[Axis, ...]
    first: str
    past: str
    steps: tuple[int, ...] = ()

    @staticmethod
    def whole(axis: Axis) -> Span:
        """All iterations of an axis."""
        return Span((axis,), "0", str(axis.extent))

    @property
    def inner(self) -> int:
        """Places of one place of the outermost axis."""
        others = self.axes[1:]
        return prod(
            -(-axis.extent // step) for axis, step in zip(others, self.steps[1:] or (1,) * len(others), strict=True)
        )

    @property
    def is_loop(self) -> bool:
        """Whether it is a plain loop over one axis."""
        return len(self.axes) == 1 and set(self.steps) <= {1}


@dataclass
class Trimming:
    """The bounds of one kernel in the form that its lowering works on, and the text being written."""

    writer: Writer
    kernel: Kernel
    slots: Slots
    lanes: int
    beyond: tuple[Beyond, ...] = field(init=False)

    def __post_init__(self) -> None:
        shared = frozenset(self.kernel.shared)
        self.beyond = tuple(one for one in beyond_bounds(self.kernel) if one.bound.place.axes <= shared)

    @contextmanager
    def tasks(self, grid: TaskGrid | None) -> Iterator[None]:
        """The loop over a kernel's tile tasks; the caller writes what one does.

        A task of which all points lie beyond a size stores what is there.
        """
        with self.writer.block(TASKS):
            if grid is not None:
                self.skip(grid)
            yield

    @contextmanager
    def loops(self, axes: Sequence[Axis], counted: Sequence[Axis], around: Sequence[Span]) -> Iterator[None]:
        """Loops over `axes` that end at sizes, inside of a task of which these are `counted`.

        The caller writes what is done at a point, over all of `around`.
        """
        with ExitStack() as stack:
            for place, axis in enumerate(axes):
                past = self.clip(Span.whole(axis), 1, [*map(Span.whole, axes[place + 1 :]), *around])
                stack.enter_context(self.writer.block(f"for (long {axis} = 0; {axis} < {past}; {axis}++)"))
            self._skip_point([*counted, *axes], counted, around)
            yield

    def _skip_point(self, axes: Sequence[Axis], counted: Sequence[Axis], around: Sequence[Span]) -> None:
        """On to the next point where this one lies beyond a size that ends neither a loop nor a task."""
        for one in self.beyond:
            place = one.bound.place
            ends_loop = any(place == Index.of(axis) for axis in axes)
            if place.axes <= {*axes} and not place.axes <= {*counted} and not ends_loop:
                with self.writer.block(f"if ({self._emitter().index(one.bound.place)} >= {self.size(one.bound.size)})"):
                    self._store((one,), around)
                    self.writer.line("continue;")

    def clips(self, axes: Sequence[Axis]) -> bool:
        """Whether a size is a bound on the outermost of these axes, so that `clip` may end a span of them."""
        return any(axes and axes[0] == leading(one.bound.place)[0] for one in self.beyond)

    def clip(self, span: Span, step: int, around: Sequence[Span], rest: int = 0) -> str:
        """A C name for where those places of a span end that lie below a size, in steps of `step` from its first on.

        With `rest` the last step is only as many times `rest` as it takes. What lies beyond, up to the span's end, is
        stored, at all places of `around`, and at the points that other shared axes have here. The span's own end where
        no bound is on the outermost of its axes. Where a bound is on that and on axes below it, some of the last places
        may lie beyond.
        """
        for one in self.beyond:
            if span.axes and span.axes[0] == leading(one.bound.place)[0]:
                span = replace(span, past=self._clipped(one, span, step, around, rest or step))
        return span.past

    def _clipped(self, one: Beyond, span: Span, step: int, around: Sequence[Span], rest: int) -> str:
        writer, first, past = self.writer, span.first, span.past
        live, clipped = writer.name("live"), writer.name("clipped")
        places = self._places(one.bound)
        if span.steps[:1] > (1,):
            places = f"({places} + {span.steps[0] - 1}) / {span.steps[0]}"
        writer.line(f"const long {live} = {places}{f' * {span.inner}' if span.inner > 1 else ''};")
        up = f"{first} + ({live} - {first} + {rest - 1}) / {rest} * {rest}" if rest > 1 else live
        if rest < step:
            count = writer.name("count")
            writer.line(f"const long {count} = {live} - {first};")
            last = f"tw_least_of({step}, ({count} % {step} + {rest - 1}) / {rest} * {rest})"
            up = f"{first} + {count} / {step} * {step} + {last}"
        writer.line(f"const long {clipped} = {live} <= {first} ? {first} : tw_least_of({past}, {up});")
        with writer.block(f"if ({clipped} < {past})"):
            self._store((one,), (replace(span, first=clipped), *around))
        return clipped

    def overwritten(self, maps: Sequence[Block]) -> tuple[Bound, ...]:
        """The bounds that `maps` need not ask about, since `overwrite` stores again what lies beyond them.

        All those on one axis each, where what lies beyond is a number, and no element that the maps read is chosen by
        data, which may be anything there; else none.
        """
        found = [one for one in self.beyond if one.bound.place in map(Index.of, one.bound.place.axes)]
        reads = [load for block in maps for value in block.values for load in value.loads]
        by_data = any(Position(index).loads for load in reads for index in load.index)
        numbers = all(not stored.value.loads for one in found for stored in one.stored)
        return tuple(one.bound for one in found) if numbers and not by_data else ()

    def overwrite(self, span: Span, most: int, around: Sequence[Span]) -> None:
        """Stores what lies beyond sizes, `most` points behind each that lie in the span, at all places of `around`.

        For register tiles that are computed whole, of which a part lies beyond.
        """
        for one in self.beyond:
            kept = any(not self.slots.buffers[stored.store.slot].unread for stored in one.stored)
            if most and kept and span.axes and one.bound.place == Index.of(span.axes[0]):
                first, past = self.writer.name("first"), self.writer.name("past")
                places = self._places(one.bound)
                self.writer.line(f"const long {first} = tw_between({span.first}, {places}, {span.past});")
                self.writer.line(f"const long {past} = tw_least_of({span.past}, {first} + {most});")
                with self.writer.block(f"if ({first} < {past})"):
                    self._store((one,), (replace(span, first=first, past=past), *around))

    def ends_any(self, axes: Sequence[Axis]) -> bool:
        """Whether a size is a bound on one of these axes, so that `list_live` may leave out places of them."""
        return any(leading(one.bound.place)[0] in axes for one in self.beyond)

    def list_live(self, span: Span, live: str, count: str, around: Sequence[Span]) -> None:
        """Appends the places of a span that do not lie beyond a size as a whole to a C array of `count` elements.

        Any of the axes may end at a size. What lies beyond is stored, at all places of `around`.
        """
        writer, place = self.writer, self.writer.name("place")
        steps = dict(zip(span.axes, span.steps or (1,) * len(span.axes), strict=True))
        ends: list[tuple[Beyond, Axis, str]] = []
        for one in self.beyond:
            axis, _ = leading(one.bound.place)
            if axis in steps:
                end = writer.name("end")
                writer.line(f"const long {end} = ({self._places(one.bound)} + {steps[axis] - 1}) / {steps[axis]};")
                ends.append((one, axis, end))
        with writer.block(f"for (long {place} = {span.first}; {place} < {span.past}; {place}++)"):
            at = self._decoded(span, place)
            points = [self._points(axis, at[axis], step) for axis, step in steps.items()]
            for one, axis, end in ends:
                with writer.block(f"if ({at[axis]} >= {end})"):
                    self._store((one,), (*points, *around))
                    writer.line("continue;")
            writer.line(f"{live}[{count}++] = {place};")

    def size(self, size: Load) -> str:
        """A size in C."""
        return self._emitter().scalar(size)

    def _places(self, bound: Bound, more: int = 0) -> str:
        """How many places the leading axis of a bound has below its size and `more` elements, from 0 to all of them."""
        axis, factor = leading(bound.place)
        assert axis is not None
        size = self.size(bound.size)
        if factor == 1:
            places = f"({size} < 0 ? 0 : {size} > {axis.extent} ? {axis.extent} : (long){size})"
            return f"{places} + {more}" if more else places
        name = self.writer.name("places")
        up = more + factor - 1
        self.writer.line(f"const long {name} = {size} < 0 ? {up // factor} : ((long){size} + {up}) / {factor};")
        return f"tw_least_of({name}, {axis.extent})"

    # Whole tasks

    def skip(self, grid: TaskGrid) -> None:
        """On to the next task where all points of this one lie beyond a size; what is there is stored."""
        counted = {axis for level in grid.levels for axis in level.axes}
        known = [one for one in self.beyond if one.bound.place.axes <= counted]
        if not known:
            return
        with self.writer.block(""):
            spans = self._spans(grid)
            firsts = {axis: text for span in spans for axis, text in _firsts(span).items()}
            for stored in dict.fromkeys(one.stored for one in known):
                alike = [one for one in known if one.stored == stored]
                tests = [f"{self._lowest(one.bound.place, firsts)} >= {self.size(one.bound.size)}" for one in alike]
                with self.writer.block(f"if ({' || '.join(tests)})"):
                    self._store(alike[:1], spans)
                    self.writer.line("continue;")

    def _spans(self, grid: TaskGrid) -> list[Span]:
        """Where a task's points lie, with what they begin at declared; shared axes that no level cuts are whole."""
        spans: list[Span] = []
        inner = 1
        for level in reversed([level for level in grid.levels if level.axes]):
            spans.insert(0, self._span(level, inner, is_outermost=inner * level.tasks == grid.tasks))
            inner *= level.tasks
        cut = {axis for level in grid.levels for axis in level.axes}
        return [*spans, *(Span.whole(axis) for axis in self.kernel.shared if axis not in cut)]

    def _span(self, level: Cut, inner: int, is_outermost: bool) -> Span:
        if level.tasks == 1:
            return Span(level.axes, "0", str(prod(level.places)), level.steps)
        writer, first, past = self.writer, self.writer.name("first"), self.writer.name("past")
        number = f"tile / {inner}" if inner > 1 else "tile"
        number += "" if is_outermost else f" % {level.tasks}"
        writer.line(f"const long {first} = {number}{f' * {level.take}' if level.take > 1 else ''};")
        places = prod(level.places)
        ends = f"{first} + {level.take}"
        writer.line(f"const long {past} = {f'tw_least_of({ends}, {places})' if places % level.take else ends};")
        return Span(level.axes, first, past, level.steps)

    def _lowest(self, place: Index, firsts: Mapping[Axis, str]) -> str:
        """The least value of a sum of axes whose first points are given."""
        emitter = self._emitter()
        emitter.names = {axis: f"({text})" if " " in text else text for axis, text in firsts.items()}
        return emitter.index(place)

    # What is stored

    def _store(self, alike: Sequence[Beyond], spans: Sequence[Span]) -> None:
        for one in alike:
            for stored in (each for each in one.stored if not self.slots.buffers[each.store.slot].unread):
                with self.writer.block(""):
                    self._store_one(stored, spans)

    def _store_one(self, stored: Stored, spans: Sequence[Span]) -> None:
        spans = [*spans, *(Span.whole(axis) for axis in stored.axes)]
        with ExitStack() as stack:
            spans = self._limited(stored, spans, stack)
            along = self._along(stored, spans)
            for span in spans:
                if span is not along:
                    self._loop(span, stack)
            if along is None:
                self._put(stored, None)
            else:
                self._vectors(stored, along)

    def _limited(self, stored: Stored, spans: Sequence[Span], stack: ExitStack) -> list[Span]:
        """The spans without what nobody reads behind sizes; where a task has but one such point, under a condition."""
        limits = self._limits(stored)
        inside = {axis for span in spans for axis in span.axes}
        if tests := [f"{axis} < {limit}" for axis, limit in limits.items() if axis not in inside]:
            stack.enter_context(self.writer.block(f"if ({' && '.join(tests)})"))
        found = []
        for span in spans:
            limit = limits.get(span.axes[0])
            if limit and span.steps[:1] <= (1,):
                past = f"{limit} * {span.inner}" if span.inner > 1 else limit
                span = replace(span, past=f"tw_least_of({span.past}, {past})")
            found.append(span)
        return found

    def _limits(self, stored: Stored) -> dict[Axis, str]:
        """By axis, from where on nobody reads what one store puts there, as C variables."""
        buffer = self.slots.buffers[stored.store.slot]
        margins: dict[Axis, list[str]] = {}
        for place, margin in zip(stored.store.index, buffer.margins, strict=False):
            for bound in (one.bound for one in self.beyond if one.bound.place == place and margin >= 0):
                axis, _ = leading(place)
                if axis is not None:
                    margins.setdefault(axis, []).append(self._places(bound, margin))
        limits: dict[Axis, str] = {}
        for axis, ends in margins.items():
            limits[axis] = self.writer.name("limit")
            end = f"tw_least_of({axis.extent}, {ends[0]})"
            for other in ends[1:]:
                end = f"tw_least_of({end}, {other})"
            self.writer.line(f"const long {limits[axis]} = {end};")
        return limits

    def _along(self, stored: Stored, spans: Sequence[Span]) -> Span | None:
        """The loop along which a store's elements are neighbours."""
        slot = stored.store.slot
        offset = self.slots.address(slot, stored.store.index)[1]
        if not has_vectors(self.slots.buffers[slot].type.dtype) or not is_vectorised(stored.value):
            return None
        return next((span for span in spans if span.is_loop and offset.coefficient(span.axes[0]) == 1), None)

    def _loop(self, span: Span, stack: ExitStack) -> None:
        """Loops over the points of a span."""
        writer, block = self.writer, stack.enter_context
        if span.is_loop:
            (axis,) = span.axes
            block(writer.block(f"for (long {axis} = {span.first}; {axis} < {span.past}; {axis}++)"))
            return
        place, steps = writer.name("place"), span.steps or (1,) * len(span.axes)
        block(writer.block(f"for (long {place} = {span.first}; {place} < {span.past}; {place}++)"))
        if set(steps) == {1}:
            decode(writer, span.axes, place)
            return
        at = self._decoded(span, place)
        for axis, step in zip(span.axes, steps, strict=True):
            self._loop(self._points(axis, at[axis], step), stack)

    def _decoded(self, span: Span, place: str) -> dict[Axis, Axis]:
        """Declares where a place of a span lies along each of its axes, in steps."""
        steps = span.steps or (1,) * len(span.axes)
        at = {
            axis: Axis(f"{place}_{number}", -(-axis.extent // step))
            for number, (axis, step) in enumerate(zip(span.axes, steps, strict=True))
        }
        decode(self.writer, [*at.values()], place)
        return at

    def _points(self, axis: Axis, at: Axis, step: int) -> Span:
        """The points of an axis at one place of it."""
        first = f"{at} * {step}" if step > 1 else str(at)
        past = f"tw_least_of({first} + {step}, {axis.extent})" if axis.extent % step else f"{first} + {step}"
        return Span((axis,), first, past)

    def _vectors(self, stored: Stored, span: Span) -> None:
        writer, (axis,) = self.writer, span.axes
        writer.line(f"long {axis} = {span.first};")
        with writer.block(f"for (; {axis} + TW_LANES <= {span.past}; {axis} += TW_LANES)"):
            self._put(stored, Vector(axis))
        with writer.block(f"if ({axis} < {span.past})"):
            count = writer.name("count")
            writer.line(f"const long {count} = {span.past} - {axis};")
            self._put(stored, Vector(axis, count))

    def _put(self, stored: Stored, vector: Vector | None) -> None:
        emitter, store = self._emitter(vector), stored.store
        emitter.store(store.slot, store.index, emitter.value(stored.value), self.slots.buffers[store.slot].type.dtype)

    def _emitter(self, vector: Vector | None = None) -> Emitter:
        return Emitter(self.writer, self.slots.address, vector, self.slots.extents, self.slots.numerics)


def _firsts(span: Span) -> Mapping[Axis, str]:
    """The least point of each axis of a span, as far as it is known: that of the outermost of several."""
    first = f"{span.first} / {span.inner}" if span.inner > 1 else span.first
    step = span.steps[0] if span.steps else 1
    return {span.axes[0]: f"{first} * {step}" if step > 1 else first, **dict.fromkeys(span.axes[1:], "0")}
