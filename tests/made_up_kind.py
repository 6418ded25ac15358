"""A made-up kind of job, for a test that nothing but its registration is needed: it turns a model's bytes around.

Its record and what that names: what the child does, and the route.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from pydantic.dataclasses import dataclass

from compiler.contract import job_kinds
from compiler.contract.job_kinds import JobKind
from service.http.requests.model_changes import changing
from tilewright import job_kinds as of_client
from worker.attempt.child import Outbox, Spec


@dataclass(frozen=True)
class TurnOptions:
    """How a model is turned around."""

    times: int = 1

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> TurnOptions:
        """The options of which `plain` is the `to_json`."""
        return cls(**plain)

    def to_json(self) -> dict[str, Any]:
        """As the job's row holds them."""
        return asdict(self)


TURN = JobKind(
    name="turn",
    work="tests.made_up_kind",
    stored=job_kinds.MODEL,
    routes="tests.made_up_kind",
    links={**job_kinds.REPORT, "turned": "/models/{made}/file"},
    made="turned",
    options=TurnOptions,
    example={"times": 3},
)

router = changing(TURN, "/turns", name="turn_model", summary="Turn a model", description="...", example={"times": 1})

CHILD = """
import sys
from compiler.contract import job_kinds
from tests import made_up_kind
from worker.attempt.child import main
job_kinds.KINDS = (*job_kinds.KINDS, made_up_kind.TURN)
main(sys.argv[1:])
"""
"""The program of a child that knows the kind too."""


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends there is one more kind of job."""
    monkeypatch.setattr(job_kinds, "KINDS", (*job_kinds.KINDS, TURN))
    theirs = of_client.JobKind("turn", "tests.made_up_kind", "/turns")
    monkeypatch.setattr(of_client, "KINDS", (*of_client.KINDS, theirs))


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The model from its end to its beginning."""
    ((_, model),) = spec.inputs
    times = TurnOptions.from_json(dict(spec.options)).times
    spec.output.write_bytes(model.read_bytes()[:: -1 if times % 2 else 1])
    return {"times": times}
