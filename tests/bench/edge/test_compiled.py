from __future__ import annotations

import pytest

from bench.edge import compiled, subjects


def test_a_network_is_compiled_for_an_accelerator_and_told_in_a_row() -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    line = compiled.row("transformer, Gelu", lambda: subjects.transformer("Gelu", rows=8, width=16), compiled.CHIPS[:1])
    label, rules, noise, cycles = (cell.strip() for cell in line.strip("|").split("|"))
    assert label == "transformer, Gelu"
    assert int(rules) >= 1
    assert float(noise) > 15
    assert cycles.endswith("(0)")
