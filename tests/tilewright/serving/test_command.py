"""`tilewright serve` as a process: it says where it is, answers, takes a new file, ends and loses no request."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from bench import subjects
from compiler.contract import CompileOptions
from tests.compiling import compile_file
from tests.tilewright.serving import endurance
from tilewright import load

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    model = subjects.from_zoo("tiny_cnn", folder).file
    compile_file(model, folder / "m.tw", CompileOptions.from_json({"tuning_budget_s": 0, "threads": 1}))
    return folder / "m.tw"


@contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [sys.executable, "-m", "tilewright", "serve", *words, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def answered(url: str, body: Any) -> bytes:
    """The outputs; a server that is coming up is asked again."""
    answer = httpx.post(f"{url}/v2/models/m/infer", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return json.dumps(answer.json()["outputs"]).encode()


def test_requests_are_answered_while_files_change_and_to_the_end(artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.tw"
    file.write_bytes(artifact.read_bytes())
    with load(artifact) as model:
        inputs = model.random_inputs(seed=3)
        wanted = {name: array.tolist() for name, array in model.run(inputs).items()}
        body = {
            "inputs": [
                {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.ravel().tolist()}
                for name, array in inputs.items()
            ]
        }
    with serving(f"m={file}") as (process, said):
        assert said["models"] == ["m"]
        first = answered(said["url"], body)
        for one in json.loads(first):
            assert np.array(one["data"], np.float32).reshape(one["shape"]).tolist() == wanted[one["name"]]
        with ThreadPoolExecutor(8) as pool:
            for _ in range(3):
                fresh = tmp_path / "fresh"
                fresh.write_bytes(artifact.read_bytes())
                fresh.replace(file)
                assert {*pool.map(lambda _: answered(said["url"], body), range(40))} == {first}
                time.sleep(1.1)  # it looks each second
        reloads = httpx.get(f"{said['url']}/metrics").text.partition('tilewright_serve_reloads_total{model="m"} ')[2]
        assert float(reloads.split()[0]) >= 1
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGTERM), errors


def test_nothing_is_lost_or_wrong_whatever_is_killed_or_put_in_place(tmp_path: Path) -> None:
    files = {"a": endurance.made(tmp_path, 1), "b": endurance.made(tmp_path, 2)}
    tally = endurance.Run(tmp_path, files, clients=3, seed=7).run(["damaged", "stopped", "killed_while_replaced"])
    assert not tally.breaches
    assert tally.answered > 3


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--host", "0.0.0.0"), "without a key everybody who reaches 0.0.0.0 may run the models"),
        (("--pooling", "max"), "--pooling is 'max'"),
        (("--tokenizer", "n=t.json"), "--tokenizer names 'n'"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_fix(words: tuple[str, ...], reason: str, artifact: Path) -> None:
    command = [sys.executable, "-m", "tilewright", "serve", f"m={artifact}", *words]
    environment = {name: value for name, value in os.environ.items() if name != "TILEWRIGHT_SERVE_KEY"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())
