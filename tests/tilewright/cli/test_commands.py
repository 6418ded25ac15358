from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.tilewright.fake_server import ARTIFACT
from tilewright import follow
from tilewright.arrays import read_npz, write_npz
from tilewright.cli import run

ID = "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11"
Command = Callable[..., Any]


def test_compile_waits_and_leaves_the_artifact_beside_the_model(command: Command, server: Any, model: Path) -> None:
    done = command("compile", model, "--threads", 2, "--dim", "batch=4", "--shape", "x=1x3x8x8", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["state"] == "SUCCEEDED"
    assert Path(said["artifact"]) == model.with_suffix(".tw")
    assert model.with_suffix(".tw").read_bytes() == server.artifact
    (request,) = server.sent("/compile")
    assert json.loads(request.content)["options"] == {
        "threads": 2,
        "dims": {"batch": 4},
        "inputs": {"x": [1, 3, 8, 8]},
    }


def test_compile_shows_progress_to_people_on_standard_error(command: Command, model: Path) -> None:
    done = command("compile", model, "-o", model.parent / "out.tw")
    assert done.exit_code == 0
    assert done.stdout == f"{model.parent / 'out.tw'}\n"
    assert "mind [this]" in done.stderr


def test_the_last_lines_of_compile_say_how_much_faster_it_is(command: Command, server: Any, model: Path) -> None:
    said = ["1.08 ms; ONNX Runtime 1.66 ms: 1.54 times as fast (1.49 to 1.58)", "OpenVINO [cannot] run the model?"]
    server.compared = [{"peer": "p", "said": one.replace("?", "\x1b")} for one in said]
    done = command("compile", model)
    assert done.exit_code == 0
    assert [line for line in done.stderr.splitlines() if line.startswith("compared")] == [
        f"compared    {one}" for one in said
    ]
    assert json.loads(command("compile", model, "--json").stdout)["compared"] == server.compared


def test_the_last_lines_of_compile_have_what_one_asks_next(command: Command, server: Any, model: Path) -> None:
    server.latency_s, server.largest_error = 1.08e-3, 2.34e-7
    server.compared = [{"peer": "onnxruntime", "said": "twice as fast", "ratio": 2.0}]
    report = {"threads": 2, "tolerance": 1e-4, "artifact_bytes": 5 << 20, "target": "cpu:x86-64-v4"}
    server.answers[f"/jobs/{ID}/report"] = {"report": report}
    done = command("compile", model)
    assert done.stdout == f"{model.with_suffix('.tw')}\n"
    assert done.stderr.splitlines()[-6:] == [
        "latency     1.080 ms with 2 threads",
        "compared    twice as fast",
        "error       2.3e-07 of the largest value, of 0.0001 permitted",
        "size        5.0 MiB",
        f"job         http://server.test/#/jobs/{ID}",
        f"next        tilewright run {model.with_suffix('.tw')} --bench",
    ]
    for artifact, said in ((2e-7, "no worse than float32 itself"), (9e-7, "float32 itself: 4e-07, this 9e-07")):
        beside = [{"output": "y", "artifact": artifact, "float32": 4e-7, "decisions": 40, "differing": 1}]
        server.answers[f"/jobs/{ID}/report"] = {"report": {**report, "beside_float32": beside}}
        whole = f"error       2.3e-07 of the largest value, of 0.0001 permitted; {said}; 1 of 40 decisions differ"
        assert whole in command("compile", model).stderr.splitlines()
    server.answers[f"/jobs/{ID}/report"] = {"report": {"verified": False, "target": "cuda:sm_90", "threads": 1}}
    server.events = [("notice", {"message": "from the cache, without a race"}), ("state", {"state": "SUCCEEDED"})]
    server.cached, server.latency_s, server.compared = True, None, []
    assert command("compile", model).stderr.splitlines() == [
        "from the cache, without a race",
        "error       NOT VERIFIED: its report says why",
        f"job         http://server.test/#/jobs/{ID}, from the cache",
        f"next        python {model.with_suffix('.tw')} --help",
    ]


def test_the_last_lines_say_what_each_profile_takes_and_which_was_not_run(
    command: Command, server: Any, model: Path
) -> None:
    server.latency_s, server.largest_error = 1e-3, 2.34e-7
    took = {"v4-amx": None, "v4": 1e-3, "v3": 2e-3}
    bindings = [
        {
            "profile": f"cpu:x86-64-{name}",
            "dims": {"n": size},
            "latency_s": size * (found or 0.0),
            "verified": bool(found),
        }
        for name, found in took.items()
        for size in (1, 8)
    ]
    report = {"tolerance": 1e-4, "target": "cpu:x86-64", "verified": False, "bindings": bindings}
    server.answers[f"/jobs/{ID}/report"] = {"report": report}
    said = command("compile", model).stderr.splitlines()
    assert [line for line in said if line.startswith(("profiles", "error"))] == [
        "profiles    x86-64-v4-amx not run here, x86-64-v4 1.000 ms, x86-64-v3 2.000 ms",
        "error       2.3e-07 of the largest value, of 0.0001 permitted",
    ]


def test_a_job_has_the_name_of_its_models_file(command: Command, server: Any, model: Path) -> None:
    def sent() -> Any:
        return json.loads(server.sent("/compile")[-1].content)

    command("compile", model, "--no-wait")
    assert sent()["name"] == "net.onnx"
    command("compile", model, "--no-wait", "--name", "nightly")
    assert sent()["name"] == "nightly"
    command("compile", "5" * 64, "--no-wait")
    assert "name" not in sent()
    odd = model.with_name("a\tb" + "c" * 200 + ".onnx")
    model.rename(odd)
    command("compile", odd, "--no-wait")
    assert sent()["name"] == "ab" + "c" * 198


def test_jobs_show_latency_speed_up_and_artifact(command: Command, server: Any) -> None:
    server.state, server.latency_s = "SUCCEEDED", 1.08e-3
    server.compared = [
        {"peer": "openvino", "ratio": 3.1, "said": ""},
        {"peer": "onnxruntime", "ratio": 1.54, "said": ""},
        {"peer": "other", "ratio": None, "said": "not installed"},
    ]
    line = command("jobs").stdout.splitlines()[1]
    for cell in (ID, "1.080 ms", "1.54x onnxruntime", ARTIFACT):
        assert cell in line
    server.state = "RUNNING"
    assert ARTIFACT not in command("jobs").stdout, "it is not made yet"


def test_compile_without_waiting_prints_the_jobs_id(command: Command, model: Path) -> None:
    assert command("compile", model, "--no-wait").stdout.strip() == ID


def test_an_interrupted_wait_says_that_the_job_goes_on(
    command: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tilewright.Client, "wait", interrupted)
    done = command("compile", model)
    assert done.exit_code == 130
    assert f"tilewright watch {ID}" in done.stderr


def test_a_failed_job_is_exit_status_1_with_the_reason(command: Command, server: Any, model: Path) -> None:
    refusal = {"reason": "it is unknown", "fix": "use Relu", "node": "n7", "operator": "Bogus"}
    server.problem = {"code": "unsupported_model", "message": "no", "fix": "mend it", "refusals": [refusal]}
    server.events[-1] = ("state", {"state": "FAILED"})
    done = command("compile", model, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"]["code"] == "unsupported_model"
    plain = command("compile", model)
    assert plain.exit_code == 1
    assert "Bogus 'n7': it is unknown; use Relu" in plain.stderr
    assert "Fix: mend it" in plain.stderr


@pytest.mark.parametrize(
    "arguments",
    [("--dim", "batch"), ("--dim", "batch=many"), ("--shape", "x=1xq"), ("--option", "seed={")],
)
def test_malformed_options_are_exit_status_2_and_send_nothing(
    command: Command, server: Any, model: Path, arguments: tuple[str, str]
) -> None:
    done = command("compile", model, *arguments, "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["fix"]
    assert server.seen == []


def test_a_missing_file_is_exit_status_2(command: Command) -> None:
    assert command("compile", "/no/such.onnx").exit_code == 2


def test_an_unknown_command_is_exit_status_2(command: Command) -> None:
    assert command("bake").exit_code == 2


def test_a_server_that_is_away_is_exit_status_3(command: Command, server: Any) -> None:
    server.refusals = [1] * 100
    done = command("jobs", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["error"]["code"] == "server_unreachable"


def test_no_server_at_all_is_exit_status_3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from tilewright.cli import app

    monkeypatch.delenv("TILEWRIGHT_URL", raising=False)
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(tmp_path))
    assert CliRunner().invoke(app, ["jobs"]).exit_code == 3


def test_a_refused_request_is_exit_status_4(command: Command, server: Any) -> None:
    server.answer = lambda request: httpx_problem()
    assert command("jobs").exit_code == 4


@pytest.mark.parametrize("code", ["bad_request", "invalid_options"])
def test_a_request_that_makes_no_sense_to_the_server_is_exit_status_2(command: Command, server: Any, code: str) -> None:
    server.answer = lambda request: httpx_problem(code, 422)
    assert command("jobs").exit_code == 2
    assert json.loads(command("jobs", "--json").stdout)["error"]["code"] == code


def httpx_problem(code: str = "not_authenticated", status: int = 401) -> Any:
    import httpx

    return httpx.Response(status, json={"code": code, "detail": "no API key was sent", "fix": "send one"})


def test_a_damaged_download_is_exit_status_5(command: Command, server: Any, tmp_path: Path) -> None:
    server.etag = f'"{"0" * 64}"'
    server.state = "SUCCEEDED"
    assert command("download", ID, "-o", tmp_path / "m.tw").exit_code == 5


def test_jobs_lists_for_people_and_for_programs(command: Command) -> None:
    assert json.loads(command("jobs", "--json").stdout)["jobs"][0]["id"] == ID
    assert "QUEUED" in command("jobs").stdout


def test_purge_says_what_is_deleted(command: Command, server: Any) -> None:
    assert command("purge", ID).stdout.strip() == "deleted: the job, 1 artifacts, 412 tuning records, 37 workloads"
    assert json.loads(command("purge", ID, "--json").stdout)["job"] == ID


def test_cancel_says_what_became_of_the_job(command: Command, server: Any) -> None:
    server.state = "CANCELLED"
    assert command("cancel", ID).stdout.strip() == f"{ID} CANCELLED"
    assert (server.seen[0].method, server.seen[0].url.path) == ("POST", f"/jobs/{ID}/cancel")


def test_jobs_and_models_are_called_and_looked_for(command: Command, server: Any, model: Path) -> None:
    beside = ("--name", "nightly", "--tag", "ci", "--tag", "main", "--max-queue", 60, "--max-run", 5.5)
    assert command("compile", model, *beside, "--no-wait").exit_code == 0
    sent = json.loads(server.sent("/compile")[0].content)
    assert {name: sent[name] for name in ("name", "tags", "max_queue_s", "max_run_s")} == {
        "name": "nightly",
        "tags": ["ci", "main"],
        "max_queue_s": 60.0,
        "max_run_s": 5.5,
    }
    assert "note" not in sent
    assert command("label", ID, "--name", "", "--tag", "kept").exit_code == 0
    assert json.loads(server.seen[-1].content) == {"name": None, "tags": ["kept"]}
    (digest,) = server.models
    assert json.loads(command("models", "label", digest, "--note", "old", "--json").stdout)["note"] == "old"
    command("jobs", "--tag", "a", "--tag", "b", "--query", "night", "--model", digest)
    asked = server.seen[-1].url.params
    assert (asked.get_list("tag"), asked["query"], asked["model"]) == (["a", "b"], "night", digest)
    command("models", "--tag", "vision", "--query", "mobile")
    assert dict(server.seen[-1].url.params) | {"tag": "vision", "query": "mobile"} == dict(server.seen[-1].url.params)


def test_a_wait_that_is_over_is_exit_status_6(
    command: Command, server: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "FRUITLESS", 1 << 30)  # its streams end at once; those of a server after the wait
    server.events = server.events[:-1]
    done = command("watch", ID, "--timeout", 0.05)
    assert (done.exit_code, "it goes on" in done.stderr) == (6, True)
    assert command("compile", model, "--timeout", 0.05).exit_code == 6


def test_watch_prints_a_line_of_json_for_each_event_and_then_the_job(command: Command) -> None:
    done = command("watch", ID, "--json")
    *events, job = map(json.loads, done.stdout.splitlines())
    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    assert job["state"] == "SUCCEEDED"


def test_download_takes_the_job_too(command: Command, server: Any, tmp_path: Path) -> None:
    server.state = "SUCCEEDED"
    done = command("download", ID, "-o", tmp_path / "m.tw", "--json")
    assert json.loads(done.stdout) == {"artifact": str(tmp_path / "m.tw"), "bytes": len(server.artifact)}


class InputError(ValueError):
    pass


class RunError(RuntimeError):
    pass


class Doubling:
    """Stands for the Model of an artifact's loader, the lowest seam: one input named `file`, doubled."""

    errors = (InputError, RunError)
    bindings: tuple[SimpleNamespace, ...] = ()

    def __enter__(self) -> Doubling:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def random_inputs(self, seed: int) -> dict[str, Any]:
        return {"file": np.full((2, 3), seed, np.float32)}

    def run(self, given: dict[str, Any], **drawn: int | None) -> dict[str, Any]:
        if "file" not in given:
            raise InputError("the input 'file' is missing. Fix: give it")
        return {"a/b": given["file"] * np.float32(2), **{name: np.array(number) for name, number in drawn.items()}}

    def bench(self, seconds: float, given: dict[str, Any]) -> dict[str, Any]:
        self.run(given)
        return {"median": seconds, "p10": 1.0, "p90": 3.0, "min": 0.5, "runs": 10, "samples": [seconds]}


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "m.tw"
    real = tilewright.load
    monkeypatch.setattr(tilewright, "load", lambda asked: Doubling() if asked == path else real(asked))
    return path


def test_run_reads_inputs_and_writes_outputs_whatever_their_names(
    command: Command, artifact: Path, tmp_path: Path
) -> None:
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_npz(tmp_path / "x.npz", {"file": given})
    done = command("run", artifact, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz", "--json")
    assert json.loads(done.stdout)["outputs"] == {"a/b": {"shape": [2, 3], "dtype": "float32"}}
    np.testing.assert_array_equal(read_npz(tmp_path / "y.npz")["a/b"], given * 2)


def test_outputs_that_cannot_be_written_are_an_error_and_leave_nothing(
    command: Command, artifact: Path, tmp_path: Path
) -> None:
    done = command("run", artifact, "--output", tmp_path / "none" / "y.npz", "--json")
    assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (2, "usage")
    assert not (tmp_path / "none").exists()


def test_run_takes_random_inputs_of_the_seed(command: Command, artifact: Path, tmp_path: Path) -> None:
    assert command("run", artifact, "--seed", 21, "--output", tmp_path / "y.npz").exit_code == 0
    assert read_npz(tmp_path / "y.npz")["a/b"].max() == 42


def test_run_draws_by_the_seed_where_the_model_draws(
    command: Command, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Doubling, "bindings", (SimpleNamespace(random=True),))
    assert command("run", artifact, "--seed", 21, "--output", tmp_path / "y.npz").exit_code == 0
    assert read_npz(tmp_path / "y.npz")["seed"] == 21


def test_run_measures_for_people_and_for_programs(command: Command, artifact: Path) -> None:
    assert json.loads(command("run", artifact, "--bench", "--json").stdout)["bench"]["median"] == run.BENCH_S
    assert "median 2000.000 ms" in command("run", artifact, "--bench").stdout


@pytest.mark.parametrize("name", ["other", None])
def test_run_tells_what_the_loader_refuses(command: Command, artifact: Path, tmp_path: Path, name: str | None) -> None:
    write_npz(tmp_path / "x.npz", {name or "file": np.zeros(1)})
    done = command("run", artifact if name else tmp_path / "none.tw", "--input", tmp_path / "x.npz", "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["fix"].startswith("give")


def test_run_refuses_inputs_that_are_no_npz(command: Command, artifact: Path, model: Path) -> None:
    done = command("run", artifact, "--input", model)
    assert done.exit_code == 2
    assert "Fix: give an .npz file" in done.stderr
