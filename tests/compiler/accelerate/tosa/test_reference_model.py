"""Files and results against the TOSA reference model, where its program is installed (`pip install tosa-tools`)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler.accelerate.tosa.execute import read
from compiler.accelerate.tosa.lower import lowered
from compiler.accelerate.tosa.write import to_bytes
from tests.compiler.accelerate.drawn import CASES, Drawn

PROGRAM = shutil.which("tosa_reference_model")


@pytest.mark.skipif(PROGRAM is None, reason="tosa_reference_model is not on the path")
@pytest.mark.parametrize("name", CASES)
def test_a_form_is_evaluated_as_the_reference_model_does(name: str, tmp_path: Path) -> None:
    for seed in (1, 3):
        drawn = Drawn(seed)
        CASES[name](drawn)
        graph = lowered(drawn.writer.program(drawn.numbers, [drawn.out])).graph
        (tmp_path / "m.tosa").write_bytes(to_bytes(graph))
        files = [f"x{at}.npy" for at in range(len(drawn.given))]
        for file, array in zip(files, drawn.given, strict=True):
            np.save(tmp_path / file, array)
        described = {
            "tosa_file": str(tmp_path / "m.tosa"),
            "ifm_name": graph.inputs,
            "ifm_file": files,
            "ofm_name": graph.outputs,
            "ofm_file": ["y.npy"],
            "variable_name": [],
            "variable_file": [],
            "expected_failure": False,
        }
        (tmp_path / "run.json").write_text(json.dumps(described))
        subprocess.run([str(PROGRAM), f"--test_desc={tmp_path / 'run.json'}"], check=True, cwd=tmp_path, timeout=60)
        (found,) = read(to_bytes(graph)).run(drawn.given)
        np.testing.assert_array_equal(found, np.load(tmp_path / "y.npy"), f"seed {seed}")
