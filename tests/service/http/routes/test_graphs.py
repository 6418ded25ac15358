"""The graph of an uploaded model: by model and by job, from the real process and from one that misbehaves."""

from __future__ import annotations

import json
import uuid
from typing import Any

import onnx
from fastapi.testclient import TestClient

from compiler.frontend import outline
from service.db.engine import Database
from service.jobs.accounts import access
from service.jobs.inspection.inspector import BUSY, TIME_LIMIT
from tests.end_to_end.models import model
from tests.service.http.routes.test_compile import RAW
from tests.service.http.routes.test_preflight import Asking
from tests.service.http.routes.test_preflight import asking as asking  # a fixture

REFUSED = model([onnx.helper.make_node("ImageDecoder", ["x"], ["y"], name="odd")], {"x": [4]}, ["y"], opset=20)


def test_a_model_that_cannot_be_compiled_has_a_graph_and_so_has_its_job(client: TestClient) -> None:
    digest = client.post("/models", content=REFUSED, headers=RAW).json()["digest"]
    answer = client.get(f"/models/{digest}/graph")
    assert answer.status_code == 200
    assert answer.json() == outline(REFUSED)
    assert answer.headers["cache-control"] == "private, max-age=3600"
    job = client.post("/compile", json={"model": digest}).json()
    same = client.get(f"/jobs/{job['id']}/graph")
    assert (same.status_code, same.json()) == (200, outline(REFUSED))


ANSWERS: tuple[tuple[Any, int, str | None], ...] = (
    ({"graph": {"steps": []}}, 200, None),
    ({"graph": "none"}, 500, "internal"),
    ({"problem": {"code": "malformed_model", "message": "no ONNX", "fix": "send one"}}, 422, "malformed_model"),
    ({"problem": {"code": "model_too_large", "message": "too large"}}, 422, "model_too_large"),
    ({"problem": {"code": TIME_LIMIT, "message": "too long"}}, 422, "model_too_large"),
    ({"problem": {"code": BUSY}}, 503, "busy"),
    ({"problem": 7}, 500, "internal"),
)


def test_what_the_process_answers_is_told(asking: Asking, db: Database) -> None:
    client = asking("print(open(order['model']).read())")
    reading = {"Authorization": f"Bearer {access.make_key(db, 'ada', ['read'], 'reads')}"}
    for answer, status, code in ANSWERS:
        digest = client.post("/models", content=json.dumps(answer).encode(), headers=RAW).json()["digest"]
        reported = client.get(f"/models/{digest}/graph", headers=reading)
        assert (reported.status_code, reported.json().get("code")) == (status, code), answer
    assert client.get(f"/models/{digest}/graph").status_code == 403, "a key that may only compile"


def test_models_and_jobs_of_nobody_have_none(client: TestClient, stranger: dict[str, str]) -> None:
    digest = client.post("/models", content=REFUSED, headers=RAW).json()["digest"]
    for path in (f"/models/{'0' * 64}/graph", f"/jobs/{uuid.uuid4()}/graph"):
        assert client.get(path).status_code == 404
    assert client.get(f"/models/{digest}/graph", headers=stranger).status_code == 404
