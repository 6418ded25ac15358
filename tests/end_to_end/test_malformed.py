"""Whatever is sent: a reason that names the fault, and a worker that lives on."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.end_to_end import models
from tests.end_to_end.house import House
from tilewright.client import Client
from tilewright.errors import RequestRefused

OPTIONS = {"tuning_budget_s": 0, "threads": 1}


@pytest.fixture(scope="module", autouse=True)
def one_worker(house: House, client: Client) -> Iterator[None]:
    """After all that this file sends, the worker is the same process, and compiles a good model."""
    before = house.part("worker")
    yield
    job = client.wait(client.compile(models.tiny(models.QUICK), OPTIONS))
    assert job.state == "SUCCEEDED", job.problem
    assert house.part("worker") == before


def problem_of(client: Client, model: bytes, **options: Any) -> Mapping[str, Any]:
    """Why the job failed: the caller's fault, with a message and a fix, the same wherever one asks."""
    job = client.compile(model, {**OPTIONS, **options})
    assert job.state == "QUEUED"
    job = client.wait(job)
    assert job.state == "FAILED"
    assert job.problem is not None
    assert job.problem["fault"] == "caller", job.problem
    assert job.problem["message"]
    assert job.problem["fix"] or all(refusal["fix"] for refusal in job.problem["refusals"])
    assert client.report(job)["problem"] == job.problem
    with pytest.raises(RequestRefused) as caught:
        client.download(job, "nowhere.tw")
    assert caught.value.problem["status"] == 410
    return job.problem


def truncated() -> bytes:
    whole = models.tiny("tiny_cnn")
    return whole[: len(whole) // 2]


BAD: tuple[tuple[str, bytes, str, str], ...] = (
    ("truncated file", truncated(), "malformed_model", "truncated"),
    ("random bytes", random.Random(0).randbytes(4096), "malformed_model", "not an ONNX file"),
    ("cyclic graph", models.cyclic(), "malformed_model", "cycle"),
    ("negative dimension", models.relu([2, -3]), "malformed_model", "axis 1 of 'x' is -3"),
    ("immense output", models.immense(), "model_too_large", "'swell' of shape .* bytes"),
    ("doubling functions", models.doubling(), "model_too_large", "expands to"),
    ("opset 999", models.relu([4], opset=999), "unsupported_model", "opset 999"),
    ("unknown shape", models.relu(None), "unbound_dimension", "input 'x' has no shape"),
    ("weights at an absolute path", models.outside("/etc/passwd"), "malformed_model", "'w'.*/etc/passwd"),
    ("weights above the model", models.outside("../../api_key"), "malformed_model", "'w'.*api_key"),
    ("weights beside the model", models.outside("weights.bin"), "malformed_model", "'w'.*weights.bin"),
)


@pytest.mark.parametrize(("model", "code", "says"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_model_is_accepted_and_fails_with_its_reason(client: Client, model: bytes, code: str, says: str) -> None:
    problem = problem_of(client, model)
    assert problem["code"] == code
    reasons = [problem["message"], *(refusal["reason"] for refusal in problem["refusals"])]
    assert any(re.search(says, reason, re.DOTALL) for reason in reasons), reasons


def test_an_unknown_operator_is_refused_by_node_operator_and_fix(client: Client) -> None:
    problem = problem_of(client, models.foreign())
    assert problem["code"] == "unsupported_model"
    (refusal,) = problem["refusals"]
    assert (refusal["node"], refusal["operator"]) == ("odd one", "Frobnicate")
    assert refusal["reason"]
    assert refusal["fix"]


def test_options_that_do_not_fit_the_model_fail_it_by_name(client: Client) -> None:
    problem = problem_of(client, models.relu([4]), dims={"nowhere": 2})
    assert problem["code"] == "invalid_options"
    assert "nowhere" in problem["message"]


def test_an_empty_body_is_refused_at_once(client: Client) -> None:
    with pytest.raises(RequestRefused, match="empty") as caught:
        client.compile(b"", OPTIONS)
    assert caught.value.problem["status"] == 400
    assert caught.value.problem["code"] == "bad_request"
    assert caught.value.fix


def test_names_that_would_break_out_of_anything_are_just_names(client: Client, tmp_path: Path) -> None:
    job = client.wait(client.compile(models.hostile_names(), OPTIONS)).require_success()
    with tilewright.load(client.download(job, tmp_path / "hostile.tw")) as model:
        x = model.random_inputs()[models.HOSTILE_INPUT]
        found = model.run({models.HOSTILE_INPUT: x})
    raised = np.exp(np.maximum(x, 0))
    models.assert_agrees(found, {models.HOSTILE_OUTPUT: raised / raised.sum(-1, keepdims=True)})
