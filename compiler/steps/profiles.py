"""Which profiles an artifact of a family's target has programs for, where the options do not say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from compiler.contract import CompileOptions, kinds
from compiler.errors import TilewrightError
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import Body, Call, Model
from compiler.frontend.reading.read import ModelFile, read

_OF_INTEGERS = re.compile("Quant|Integer|QLinear|NBits")
"""In names of operators that round to integers, or multiply some."""


def with_profiles(file: ModelFile, options: CompileOptions) -> CompileOptions:
    """Options that name the profiles: the family's usual ones, or all, where instructions of others may be of use.

    Those are for integers of 8 bits and fewer and for 16-bit floats. Who loads a file says that it cannot be read.
    """
    family = kinds.family(options.target)
    if family is None or options.profiles:
        return options
    needed = options.precision != "fp32" or _has_integers(file)
    return replace(options, profiles=family.profiles if needed else family.usual)


def _has_integers(file: ModelFile) -> bool:
    try:
        model = read(file, Limits())
    except TilewrightError:
        return False
    return any(_OF_INTEGERS.search(call.op) for call in _calls(model)) or any(map(_is_short, _constants(model.body)))


def _is_short(constant: object) -> bool:
    """Whether it is of integers of at most 8 bits: of fewer bits there is one in a byte too."""
    return isinstance(constant, np.ndarray) and constant.dtype.itemsize == 1 and constant.dtype != np.bool_


def _calls(model: Model) -> Iterator[Call]:
    for function in model.functions.values():
        yield from function.calls
    yield from _calls_of(model.body)


def _calls_of(body: Body) -> Iterator[Call]:
    for call in body.calls:
        yield call
        for inner in call.bodies:
            yield from _calls_of(inner)


def _constants(body: Body) -> Iterator[object]:
    yield from body.constants.values()
    for call in _calls_of(body):
        yield from call.attrs.values()
        for inner in call.bodies:
            yield from inner.constants.values()
