"""Results are on standard output and talk is on standard error, of every command there is.

`ROWS` has one row for each command; a command without one fails. So `F=$(tilewright download $JOB)` holds a path.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn

import tilewright
from bench import subjects
from compiler.contract import CompileOptions
from service.jobs.lifecycle.attestation import Signer
from tests.compiling import compile_file
from tests.tilewright.cli.test_generate import IDS, Opened
from tests.tilewright.cli.test_server_facts import RECORD
from tests.tilewright.cli.test_server_owners import ENTRY, HOOK, HOOK_ID, KEY, KEY_ID, NEW, OWNER, QUOTAS, SENT
from tests.tilewright.cli.test_server_work import BATCH, COMPARED, COMPRESSED, LEGALISED, PLACED, PREFLIGHT, QUANTIZED
from tests.tilewright.cli.test_share import SHARE
from tests.tilewright.cli.test_workload import SHORT
from tests.tilewright.fake_server import ARTIFACT, BENCHMARK, INFERENCE, JOB, OTHER, FakeServer
from tests.tilewright.generation.decoders import fixed
from tilewright import light, local, profiles
from tilewright.arrays import write_npz
from tilewright.cli import changes as changing
from tilewright.cli.commands import tree
from tilewright.offline import Queue
from tilewright.up import run as running

pytestmark = pytest.mark.processes

Command = Callable[..., Any]
DIGEST = "5" * 64
REQUEST = "REQUEST"
"""The id of what waits in the queue of this machine, in a row."""


@dataclass(frozen=True)
class Row:
    """A call of a command, in words where `@` stands for the folder of files, and what is to be where.

    out     what standard output holds; with `alone` it holds nothing else
    talk    what standard error holds; standard output has none of it
    status  with which it ends
    """

    words: str
    out: str
    talk: str = ""
    alone: bool = False
    status: int = 0


BARS = "mind [this]"
"""A notice of the job that the fake server tells of."""
ROWS: tuple[Row, ...] = (
    Row("up --data @/data", "Tilewright is ready at http://127.0.0.1:1", "the worker ended"),
    Row("compile @/m.onnx -o @/made.tw", "@/made.tw", BARS, alone=True),
    Row("compile @/m.onnx --no-wait", JOB, alone=True),
    Row("preflight @/m.onnx", "refused: 1 node cannot be compiled", status=1),
    Row("bench JOB OTHER", "A is faster by 1.23x", BARS),
    Row("infer JOB @/in.npz -o @/out.npz", "y: float32 [3]", "written: @/out.npz"),
    Row("quantize @/m.onnx -o @/q.onnx", "@/q.onnx", f"model {'0' * 64}, job {JOB}"),
    Row("compress @/m.onnx -o @/c.onnx", "@/c.onnx", f"model {'0' * 64}, job {JOB}"),
    Row("minimise @/m.onnx", "@/m.minimised.onnx: found"),
    Row("legalise @/m.onnx --for ethos-u55-128", "0 hand-overs", "slow [here]"),
    Row("legalise @/m.onnx --for edgetpu --server -o @/l.onnx", "@/l.onnx", f"model {'0' * 64}, job {JOB}"),
    Row("accelerate @/m.onnx --target npu:ethos-u55-128", "placed", "slow [here]"),
    Row("place @/m.onnx --platform @/p.toml", "placed", "slow [here]"),
    Row("place @/m.onnx --platform @/p.toml --server", "for latency: 2.500 ms, 400.00 frames per second"),
    Row("jobs", JOB),
    Row("compare JOB OTHER", "threads=4"),
    Row("watch JOB", ARTIFACT, "done: tilewright download", alone=True),
    Row("finish JOB", f"{JOB} SUCCEEDED", alone=True),
    Row("clone JOB", f"{JOB} SUCCEEDED", alone=True),
    Row("label JOB --name best", f"{JOB} SUCCEEDED", alone=True),
    Row("share JOB", f"http://server.test/#/shared/{JOB}/tws_x", alone=True),
    Row("cancel JOB", f"{JOB} SUCCEEDED", alone=True),
    Row("purge JOB", "deleted: the job", alone=False),
    Row("log JOB", "attempt [1]", alone=True),
    Row("download JOB -o @/d.tw", "@/d.tw", alone=True),
    Row("attest JOB -o @/a.json", "@/a.json", alone=True),
    Row("signer", "-----BEGIN PUBLIC KEY-----"),
    Row("verify @/model.tw --signer @/lab.pem", "is genuine: job job-1"),
    Row("reproduce @/model.tw @/m.onnx", "the same bytes, from 9 measurements"),
    Row("changes JOB", "the same bytes"),
    Row("redeploy @/model.tw @/m.onnx -o @/r.tw", "same program: yes"),
    Row("export @/model.tw @/image --as oci", "sha256:"),
    Row("export @/model.tw @/repository --as triton", "@/repository", alone=False),
    Row("strip @/model.tw -o @/l.tw --weights @/w", "@/l.tw  @/w", alone=True),
    Row("refit @/light.tw @/light.weights -o @/again.tw", "@/again.tw  ", alone=False),
    Row("recommend JOB OTHER", ARTIFACT, "measured by benchmark", alone=True),
    Row("recommend JOB OTHER --latency-ms 1", "", "none; the nearest is", alone=True, status=1),
    Row("race @/m.onnx", "Tilewright 1.08 ms with 2 threads", "compiling, unless that was done before"),
    Row("check @/m.onnx --against @/model.tw", "ok     latency", "running both in turns"),
    Row("run @/model.tw", "float32"),
    Row(f"generate @/decoder.tw --ids {IDS} --max-tokens 2", " ", "2 tokens: --max-tokens"),
    Row("serve m=@/model.tw --port 0", "serving on http://127.0.0.1:", "m: cpu:"),
    Row("doctor @/model.tw --repeats 2", "right: the probe's outputs are in their bands"),
    Row("timeline @/model.tw --repeats 2 -o @/t.svg", "measured", "written: @/t.svg"),
    Row("targets", "AVX-512"),
    Row("operators", "Conv"),
    Row("operators none", "opsets", "No operator holds 'none'."),
    Row("workers", "idle"),
    Row("me", "owner ada, role compiler"),
    Row("audit", "203.0.113.7"),
    Row("models", DIGEST),
    Row("models upload @/m.onnx", "MODEL", alone=True),
    Row(f"models label {DIGEST} --note x", DIGEST, alone=True),
    Row(f"models workload {DIGEST}", "seq=32"),
    Row(f"models delete {DIGEST}", "deleted: the model"),
    Row("batches", "1 SUCCEEDED 1 FAILED"),
    Row(f"batches show {BATCH}", "threads=4"),
    Row(f"batches cancel {BATCH}", f"{BATCH}: 1 SUCCEEDED, 1 FAILED", alone=True),
    Row(f"batches retry {BATCH}", f"{BATCH}: 1 SUCCEEDED, 1 FAILED", alone=True),
    Row("queue", REQUEST),
    Row("queue add @/m.onnx", "-", alone=False),
    Row("queue send", JOB, alone=True),
    Row(f"queue drop {REQUEST}", REQUEST, alone=True),
    Row("records", RECORD["id"]),
    Row("records --csv", "id,seconds\n1,2", alone=True),
    Row(f"records show {RECORD['id']}", "213.00 us"),
    Row("records export @/all.jsonl", "@/all.jsonl", alone=True),
    Row("records import @/in.npz", "records: 3 imported", "line 17: no number"),
    Row("profiles", "http://lab:1"),
    Row("profiles list", "http://lab:1"),
    Row("profiles add home http://home:2", "config.toml"),
    Row("profiles use lab", "config.toml"),
    Row("profiles remove lab", "config.toml"),
    Row("keys", KEY_ID),
    Row("keys list", KEY_ID),
    Row("keys make", "twk_shown-this-once", "not shown again", alone=True),
    Row(f"keys rotate {KEY_ID}", "twk_shown-this-once", "not shown again", alone=True),
    Row(f"keys revoke {KEY_ID}", KEY_ID),
    Row("webhooks", HOOK["url"]),
    Row("webhooks make https://a.test", HOOK_ID),
    Row(f"webhooks test {HOOK_ID}", KEY_ID),
    Row(f"webhooks deliveries {HOOK_ID}", "503"),
    Row(f"webhooks delete {HOOK_ID}", HOOK_ID),
    Row("owners", "ada"),
    Row("owners list", "ada"),
    Row("owners show ada", "ada active"),
    Row("owners make ada", "ada active"),
    Row("owners limit ada --queued-jobs 3", "ada active"),
    Row("owners suspend ada", "ada active"),
    Row("owners resume ada", "ada active"),
    Row("owners delete ada --confirm ada", "deleted ada: "),
)


def commands() -> Iterator[str]:
    """The words of every command, those of groups with their group's; a group alone lists."""
    for name, one in tree().items():
        yield name
        yield from (f"{name} {inner}" for inner in getattr(one, "commands", ()))


def test_every_command_has_a_row() -> None:
    known = {*commands()}
    called = [" ".join(row.words.split()[:2]) for row in ROWS]
    assert {words if words in known else words.split()[0] for words in called} == known


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact, and what `strip` makes of it."""
    folder = tmp_path_factory.mktemp("made")
    model = subjects.from_zoo("tiny_cnn", folder).file
    compile_file(model, folder / "model.tw", CompileOptions.from_json({"tuning_budget_s": 0, "threads": 1}))
    light.strip(folder / "model.tw", folder / "light.tw", folder / "light.weights")
    return folder


@pytest.fixture
def folder(made: Path, model: Path, tmp_path: Path) -> Path:
    for name in ("model.tw", "light.tw", "light.weights"):
        (tmp_path / name).symlink_to(made / name)
    (tmp_path / "m.onnx").write_bytes(model.read_bytes())
    (tmp_path / "p.toml").write_text('about = "a board"\n[devices.dsp.records]\nfile = "dsp.json"\n')
    (tmp_path / "dsp.json").write_text('{"conv1": 0.5}')
    write_npz(tmp_path / "in.npz", {"x": np.ones(3, np.float32)})
    signer = Signer(tmp_path / "key")
    (tmp_path / "lab.pem").write_text(signer.public.pem)
    digest = hashlib.sha256((tmp_path / "model.tw").read_bytes()).hexdigest()
    predicate = {
        "buildDefinition": {"externalParameters": {"model": "9f86"}},
        "runDetails": {"metadata": {"invocationId": "job-1", "finishedOn": "2026-11-21T04:00:24Z"}},
    }
    subject = [{"name": "model.tw", "digest": {"sha256": digest}}]
    kind = "https://in-toto.io/Statement/v1"
    envelope = signer.envelope({"_type": kind, "subject": subject, "predicate": predicate})
    (tmp_path / "model.tw.intoto.json").write_text(json.dumps(envelope))
    return tmp_path


@pytest.fixture(autouse=True)
def world(server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What servers, processes and a decoder answer."""
    _server(server)

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert words[:2] == [sys.executable, "-m"], words
        return subprocess.CompletedProcess(words, 0, *PROCESSES[words[2]](words))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(local, "compile_to", lambda made, model, options: None)
    monkeypatch.setattr(local, "compiled", lambda model, options: tmp_path / "raced.tw")
    monkeypatch.setattr(changing, "read_manifest", lambda path: {"model_digest": DIGEST})
    monkeypatch.setattr(changing, "model_file", lambda client, digest, folder: Path(digest))
    real, decoder = tilewright.load, Opened(fixed(1, 4).bindings)
    monkeypatch.setattr(
        tilewright,
        "load",
        lambda path, *given, **how: decoder if Path(path).name == "decoder.tw" else real(path, *given, **how),
    )

    def up(data: Path, port: int, ready_file: Path | None, announce: Any, say: Any) -> None:
        say("the worker ended")
        announce(running.Ready("http://127.0.0.1:1", data / "api_key", data, 1))

    monkeypatch.setattr(running, "up", up)
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: None)
    profiles.save(profiles.Profiles({"lab": profiles.Profile("http://lab:1")}))


RACED = {"peer": "onnxruntime", "threads": 2, "ours_s": 1.08e-3, "said": "1.08 ms; ONNX Runtime 1.66 ms: 1.54"}
PAIR: dict[str, Any] = {"kept_s": 1e-3, "new_s": 1e-3, "ratio": 1.0, "low": 0.99, "high": 1.01, "difference": 0.0}
PAIR |= {"kept_bytes": 100, "new_bytes": 100}
AGAIN: dict[str, Any] = {"same": True, "made": "a", "measurements": 9, "kernels": 4, "measured": 3}
AGAIN |= {name: [] for name in ("differing", "fields", "reasons", "missing", "changed")}
DEPLOYED: dict[str, Any] = {"same_program": True, "kernels": 4, "measured": 3, "errors": [], "notices": []}
DEPLOYED |= {name: [] for name in ("differing", "reasons", "changed", "calls")}
HERE = ("placed", "slow [here]")
PROCESSES: dict[str, Callable[[list[str]], tuple[str, str]]] = {
    "compiler.minimise": lambda words: (f"{Path(words[3]).with_suffix('.minimised.onnx')}: found", ""),
    "compiler.legalise": lambda words: (json.dumps({"after": {"handovers": 0}}), "slow [here]"),
    "compiler.accelerate": lambda words: HERE,
    "compiler.platforms": lambda words: HERE,
    "compiler.reproduce": lambda words: (json.dumps(AGAIN), ""),
    "compiler.redeploy": lambda words: (json.dumps(DEPLOYED), ""),
    "worker.race.pair": lambda words: (json.dumps(PAIR), ""),
    "worker.race": lambda words: (json.dumps([RACED]), ""),
}
"""By module what its process prints and says."""


def _server(server: FakeServer) -> None:
    """All that a row asks the server for."""
    here, packed = f"/models/{DIGEST}", io.BytesIO()
    write_npz(packed, {"y": np.zeros(3, np.float32)})
    etag = f'"{hashlib.sha256(packed.getvalue()).hexdigest()}"'
    batch = {"id": BATCH, "model": DIGEST, "states": {"SUCCEEDED": 1, "FAILED": 1}, "ended": True}
    hook = {**HOOK, "secret": "whsec_x"}
    server.state = "SUCCEEDED"
    server.models[DIGEST] = {"digest": DIGEST, "bytes": 1, "files": []}
    server.pages = {"": {"records": [RECORD], "next_cursor": None}}
    target = {"name": "cpu:x86-64-v4", "description": "AVX-512", "measured_by": [], "built_by": [], "queued": 0}
    worker = {"name": "w/1", "queues": ["cpu"], "hardware": {}, "compiler": "0.1.0", "busy": False}
    refused = [{"line": 17, "reason": "no number"}]
    report = {"seconds": 0.0043, "outputs": {"y": {"dtype": "float32", "shape": [3]}}}
    server.answers |= {
        "/preflight": PREFLIGHT,
        "/inferences": server.job(id=INFERENCE, artifact_id=None, state="QUEUED"),
        f"/inferences/{INFERENCE}": server.job(id=INFERENCE, report=report),
        f"/inferences/{INFERENCE}/outputs": httpx.Response(200, content=packed.getvalue(), headers={"ETag": etag}),
        "/comparison": COMPARED,
        f"/jobs/{JOB}/shares": {**SHARE, "token": "tws_x", "link": f"/#/shared/{JOB}/tws_x"},
        f"/jobs/{JOB}/log": httpx.Response(200, text="attempt [1]\n"),
        f"/artifacts/{ARTIFACT}/attestation": {"payload": ""},
        "/signing-key": {"public_key": "-----BEGIN PUBLIC KEY-----\n"},
        **{
            f"/artifacts/{one}/receipt": {"receipt": {"report": {"errors": [{"max_relative": error}]}}}
            for one, error in ((ARTIFACT, 1e-3), (OTHER, 1e-6))
        },
        "/targets": {"targets": [target]},
        "/operators": {"operators": [{"name": "Conv", "opsets": [6, 28]}]},
        "/workers": {"workers": [worker]},
        "/me": {"owner": "ada", "key": KEY, "quotas": QUOTAS},
        "/audit": {"entries": [ENTRY], "next_cursor": None},
        f"{here}/workloads": {"workloads": [SHORT]},
        "/batches": {"batches": [batch], "next_cursor": None},
        **{f"/batches/{BATCH}{end}": {**batch, "jobs": []} for end in ("", "/cancel", "/retry")},
        f"/batches/{BATCH}/comparison": COMPARED,
        f"/tuning-records/{RECORD['id']}": RECORD,
        "/tuning-records/import": {"records": {"imported": 3}, "workloads": {}, "refusals": refused},
        "/keys": {"keys": [KEY], "next_cursor": None, **NEW},
        f"/keys/{KEY_ID}/rotate": NEW,
        f"/keys/{KEY_ID}": {**KEY, "state": "revoked"},
        "/webhooks": {"webhooks": [HOOK], "next_cursor": None, **hook},
        f"/webhooks/{HOOK_ID}": HOOK,
        f"/webhooks/{HOOK_ID}/test": SENT,
        f"/webhooks/{HOOK_ID}/deliveries": {"deliveries": [SENT], "next_cursor": None},
        "/owners": {"owners": [OWNER], "next_cursor": None, **OWNER},
        "/owners/ada": {**OWNER, "stopping": 0, "deleted": {"jobs": 3}},
    }


def _changing(server: FakeServer, kind: str, path: str, report: Any) -> None:
    """The server's jobs are those that make a model."""
    made = {"quantization": "quantized", "compression": "compressed", "legalisation": "legalised"}.get(kind, "")
    server.kind, server.links = kind, {made: f"/models/{'0' * 64}/file"} if made else {}
    server.answers[path] = server.job(state="QUEUED")
    server.answers[f"/jobs/{JOB}/report"] = {"report": report}
    headers = {"etag": f'"{hashlib.sha256(b"onnx").hexdigest()}"'}
    server.answers[f"/models/{'0' * 64}/file"] = httpx.Response(200, content=b"onnx", headers=headers)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words.replace("@/", ""))
def test_results_are_on_standard_output_and_talk_is_not(
    row: Row, command: Command, server: FakeServer, folder: Path
) -> None:
    stands = SimpleNamespace(request="")
    if row.words.startswith("compile"):
        server.state = "QUEUED"
    if row.words.startswith(("queue send", "queue drop", "queue")) and not row.words.startswith("queue add"):
        stands.request = Queue().add(folder / "m.onnx", {}, {}, ()).id
    for name, path, report in (
        ("quantize", "/quantizations", QUANTIZED),
        ("compress", "/compressions", COMPRESSED),
        ("legalise", "/legalisations", LEGALISED),
        ("place", "/placements", PLACED),
    ):
        if row.words.startswith(name):
            _changing(server, path[1:-1], path, report)

    digest = hashlib.sha256((folder / "m.onnx").read_bytes()).hexdigest()

    def filled(text: str) -> str:
        for word, meant in (("@", str(folder)), (REQUEST, stands.request), ("MODEL", digest)):
            text = text.replace(word, meant)
        return text

    ids = {"JOB": JOB if row.words.split()[0] not in ("bench", "recommend", "infer") else ARTIFACT, "OTHER": OTHER}
    words = [ids.get(word, filled(word)) for word in row.words.split()]
    done = command(*words)
    assert done.exit_code == row.status, (done.output, done.exception)
    out, talk = filled(row.out), filled(row.talk)
    assert out in done.stdout, done.output
    if row.alone:
        assert done.stdout.rstrip("\n") == out
    if talk:
        assert talk in done.stderr, done.output
        assert talk not in done.stdout
    assert out not in done.stderr.splitlines()


def test_a_watched_benchmark_is_a_result(command: Command, server: FakeServer) -> None:
    server.kind = "benchmark"
    assert "A is faster by 1.23x" in command("watch", BENCHMARK).stdout
