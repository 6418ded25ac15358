from __future__ import annotations

import pytest

from bench.edge import compiled, subjects


def test_a_network_is_compiled_for_an_accelerator_as_it_is_and_legalised() -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    lines = compiled.rows("block", lambda: subjects.transformer("Gelu", rows=8, width=16), compiled.CHIPS[:1])
    columns = len(compiled.HEAD.splitlines()[0].split("|"))
    as_it_is, legalised = ([cell.strip() for cell in line.split("|")] for line in lines)
    assert len(as_it_is) == len(legalised) == columns
    assert (as_it_is[3], legalised[3]) == ("as it is", "legalised")
    assert not as_it_is[4].endswith("/ 0")
    assert legalised[4].endswith("/ 0")
    assert (as_it_is[12], legalised[5]) == ("1.00", "0")
    assert float(as_it_is[8]) > float(as_it_is[9]) > 0
    assert min(float(as_it_is[13]), float(legalised[13])) > 15
