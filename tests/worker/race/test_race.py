from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.__main__ import main as compile_main
from compiler.contract.races import PEERS, duration, said_of
from compiler.errors import InputsError
from worker.race import __main__ as program
from worker.race import peers, race, runner
from worker.race.peers import OURS
from worker.race.race import Runner, RunnerFailed

pytestmark = pytest.mark.processes


def made(path: Path, *, dynamic: bool = False) -> Path:
    """A product and a Relu."""
    weights = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
    rows = "rows" if dynamic else 2
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 4])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("race") / "m.onnx")


def compiled(model: Path, **options: object) -> Path:
    asked = json.dumps({"tuning_budget_s": 0, "threads": 1, **options})
    artifact = model.with_suffix(".tw")
    assert compile_main([str(model), "-o", str(artifact), "--options", asked, "--json"]) == 0
    return artifact


@pytest.fixture(scope="module")
def artifact(model: Path) -> Path:
    return compiled(model)


def test_an_artifact_is_raced_with_its_model_on_each_peer(model: Path, artifact: Path) -> None:
    wanted = peers.installed()
    assert "onnxruntime" in wanted
    found = race.race(model, artifact, wanted, rounds=6, seconds=120)
    assert [one.peer for one in found] == [*wanted]
    for one in found:
        assert (one.rounds, one.threads, one.title) == (6, 1, PEERS[one.peer]), one.said
        assert one.ours_s
        assert one.theirs_s
        assert one.ratio
        assert one.low
        assert one.high
        assert one.low <= one.ratio <= one.high
        assert one.difference is not None
        assert one.difference < 1e-5
        assert one.said.startswith(f"{duration(one.ours_s)}; {one.title} {duration(one.theirs_s)}: ")
        assert one.version == peers.version(one.peer) != ""


def test_a_range_is_raced_at_the_size_that_it_is_tuned_for(tmp_path: Path) -> None:
    model = made(tmp_path / "r.onnx", dynamic=True)
    artifact = compiled(model, dims={"rows": {"min": 1, "opt": 3, "max": 8}})
    (found,) = race.race(model, artifact, ["onnxruntime"], rounds=1, seconds=120)
    assert found.rounds == 1
    assert found.low is None
    assert found.said.endswith("in 1 round, which are too few to be sure, at rows=3")


def test_a_sample_is_what_all_run_on(model: Path, artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.full((2, 8), 3, np.float32))
    (found,) = race.race(model, artifact, ["onnxruntime"], rounds=1, seconds=120, sample=tmp_path / "s.npz")
    assert found.difference is not None
    np.savez(tmp_path / "s.npz", x=np.zeros((3, 8), np.float32))
    with pytest.raises(InputsError):
        race.race(model, artifact, ["onnxruntime"], rounds=1, seconds=120, sample=tmp_path / "s.npz")


def test_a_peer_that_cannot_run_the_model_is_said_and_the_other_is_raced(artifact: Path, tmp_path: Path) -> None:
    broken = tmp_path / "m.onnx"
    broken.write_bytes(b"no model")
    (found,) = race.race(broken, artifact, ["onnxruntime"], rounds=1, seconds=120)
    assert found.said.startswith("ONNX Runtime cannot run the model: ")
    assert (found.rounds, found.ratio, found.difference) == (0, None, None)


def test_a_peer_that_is_not_installed_is_said(model: Path, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "installed", lambda: ())
    (found,) = race.race(model, artifact, ["openvino"])
    assert found.said == "OpenVINO is not installed"
    assert found.rounds == 0


def test_who_does_not_answer_in_time_is_killed(model: Path, artifact: Path) -> None:
    (found,) = race.race(model, artifact, ["onnxruntime"], seconds=0.01)
    assert "it took too long" in found.said
    late = Runner(OURS, artifact, model.parent, 1, 0.0)
    with late, pytest.raises(RunnerFailed, match="it took too long"):
        late.ready()
    assert late._process.returncode is not None


def test_a_request_to_stop_ends_it_after_a_round(model: Path, artifact: Path) -> None:
    (found,) = race.race(model, artifact, ["onnxruntime"], rounds=50, seconds=120, stop_requested=lambda: True)
    assert found.rounds == 1


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [
        (1.54, 1.49, 1.58, "1.08 ms; ONNX Runtime 1.66 ms: 1.54 times as fast (1.49 to 1.58)"),
        (0.93, 0.90, 0.95, "1.08 ms; ONNX Runtime 1.66 ms: 0.93 times as fast (0.90 to 0.95)"),
        (1.01, 0.97, 1.03, "1.08 ms; ONNX Runtime 1.66 ms: cannot tell which is faster (0.97 to 1.03 times as fast)"),
        (
            1.5,
            None,
            None,
            "1.08 ms; ONNX Runtime 1.66 ms: 1.50 times as fast in 3 rounds, which are too few to be sure",
        ),
    ],
)
def test_one_sentence_says_it_also_where_it_is_slower(
    ratio: float, low: float | None, high: float | None, said: str
) -> None:
    found = SimpleNamespace(ratio=ratio, low=low, high=high)
    assert said_of("onnxruntime", 1.08e-3, 1.66e-3, found, 3) == said


def test_durations_have_three_digits_and_all_before_the_point() -> None:
    shown = [duration(seconds) for seconds in (1.2345, 0.16643, 0.0163871, 1.084e-3, 3.28e-5, 2.741e-6)]
    assert shown == ["1234 ms", "166 ms", "16.4 ms", "1.08 ms", "32.8 us", "2.74 us"]


def test_a_turn_has_one_timed_run_at_least() -> None:
    runs = []
    assert runner.turn(lambda: runs.append(1), 0.0) >= 0
    assert len(runs) == 2  # one to warm up, since it took longer than the turn


@pytest.mark.parametrize(("run_s", "runs"), [(2.5e-6, 8000), (2e-4, 400), (1e-3, 100), (0.3, 1)])
def test_a_turn_of_enough_runs_ends_early_but_not_at_once(
    run_s: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)

    def run() -> None:
        clock.now += run_s

    monkeypatch.setattr(runner, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    assert runner.turn(run, 0.1) == pytest.approx(run_s)
    assert round(clock.now / run_s) - runs in (1, 2, 3)  # those that warm up, and the rounding of a sum


def test_who_opens_a_model_loads_no_schema_and_no_runtime_before_and_knows_all_peers() -> None:
    program = "import sys, worker.race.runner; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"pydantic", "onnx", *PEERS} & {*done.stdout.split()}
    assert tuple(peers.OPEN) == (OURS, *PEERS)


def test_a_runner_answers_what_it_cannot_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "in.npz")
    runner.main([OURS, str(tmp_path / "absent.tw"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"), "1"])
    assert "absent.tw" in json.loads(capfd.readouterr().out)["failed"]


def test_the_program_prints_a_line_for_each_peer_or_json(
    model: Path, artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(model), str(artifact), "--peer", "onnxruntime", "--rounds", "1"]
    assert program.main(words) == 0
    assert "ONNX Runtime" in capsys.readouterr().out
    assert program.main([*words, "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["peer"], said["rounds"]) == ("onnxruntime", 1)
    assert program.main([str(model), str(model)]) == 1
