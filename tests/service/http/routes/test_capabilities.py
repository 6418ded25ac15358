from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.db.engine import Database
from service.jobs.scheduling import catalogue, lease
from tests.third_kind import register

TARGETS = [
    {"name": "cpu:x86-64-v4", "description": "AVX-512", "machine": "x86_64", "vector_floats": 16},
    {"name": "cpu:aarch64", "description": "NEON", "machine": "aarch64", "vector_floats": 4},
]
OPERATORS: list[dict[str, Any]] = [
    {"name": "Conv", "domain": "", "opsets": [7, 28], "limits": "2 spatial axes", "family": "conv", "how": "kernel"},
    {"name": "ConvTranspose", "domain": "", "opsets": [7, 28], "limits": "", "family": "conv", "how": "kernel"},
    {"name": "Attention", "domain": "com.microsoft", "opsets": None, "limits": "", "family": "x", "how": "inlined"},
]


def test_before_any_worker_the_lists_are_empty_and_say_why(client: TestClient) -> None:
    for name in ("targets", "operators"):
        reported = client.get(f"/{name}").json()
        assert (reported[name], reported["compiler"]) == ([], None)
        assert "python -m worker" in reported["notice"]
    assert client.get("/workers").json() == {"workers": []}


def test_targets_say_what_they_are_who_serves_them_and_what_waits(client: TestClient, db: Database) -> None:
    catalogue.publish(db, "targets", "0.1.0", TARGETS)
    assert "no worker is alive" in client.get("/targets").json()["notice"]
    lease.seen(db, "device", ["cpu", "cpu:x86-64-v4", "run:cpu", "run:cpu:x86-64-v4"], {"model": "x"}, "0.1.0")
    lease.seen(db, "builder", ["cpu:x86-64-v4", "cpu:aarch64"], {"model": "x"}, "0.1.0")
    for _ in range(2):
        client.post("/compile?fresh=true", files={"model": "m", "options": '{"target": "cpu:aarch64"}'})
    reported = client.get("/targets").json()
    assert (reported["notice"], reported["compiler"]) == (None, "0.1.0")
    arm, x86 = reported["targets"]
    assert arm == {
        "name": "cpu:aarch64",
        "description": "NEON",
        "facts": {"machine": "aarch64", "vector_floats": 4},
        "measured_by": [],
        "built_by": ["builder"],
        "queued": 2,
        "runs_queued": 0,
        "notice": None,
    }
    assert (x86["measured_by"], x86["built_by"], x86["queued"]) == (["device"], ["builder"], 0)
    assert [worker["name"] for worker in client.get("/workers").json()["workers"]] == ["builder", "device"]


def test_a_target_that_nobody_compiles_for_says_what_to_start(client: TestClient, db: Database) -> None:
    catalogue.publish(db, "targets", "0.1.0", [{"name": "cuda"}, {"name": "cuda:sm_80"}, {"name": "cuda:sm_90"}])
    # A GPU's worker without NVRTC runs artifacts only.
    lease.seen(db, "gpu", ["run:cuda", "run:cuda:sm_90"], {"device": "cuda:0"}, "0.1.0")
    lease.seen(db, "builder", ["cuda:sm_80"], {"device": ""}, "0.1.0")
    here, ampere, hopper = client.get("/targets").json()["targets"]
    assert "--queue cuda:0 on a machine with an NVIDIA GPU" in here["notice"]
    assert (ampere["built_by"], ampere["notice"]) == (["builder"], None)
    assert (hopper["measured_by"], hopper["built_by"]) == (["gpu"], [])
    assert "no worker that is alive compiles for cuda:sm_90" in hopper["notice"]


def test_a_third_kind_of_device_needs_no_edit_here(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch)
    catalogue.publish(db, "targets", "0.1.0", [{"name": "dsp"}, {"name": "dsp:v1"}])
    bare, profile = client.get("/targets").json()["targets"]
    assert bare["notice"].endswith("such as python -m worker --queue dsp:0 on a machine with a DSP")
    assert profile["notice"].endswith("--queue dsp:0 on a machine with a DSP of v1, or a builder with its compiler")
    asked = '{"target": "dsp:v1", "precision": "int8"}'
    job = client.post("/compile", files={"model": "m", "options": asked}).json()
    assert (job["queue"], job["state"]) == ("dsp:v1", "QUEUED")
    assert client.get("/targets").json()["targets"][1]["queued"] == 1


def test_a_target_of_a_kind_that_the_api_does_not_know_is_listed(client: TestClient, db: Database) -> None:
    """Workers may be newer than the API."""
    catalogue.publish(db, "targets", "0.2.0", [{"name": "tpu:v9"}])
    (reported,) = client.get("/targets").json()["targets"]
    assert "whose compiler knows it" in reported["notice"]


def test_operators_are_found_by_a_part_of_their_name(client: TestClient, db: Database) -> None:
    catalogue.publish(db, "operators", "0.1.0", OPERATORS)
    everything = client.get("/operators").json()["operators"]
    assert [one["name"] for one in everything] == ["Attention", "Conv", "ConvTranspose"]
    assert (everything[0]["opsets"], everything[0]["domain"]) == (None, "com.microsoft")
    conv = client.get("/operators?query=cOnV").json()["operators"]
    assert [(one["name"], one["opsets"], one["limits"]) for one in conv] == [
        ("Conv", [7, 28], "2 spatial axes"),
        ("ConvTranspose", [7, 28], ""),
    ]
    assert conv[0]["facts"] == {"family": "conv", "how": "kernel"}
    assert client.get("/operators?query=nothing").json()["operators"] == []
