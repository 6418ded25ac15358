from __future__ import annotations

from bench.problem import problem
from compiler.errors import OptionsError


def test_the_fix_stands_behind_the_reason_where_there_is_one() -> None:
    assert problem(OptionsError("threads is 0", fix="use 1 to 256")) == "threads is 0. Fix: use 1 to 256"
    assert problem(OptionsError("nothing helps")) == "nothing helps"
