from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bench.codebook.run import KINDS, main, weights_of
from compiler.encodings.codebook import Codebook
from compiler.encodings.encoding import Use


@pytest.mark.parametrize("values", KINDS)
def test_weights_have_as_many_values_as_asked(values: str) -> None:
    (found, *_) = Codebook.find(weights_of(256, 48, values), Use.GEMV)
    axis = 0 if "each" in values else None
    assert found == Codebook.of({"2": 1, "4": 2, "16": 4, "256": 8}[values.split()[0]], axis)
    assert Codebook.find(weights_of(256, 48, ""), Use.GEMV) == ()


def test_a_run_writes_a_table_of_what_was_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: None)
    # Looked up on every machine: with vectors of eight floats it seldom pays.
    monkeypatch.setattr("compiler.devices.cpu.algorithms.coded_gemv.LOOKUPS", dict.fromkeys((4, 8, 16), 0.0))
    out = tmp_path / "RESULTS.md"
    arguments = ["256x96", "--values", "16", "--budget", "0", "--rounds", "2"]
    assert main([*arguments, "--json", str(tmp_path / "rows.json"), "--markdown", str(out)]) == 0
    said = capsys.readouterr().out
    assert "| 256 x 96 | 1 | 16 |" in said
    assert "| gemv_codebook |" in said
    assert "python -m bench codebook 256x96" in out.read_text()
    with pytest.raises(SystemExit):
        main(["256by96"])
    assert np.isfinite(weights_of(8, 8, "2")).all()
