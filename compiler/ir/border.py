"""What lies between a caller and a program: strings, as numbers; where random numbers are; how long caches are.

A string that the model itself holds has as its number the place in `words`; any other one a number of its own for one
run, from -1 down, so that strings are equal where their numbers are. A program only compares them and moves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

RANDOM_STATE = "random:state"
"""The name of the input that random operators read: i64 [2], a key and the number of the run."""


@dataclass(frozen=True)
class Growth:
    """Caches to which each run of a program appends: it has room for all of them, and a scalar (i64) says how far.

    length  the input that holds how many rows of the caches count, and the output that holds it after the run
    rows    that a run appends
    room    rows for which there is memory; what lies behind those that count is zero
    pairs   by name of the output that a cache becomes its input, `length` not among them
    axes    along which axis it grows, by name of the input
    dims    by name of a dimension that is as long as caches: how many rows more it has than before the run
    """

    length: tuple[str, str]
    rows: int
    room: int
    pairs: Mapping[str, str]
    axes: Mapping[str, int]
    dims: Mapping[str, int]

    @property
    def states(self) -> dict[str, str]:
        """By name of an output the input that it is in the next run."""
        into, out = self.length
        return {**self.pairs, out: into}


@dataclass(frozen=True)
class Words:
    """A constant of strings that a step reads, in row-major order."""

    items: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """An operator that makes strings, which the loader carries out before the program runs.

    inputs   names of inputs of the model and of results of earlier steps, or constants
    outputs  names of its results, the empty one for what is not asked for
    """

    op: str
    inputs: tuple[str | Words, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, str | int | tuple[str, ...]]


@dataclass(frozen=True)
class Outside:
    """What callers give and get that a program has in another form.

    steps      that make inputs of the program from strings
    sequences  by name of an input that is a sequence how many elements it has: `name.0` and so on are the program's
    absent     optional inputs that the artifact is made without
    returned   by name of an output that is a sequence how many elements it has
    missing    outputs that are optionals without a value
    """

    steps: tuple[Step, ...] = ()
    sequences: Mapping[str, int] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    returned: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """As the manifest has it: what there is of it."""
        steps = [
            {
                "op": step.op,
                "inputs": [
                    {"strings": list(one.items), "shape": list(one.shape)} if isinstance(one, Words) else one
                    for one in step.inputs
                ],
                "outputs": list(step.outputs),
                "attrs": {name: list(one) if isinstance(one, tuple) else one for name, one in step.attrs.items()},
            }
            for step in self.steps
        ]
        found = {
            "steps": steps,
            "sequences": dict(self.sequences),
            "absent": list(self.absent),
            "returned": dict(self.returned),
            "missing": list(self.missing),
        }
        return {name: one for name, one in found.items() if one}


AS_IT_IS = Outside()
"""Of a model whose inputs and outputs are the program's."""


@dataclass(frozen=True)
class Border:
    """The strings and the randomness of one program, and its caches that grow.

    words    the strings of the model, each at its number
    inputs   names of the inputs that are strings, and of the outputs that are
    random   whether the last of the model's own inputs in the graph is RANDOM_STATE, which no caller knows of
    growth   of caches that are states; None where none is
    outside  what callers give and get in another form
    scales   by name of an output the input, of what the codes of caches in int8 are multiplied with
    """

    words: tuple[str, ...] = ()
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    random: bool = False
    growth: Growth | None = None
    outside: Outside = AS_IT_IS
    scales: Mapping[str, str] = field(default_factory=dict)

    def coded(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Inputs by name, those that are strings as their numbers (i64)."""
        numbers = {word: number for number, word in enumerate(self.words)}
        found = dict(arrays)
        for name in self.inputs & arrays.keys():
            flat = [numbers.setdefault(str(item), len(self.words) - len(numbers) - 1) for item in arrays[name].flat]
            found[name] = np.array(flat, np.int64).reshape(arrays[name].shape)
        return found


PLAIN = Border()
"""Of a program without any of it."""
