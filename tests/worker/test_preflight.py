from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.frontend import outline
from compiler.preflight import preflight
from tests.compiler.networks import Network
from worker import inquiry
from worker.limits import BEHIND_OTHERS
from worker.sandbox.linux import LINUX

COMMAND = [sys.executable, "-P", "-m", "worker.preflight"]
MAP = """workload
  kernel Relu(in x0: f32[5, 7]; out y0: f32[5, 7])
    for i:5, j:7
      y0[i, j] = max(x0[i, j], 0.0:f32)
  input b0: f32[5, 7] plain
  output b0: f32[5, 7] plain"""
LOOPS = {"algorithm": "loops", "levels": {}, "scopes": {}}


def asked(order: Any, **environment: str) -> dict[str, Any]:
    """The answer of a process to a line."""
    line = order if isinstance(order, bytes) else json.dumps(order).encode() + b"\n"
    reported = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment}
    done = subprocess.run(COMMAND, input=line, capture_output=True, timeout=180, check=True, env=reported)
    assert done.stdout.count(b"\n") == 1
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(build("tiny_cnn"), path)
    return path


def test_the_answer_of_the_process_is_that_of_the_compiler(model: Path) -> None:
    options = {"threads": 1, "dims": {"nothing": 3}}
    answer = asked({"order": "preflight", "model": str(model), "options": options})
    assert answer == preflight(model, CompileOptions.from_json(options))
    assert not answer["ok"]


def test_a_graph_is_answered_as_the_compiler_outlines_it(model: Path) -> None:
    assert asked({"order": "graph", "model": str(model)}) == {"graph": outline(model)}


def test_a_record_is_answered_with_its_source() -> None:
    answer = asked({"order": "source", "text": MAP, "variant": LOOPS, "target": "cpu:aarch64"})
    assert "void k0_relu(" in answer["source"]


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ({"order": "source", "text": "", "variant": LOOPS, "target": "cpu"}, "source_unavailable"),
        ({"order": "preflight", "model": "/nowhere", "options": {"colour": 1}}, "invalid_options"),
        ({"order": "graph", "model": "/nowhere"}, "malformed_model"),
        ({"order": "sing"}, "internal"),
        ({"order": "source"}, "internal"),
        (b"no json\n", "internal"),
        (b"[]\n", "internal"),
        ({"order": "sing", "limits": {"colour": 1}}, "internal"),
    ],
)
def test_what_cannot_be_done_is_answered_with_a_problem(order: Any, code: str) -> None:
    problem = asked(order)["problem"]
    assert problem["code"] == code
    assert problem["message"]


def test_without_an_order_it_ends_quietly() -> None:
    done = subprocess.run(COMMAND, input=b"", capture_output=True, timeout=180, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.skipif(not LINUX, reason="how nice a process is says /proc")
def test_who_preflights_gets_no_greater_share_of_the_cores_than_who_compiles() -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"no json\n")
        process.stdin.flush()
        assert b"problem" in process.stdout.readline()
        nice = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()[16]
    assert int(nice) == os.nice(0) + BEHIND_OTHERS


@pytest.mark.skipif(not LINUX, reason="the walls are of Linux")
def test_the_walls_hold_a_model_sees_no_file_beside_itself(tmp_path: Path) -> None:
    """External data lies beside the model, but was not named in the order: it cannot be read."""
    net = Network()
    x = net.node("Gemm", [net.input(2, 64), net.weight(64, 32)], (2, 32))
    path = tmp_path / "model.onnx"
    onnx.save(net.model([x]), path, save_as_external_data=True, location="data.bin", size_threshold=0)
    assert preflight(path, CompileOptions())["ok"]
    sealed = asked({"order": "preflight", "model": str(path), "options": {}})
    assert sealed["problem"]["code"] == "malformed_model"
    assert "data.bin" in sealed["problem"]["message"]
    named = {"order": "preflight", "model": str(path), "options": {}, "data": {"data.bin": str(tmp_path / "data.bin")}}
    assert asked(named)["ok"]


def test_where_a_wall_is_missing_that_is_demanded_nothing_is_read(model: Path) -> None:
    order = {"order": "preflight", "model": str(model), "options": {}}
    problem = asked({**order, "walls": ["limits", "moat"]})["problem"]
    assert (problem["code"], problem["fault"]) == ("walls_missing", "machine")
    assert problem["details"] == {"missing": "moat"}
    assert asked({**order, "walls": ["limits"]})["ok"]
    source = {"order": "source", "text": MAP, "variant": LOOPS, "target": "cpu:aarch64", "walls": ["moat"]}
    assert asked(source)["problem"]["code"] == "walls_missing"


def test_which_of_the_walls_are_missing_is_told_with_what_they_take() -> None:
    assert asked({"order": "walls"}) == {"missing": [], "fix": ""}
    assert asked({"order": "walls", "walls": ["limits"]}) == {"missing": [], "fix": ""}
    reported = asked({"order": "walls", "walls": ["limits", "moat"]})
    assert reported["missing"] == ["moat"]
    assert "there is no wall moat, but limits" in reported["fix"]


@pytest.mark.skipif(not LINUX, reason="the walls are of Linux")
def test_a_preflight_has_the_walls_of_a_job(model: Path) -> None:
    """What `python -m worker.sandbox.restrictions` finds on this machine, it may be asked for."""
    standing = inquiry.answer("worker.sandbox.restrictions")
    assert asked({"order": "walls", "walls": standing})["missing"] == []
    assert asked({"order": "preflight", "model": str(model), "options": {}, "walls": standing})["ok"]


@pytest.mark.skipif(not LINUX, reason="threads are counted by /proc")
def test_with_a_second_thread_the_walls_would_not_hold_and_nothing_is_done(model: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    answer = asked({"order": "preflight", "model": str(model), "options": {}}, PYTHONPATH=path)
    assert "2 threads run where one must" in answer["problem"]["message"]


def test_a_model_that_wants_more_memory_than_is_granted_is_told_so(tmp_path: Path) -> None:
    net = Network()
    x = net.node("Gemm", [net.input(1, 4096), net.weight(4096, 4096)], (1, 4096))
    onnx.save(net.model([x]), tmp_path / "model.onnx")
    order = {"order": "preflight", "model": str(tmp_path / "model.onnx"), "options": {}}
    answer = asked({**order, "limits": {"memory_bytes": 16 << 20}})
    assert answer["problem"]["code"] in ("resource_exhausted", "memory_limit", "model_too_large")
    assert asked({**order, "limits": {"memory_bytes": 1 << 30}})["ok"]
