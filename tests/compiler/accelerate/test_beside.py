"""What a part of a model costs beside an accelerator, and where that number is from."""

from __future__ import annotations

import pytest

from compiler.accelerate.beside import Beside
from compiler.accelerate.cores import MODELLED
from compiler.contract.devices import HOST


@pytest.mark.parametrize(
    ("core", "measured_s", "modelled", "seconds", "source"),
    [
        ("a53", 0.5, {"a53": 0.25}, 0.25, f"a53, {MODELLED}"),
        ("a53", 0.5, {"a53": None}, 0.5, "measured on this cpu"),
        (HOST, 0.5, {"a53": 0.25}, 0.5, "measured on this cpu"),
        (HOST, 0.0, {}, 0.0, "not known: a loop or a branch"),
    ],
)
def test_a_part_is_priced_as_modelled_for_its_core_else_as_measured_here(
    core: str, measured_s: float, modelled: dict[str, float | None], seconds: float, source: str
) -> None:
    part = Beside(core, {}, {}, measured_s, "this cpu", modelled, {})
    assert (part.seconds, part.source) == (seconds, source)
