from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.service import hostile, proof, reads, run
from bench.service.hostile import Attack
from bench.service.proof import GOAL_MS, Proof
from bench.service.reads import Reads
from bench.service.wire import Server
from tilewright import Client
from tilewright.errors import ServerUnreachable

HERE = Server("http://127.0.0.1:1", "key")


def client(**states: str) -> Client:
    """One to whom the jobs of these names are in these states."""
    ended = ("SUCCEEDED", "FAILED", "CANCELLED")
    return cast(
        Client, SimpleNamespace(job=lambda name: SimpleNamespace(state=states[name], ended=states[name] in ended))
    )


@pytest.fixture
def beset(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened, in order."""
    reported: list[str] = []

    @contextlib.contextmanager
    def attacked(*_: Any) -> Iterator[Attack]:
        reported.append("attack")
        attack = Attack(before_mib=1.0)
        yield attack
        reported.append("over")
        attack.peak_mib, attack.heard = 2.0, {"half-open: opened": 3}

    def at_rate(*_: Any) -> Reads:
        reported.append("reads")
        return Reads(1000.0, 1.0, 2.0, 3.0)

    monkeypatch.setattr(hostile, "attacked", attacked)
    monkeypatch.setattr(reads, "at_rate", at_rate)
    return reported


@pytest.mark.parametrize(
    ("p99_ms", "compiling", "holds"), [(GOAL_MS, 2, True), (GOAL_MS + 0.1, 2, False), (1.0, 1, False)]
)
def test_the_proof_holds_while_both_compile_and_reads_are_in_time(p99_ms: float, compiling: int, holds: bool) -> None:
    assert Proof(Reads(1000.0, 1.0, p99_ms, 99.0), compiling, 1.0, 2.0, {}).holds is holds


def test_states_are_read_while_callers_are_hostile_and_both_jobs_run(beset: list[str]) -> None:
    found = proof.prove(client(a="RUNNING", b="RUNNING"), 1, HERE, HERE, ["x"], ["a", "b"], 1.0)
    assert beset == ["attack", "reads", "over"]
    assert (found.compiling, found.peak_mib, found.hostile) == (2, 2.0, {"half-open: opened": 3})


def test_a_compilation_that_is_over_before_the_other_begins_is_told(beset: list[str]) -> None:
    with pytest.raises(ServerUnreachable, match="side by side"):
        proof.prove(client(a="FAILED", b="RUNNING"), 1, HERE, HERE, ["x"], ["a", "b"], 1.0)
    assert beset == []


@pytest.mark.parametrize(("holds", "status"), [(True, 0), (False, 1)])
def test_the_exit_status_says_whether_it_holds(monkeypatch: pytest.MonkeyPatch, holds: bool, status: int) -> None:
    one = {"reads": vars(Reads(1.0, 1.0, 1.0, 1.0)), "compiling": 2, "before_mib": 1.0, "peak_mib": 1.0, "hostile": {}}
    monkeypatch.setattr(run, "measure_proof", lambda *_: {"proof": {**one, "holds": holds}})
    assert run.main(["--proof"]) == status
