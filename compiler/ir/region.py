"""Regions: parts of a program between which the artifact decides while it runs, how often one runs or which one.

In a Graph a region is a node with a `Body` among its attributes; no operator has a record of it:

    While        (trips, going, carried ..., outer ...) -> (carried ..., columns ..., count)
                 body: (number, carried ..., outer ...) -> ([going,] carried ..., rows ...)
                 while number < trips and going: the body, with number (i64) from 0. Either may be absent. `carried`
                 says how many values one iteration hands to the next, `decides` whether the body says if the next one
                 runs, `most` how many may run; 0: any number, and there are no columns. A column is a new first axis
                 of `most` rows, one for each iteration, zero from `count` (i64) on.
    Conditional  (condition, outer ...) -> (results ...)
                 then, else: (outer ...) -> (results ...), of equal types

Values keep their types from one iteration to the next. Among kernels the same is a `Region`: a routine that consists of
calls, whose operands are those of the node and, after them, each constant at each place where a call reads it, so that
a kernel of a body may have its weights packed like any other.

One kind of region is of kernels alone (`compiler.fuse.batches.batch`):

    Slices       ([count,] values ...) -> (results ...)
                 body: the same for one slice of a batch, which is so many samples that each is computed by itself.
                 With `count` (i64) only so many slices run, the first ones, and what belongs to others is not written.
                 Operands that have the type of the body's input are the same for all slices; others, and all results,
                 have as many times its first dimension as there are slices. Slices may run in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from compiler.encodings.encoding import DENSE, REGION_USES, Encodings
from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph, Node
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.tensor import DType, TensorType
from compiler.ir.text import print_kernel_graph, print_routine
from compiler.ir.tile import Cost, Tile

WHILE, CONDITIONAL, SLICES = "While", "Conditional", "Slices"
NUMBER = TensorType(DType.I64, ())
"""Of an iteration, of all that ran, and of those that may."""
TRUTH = TensorType(DType.BOOL, ())


@dataclass(frozen=True)
class Loop:
    """What a While says of its operands and results; `given` says which of `trips` and `going` are there.

    `outer` counts what the body reads of the graph around it.
    """

    given: tuple[bool, bool]
    carried: int
    outer: int
    columns: int
    decides: bool
    most: int

    @staticmethod
    def of(node: Node) -> Loop:
        """Of a node of a graph."""
        carried = number_of(node, "carried")
        return Loop(
            (node.inputs[0] is not None, node.inputs[1] is not None),
            carried,
            len(node.inputs) - 2 - carried,
            len(node.outputs) - 1 - carried,
            bool(number_of(node, "decides")),
            number_of(node, "most"),
        )

    @property
    def first(self) -> int:
        """The position of the first carried value among the operands that are there."""
        return sum(self.given)

    @property
    def rows(self) -> int:
        """The position of the first row among the body's results."""
        return self.decides + self.carried


def bodies_of(node: Node) -> tuple[Graph, ...]:
    """Of a While its one body, of a Conditional the branch for true, then the other."""
    return tuple(node.bodies[name].graph for name in (("body",) if node.op == WHILE else ("then", "else")))


def number_of(node: Node, name: str) -> int:
    """A whole number among a region's attributes."""
    found = node.attrs[name]
    assert isinstance(found, int)
    return found


@dataclass(frozen=True)
class Use:
    """A constant that a call of a body reads: `slot` is its place among the region's operands.

    body, call, operand  where it is read, each by position
    constant             its id in the body
    """

    slot: int
    body: int
    call: int
    operand: int
    constant: int


@dataclass(frozen=True, eq=False, repr=False)
class Region(Routine):
    """A loop, a choice between two lists of calls, or a batch in slices: one call of the graph around it.

    `slices` counts those of a batch, and `counted` says that its first operand is how many of them run; 0 for another
    region, in which `loop` is None for a choice between two bodies. `tiles` has a Tile for each call of each body once
    these are chosen. Equal regions have the same code; what constants hold and calls cost plays no part in it.
    """

    bodies: tuple[KernelGraph, ...] = ()
    loop: Loop | None = None
    tiles: tuple[tuple[Tile, ...], ...] = ()
    costs: tuple[tuple[Cost, ...], ...] = ()
    """Of each of these calls, once."""
    slices: int = 0
    counted: bool = False

    @property
    def times(self) -> int:
        """How often a body runs, as far as is known: as often as it may."""
        return self.slices or (max(self.loop.most, 1) if self.loop else 1)

    @property
    def first(self) -> int:
        """The position of the first operand that is handed to the body."""
        return self.loop.first if self.loop else int(self.counted or not self.slices)

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """Constants in the order of their slots, which are behind those of the node's own operands."""
        return tuple(_uses(self.bodies, len(self.bodies[0].inputs) + self._own))

    @property
    def _own(self) -> int:
        """Operands of the node that are none of its body's, less inputs of its body that are no operands."""
        return self.first - (self.loop is not None)

    def verify(self) -> None:
        """Raises VerifyError for bodies that do not fit their operands, and for what is wrong in them."""
        super().verify()
        for body in self.bodies:
            body.verify()
        if self.tiles and [len(tiles) for tiles in self.tiles] != [len(body.calls) for body in self.bodies]:
            raise VerifyError(f"region {self.family} has tiles for other calls\n{self}")
        types = [slot.type for slot in self.inputs]
        if self.counted and types[:1] != [NUMBER]:
            raise VerifyError(f"region {self.family} has no number of slices as first operand\n{self}")
        for body in self.bodies:
            inputs = [body.buffers[id].type for id in body.inputs]
            given = types[self.first : self.first + len(inputs) - (self.loop is not None)]
            if not self._fits(inputs[1 if self.loop else 0 :], given):
                raise VerifyError(f"region {self.family} gives its body other operands than it takes\n{self}")
        for use in self.uses:
            if types[use.slot] != self.bodies[use.body].buffers[use.constant].type:
                raise VerifyError(f"region {self.family} has another constant at slot {use.slot}\n{self}")
        if len(self.inputs) != len(self.bodies[0].inputs) + self._own + len(self.uses):
            raise VerifyError(f"region {self.family} has operands that no body reads\n{self}")
        self._verify_results()

    def _fits(self, inner: list[TensorType], given: list[TensorType]) -> bool:
        """Whether a body's inputs take operands of these types."""
        return len(inner) == len(given) and all(
            one == other or (self.slices > 0 and self._of_all_slices(one) == other)
            for one, other in zip(inner, given, strict=True)
        )

    def _of_all_slices(self, type: TensorType) -> TensorType:
        return replace(type, shape=(type.dims[0] * self.slices, *type.shape[1:])) if type.rank else type

    def _verify_results(self) -> None:
        given = [slot.type for slot in self.outputs]
        for body in self.bodies:
            found = [body.buffers[id].type for id in body.outputs]
            if self.slices:
                fits = [self._of_all_slices(type) for type in found] == given
            elif self.loop:
                head = [TRUTH] * self.loop.decides
                rows = [TensorType(type.dtype, (self.loop.most, *type.shape)) for type in found[self.loop.rows :]]
                fits = found[: len(head)] == head and [*found[len(head) : self.loop.rows], *rows, NUMBER] == given
                first = self.loop.first
                carried = [slot.type for slot in self.inputs[first : first + self.loop.carried]]
                fits = fits and carried == given[: self.loop.carried]
            else:
                fits = found == given
            if not fits:
                raise VerifyError(f"region {self.family} has other results than its body\n{self}")

    @property
    def _kind(self) -> Loop | tuple[int, bool] | None:
        return (self.slices, self.counted) if self.slices else self.loop

    @cached_property
    def _text(self) -> str:
        """All that its code depends on: names of operators and numbers in constants do not count."""
        bodies = [
            (
                [(id, buffer.type, buffer.layout, buffer.storage, buffer.strides, buffer.offset, buffer.element)
                 for id, buffer in body.buffers.items()],
                [(repr(_nameless(call.kernel)), call.inputs, call.outputs, call.in_place) for call in body.calls],
                body.inputs,
                body.outputs,
                [
                    (id, [encoding.name for encoding in _encodings(body, id)])
                    for id in body.constants
                ],
            )
            for body in self.bodies
        ]  # fmt: skip
        whole = (self.name, self.inputs, self.outputs, self._kind, self.tiles, bodies)
        return hashlib.sha256(repr(whole).encode()).hexdigest()[:24]

    def __repr__(self) -> str:
        return f"Region(family={self.family!r}, code={self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Region) and (self.family, self._text) == (other.family, other._text)

    def __hash__(self) -> int:
        return hash((self.family, self._text))

    def __str__(self) -> str:
        """The routine, and below it each of its bodies with the tiles of its calls."""
        lines = [print_routine(self)]
        for number, body in enumerate(self.bodies):
            lines.append("  " + print_kernel_graph(body).replace("\n", "\n  "))
            lines += [f"    call {at} as {tile}" for at, tile in enumerate(self.tiles[number] if self.tiles else ())]
        return "\n".join(lines)


def _encodings(body: KernelGraph, constant: int) -> Encodings:
    """All in which one of a body's constants may be kept."""
    return (DENSE, *(one for use in REGION_USES for one in body.encodings(constant, use)))


def _nameless(kernel: Kernel | Routine) -> Kernel | Routine:
    return replace(kernel, family="")


def _uses(bodies: tuple[KernelGraph, ...], slot: int) -> Iterator[Use]:
    for number, body in enumerate(bodies):
        for position, call in enumerate(body.calls):
            for operand, id in enumerate(call.inputs):
                constant = body.buffers[id].storage
                if constant in body.constants:
                    yield Use(slot, number, position, operand, constant)
                    slot += 1


def regions_of(kernels: KernelGraph) -> Iterator[tuple[int, Region]]:
    """The calls of a kernel graph that are regions, by position."""
    for position, call in enumerate(kernels.calls):
        if isinstance(call.kernel, Region):
            yield position, call.kernel


def inner_calls(kernels: KernelGraph, times: int = 1) -> Iterator[tuple[KernelGraph, int, int]]:
    """Every call inside of regions, nested ones too, that is no region: its kernel graph, its position, how often."""
    for _, region in regions_of(kernels):
        for body in region.bodies:
            for position, call in enumerate(body.calls):
                if not isinstance(call.kernel, Region):
                    yield body, position, times * region.times
            yield from inner_calls(body, times * region.times)


def inner_tiles(kernels: KernelGraph) -> Iterator[Tile]:
    """The tiles of all calls inside of regions, nested ones too."""
    for _, region in regions_of(kernels):
        for body, tiles in zip(region.bodies, region.tiles, strict=False):
            yield from tiles
            yield from inner_tiles(body)
