"""`tilewright doctor`: right, wrong, without a probe, and what differs about the machine."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import parser

from compiler.contract import CompileOptions
from tests.compiling import compile_file
from tilewright.cli.doctor import _differences

Command = Callable[..., Any]
MODEL = """<ir_version: 9, opset_import: ["" : 21]> m (float[2,4] x) => (float[2,4] y)
<float[4,4] w = {1, 2, 0, 1, 0, 1, 1, 1, 2, 1, 1, 0, 1, 1, 1, 1}> { a = MatMul(x, w) y = Tanh(a) }"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    (folder / "m.onnx").write_bytes(parser.parse_model(MODEL).SerializeToString())
    compile_file(folder / "m.onnx", folder / "m.tw", CompileOptions(tuning_budget_s=0, threads=1))
    return folder / "m.tw"


def changed(artifact: Path, path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> Path:
    """The artifact extracted to a folder, after a change of its manifest and members."""
    with zipfile.ZipFile(artifact) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest, members)
    members["manifest.json"] = json.dumps(manifest).encode()
    for name, content in members.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def test_a_machine_that_computes_right_is_described(command: Command, artifact: Path) -> None:
    done = command("doctor", artifact)
    assert done.exit_code == 0
    assert done.stdout.startswith("right: the probe's outputs are in their bands\nprocessor: ")
    found = json.loads(command("doctor", artifact, "--json", "--repeats", "1").stdout)
    assert (found["right"], [one["faults"] for one in found["probe"]]) == (True, [[]])
    assert found["machine"]["cores"] >= 1
    assert found["artifact"]["lanes"] == 1
    assert found["kernels"][0]["seconds"] > 0


def test_wrong_results_are_named_and_end_with_status_1(command: Command, artifact: Path, tmp_path: Path) -> None:
    def wrong(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        weights = bytearray(members["weights.bin"])
        for at in range(0, len(weights) // 4 * 4, 4):
            weights[at + 3] ^= 0x80
        members["weights.bin"] = bytes(weights)
        manifest["files"]["weights.bin"]["sha256"] = hashlib.sha256(weights).hexdigest()

    done = command("doctor", changed(artifact, tmp_path / "wrong", wrong))
    assert done.exit_code == 1
    assert "WRONG: output 'y'" in done.stdout
    assert "memory" in done.stdout


def test_an_artifact_without_a_probe_says_so(command: Command, artifact: Path, tmp_path: Path) -> None:
    old = changed(artifact, tmp_path / "old", lambda manifest, _: manifest.pop("probe"))
    done = command("doctor", old)
    assert done.exit_code == 0
    assert "no probe: compile the model again for one" in done.stdout
    assert json.loads(command("doctor", old, "--json").stdout)["right"] is None


KERNEL = {"predicted_from": "measured", "predicted_s": 1e-3, "seconds": 3e-3}
ABOUT = {"target": "b", "plan": {"lanes": 4, "handover_s": 3e-7}, "compiled_handover_s": 1e-7}


@pytest.mark.parametrize(
    ("about", "machine", "kernels", "said"),
    [
        ({"profiles": ["a", "b", "c"]}, {}, [], "lacks what a needs: b runs"),
        ({}, {"cores": 2}, [], "the plan is for 4 cores, and this process may use 2"),
        ({}, {"governor": "powersave"}, [], "by the governor powersave"),
        ({}, {}, [], "a hand-over between cores takes 300 ns, and 100 ns where"),
        ({}, {}, [KERNEL], "3.00 times as long; 1 of 1 take over 1.5 times as long"),
    ],
)
def test_what_is_other_is_said(
    about: dict[str, Any], machine: dict[str, Any], kernels: list[dict[str, Any]], said: str
) -> None:
    found = [*_differences({**ABOUT, **about}, {"cores": 8, **machine}, kernels)]
    assert any(said in one for one in found), found
    plain = {**ABOUT, "profiles": ["b"], "compiled_handover_s": 3e-7}
    assert [*_differences(plain, {"cores": 4, "governor": "performance"}, [])] == []
