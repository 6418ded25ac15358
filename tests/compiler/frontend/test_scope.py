"""What the names of tensors mean at one place of a program."""

from __future__ import annotations

import pytest

from compiler.errors import MalformedModel
from compiler.frontend.scope import Scope


def test_a_name_is_that_of_the_innermost_scope_that_defines_it_and_an_absent_input_is_none() -> None:
    outer = Scope({}, slots={"x": 1, "y": 2})
    inner = Scope({}, parent=outer, slots={"y": 3, "z": None})
    assert [inner.find(name) for name in "xyz"] == [1, 3, None]
    assert outer.find("y") == 2


def test_a_name_that_no_scope_defines_is_named() -> None:
    with pytest.raises(MalformedModel, match="tensor 'z' is read but never defined"):
        Scope({}, parent=Scope({}, slots={"x": 1})).find("z")
