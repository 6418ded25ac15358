"""A piece of program over ai.onnx that stands for one call, written operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import AttrValue, Body, Call, Expansion, Input
from compiler.frontend.reading.tensors import CODES
from compiler.ir.tensor import DType


class Composition:
    """Calls and constants in the order in which they were written. Names are its own; x0, x1, ... are the inputs."""

    def __init__(self, site: Site, prefix: str = "") -> None:
        self.site = site
        self._prefix = prefix
        self._calls: list[Call] = []
        self._constants: dict[str, np.ndarray] = {}

    def constant(self, array: np.ndarray) -> str:
        """The name of a constant."""
        name = f"{self._prefix}c{len(self._constants)}"
        self._constants[name] = array
        return name

    def ints(self, *values: int) -> str:
        """The name of a vector of i64."""
        return self.constant(np.array(values, np.int64))

    def call(self, op: str, *inputs: str, **attrs: AttrValue) -> str:
        """The name of the one result of an operator in its newest form."""
        (name,) = self.results(op, inputs, 1, **attrs)
        return name

    def results(self, op: str, inputs: Sequence[str], count: int, **attrs: AttrValue) -> tuple[str, ...]:
        """The names of so many results of an operator."""
        names = tuple(f"{self._prefix}t{len(self._calls)}{'_' * at}" for at in range(count))
        self._calls.append(Call(op, tuple(inputs), names, attrs))
        return names

    def cast(self, name: str, found: DType, wanted: DType) -> str:
        """A value of one element type in another; itself where they are the same."""
        return name if found is wanted else self.call("Cast", name, to=CODES[wanted])

    def reshape(self, name: str, *dims: int) -> str:
        """A value in another shape, in which 0 is an extent and nothing else."""
        return self.call("Reshape", name, self.ints(*dims), allowzero=1)

    def loop(self, most: int, start: str, dtype: DType, turn: Callable[[Composition, str], tuple[str, str]]) -> str:
        """What becomes of a value in at most so many turns.

        A turn is written into a composition of its own, reads what is here by its name, and gives whether there is
        another one, a scalar of bool, and the next value, of the same type.
        """
        inner = Composition(self.site, f"{self._prefix}inner ")
        going, after = turn(inner, "carried")
        inputs = (Input("turn", DType.I64, ()), Input("on", DType.BOOL, ()), Input("carried", dtype, None))
        defined = {*(each.name for each in inputs), *inner._constants}
        defined.update(name for call in inner._calls for name in call.outputs)
        captured = frozenset(name for call in inner._calls for name in call.reads if name not in defined)
        body = Body(inputs, (going, after), tuple(inner._calls), inner._constants, captured)
        trips, on = self.constant(np.array(most, np.int64)), self.constant(np.array(True))
        return self.call("Loop", trips, on, start, body=body)

    def gives(self, *results: str) -> Expansion:
        """The whole, whose outputs are these values; names beyond the outputs that are asked for are left out."""
        asked = self.site.results
        given = [Call("Identity", (result,), (name,)) for result, name in zip(results, asked, strict=False) if name]
        return self.site.becomes(*self._calls, *given, **self._constants)
