"""What the caller's thread is foreseen to take, from records that may say anything."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.devices.cpu.target import this_machine
from compiler.ir.machine import Record
from compiler.knowledge.kinds import CALLER_BYTES, CALLER_S
from compiler.knowledge.making import stream_record
from compiler.steps.dividing.caller import LONGEST_CALLER_S, caller_seconds, foreseen


def record(model: str, **variant: Any) -> Record:
    return stream_record(model, "by hand", this_machine(), variant, 1e-3, 2)


def test_the_last_of_the_models_that_copy_most_nearly_as_much_says_what_is_foreseen() -> None:
    large, small = (
        record("one", **{CALLER_S: 1e-4, CALLER_BYTES: 600}),
        record("two", **{CALLER_S: 5e-5, CALLER_BYTES: 99}),
    )
    assert foreseen([large, small], "mine", 500) is large
    assert foreseen([large, small], "mine", 200) is small
    later = record("three", **{CALLER_S: 2e-4, CALLER_BYTES: 600})
    assert foreseen([large, small, later], "mine", 600) is later
    assert foreseen([large, small, later], "three", 600) is large, "what this one took counts once it has run"
    assert foreseen([], "mine", 600) is None


@pytest.mark.parametrize("said", [-1.0, 2 * LONGEST_CALLER_S, "soon", None])
def test_what_nobody_can_have_measured_is_not_believed(said: Any) -> None:
    false = record("one", **{CALLER_S: said, CALLER_BYTES: 600})
    assert caller_seconds(false) is None
    assert foreseen([false], "mine", 600) is None
    assert foreseen([record("one", **{CALLER_S: 1e-4})], "mine", 600) is None, "of how many bytes it does not say"
