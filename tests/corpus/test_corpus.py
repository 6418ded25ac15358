"""Each fault that was ever found stays mended, for each target and precision that runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

from compiler.contract import CompileOptions
from compiler.devices.cpu.target import PROFILES, runs_here
from compiler.pack.loader import Model
from tests.compiling import compile_file
from tests.corpus import FAULTS, Fault

HEAD = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]> m '
ROUNDED = 2e-2
"""By which a float may differ where the precision rounds."""
PROFILES_HERE = [one.name for one in PROFILES if runs_here(one)]
WAYS: dict[str, dict[str, Any]] = {
    "here": {},
    "two lanes": {"threads": 2},
    **{name: {"target": name} for name in PROFILES_HERE[1:]},
    "bf16": {"precision": "bf16"},
    "auto": {"precision": "auto"},
    "unfused": {"without": ["epilogue", "inline", "joins", "views"]},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
def test_what_was_wrong_is_right(fault: Fault, way: str, tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + fault.text)
    data = model.SerializeToString()
    assert len(data) <= 4096
    (tmp_path / "m.onnx").write_bytes(data)
    asked = {"tuning_budget_s": 0, "threads": 1, "unverified": "allow", "dims": fault.dims, **WAYS[way]}
    compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", CompileOptions.from_json(asked), measure=False)
    within = ROUNDED if "precision" in asked else fault.within
    with Model(tmp_path / "m.tw") as loaded:
        for inputs, right in fault.runs:
            found = loaded.run(inputs)
            assert found.keys() == right.keys()
            for name, want in right.items():
                assert (found[name].dtype, found[name].shape) == (want.dtype, want.shape)
                if want.dtype.kind != "f":
                    np.testing.assert_array_equal(found[name], want)
                    continue
                largest = np.abs(want[np.isfinite(want)]).max(initial=0.0)
                np.testing.assert_allclose(found[name], want, rtol=0, atol=within * largest)


def test_each_fault_has_a_name_and_says_what_was_wrong() -> None:
    assert len({one.name for one in FAULTS}) == len(FAULTS)
    assert all(one.was and one.runs for one in FAULTS)
