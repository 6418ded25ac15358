from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from bench.conformance import workers
from bench.conformance.judge import Verdict
from bench.conformance.suite import Case, suite
from bench.conformance.workers import judged


def cases(*names: str) -> list[Case]:
    return [suite()[name] for name in names]


def test_every_case_has_a_verdict_from_a_process_of_its_own() -> None:
    names = ("test_relu", "test_identity_opt", "test_image_decoder_decode_pnm_rgb")
    found = {verdict.case: verdict.status for verdict in judged(cases(*names), 1, 300.0)}  # each reads the suite
    assert found == {names[0]: "passed", names[1]: "passed", names[2]: "refused"}


class _Forked:
    """Stands for the start of processes: those that are forked see what a test has replaced."""

    def __init__(self) -> None:
        import multiprocessing

        self.context = multiprocessing.get_context("fork")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)


def _dies(case: Case, target: str) -> Verdict:
    if case.name == "test_relu":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case.name == "test_elu":
        time.sleep(60)
    return Verdict(case.name, case.group, "passed")


def test_a_process_that_dies_or_hangs_costs_its_case_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SPAWN", _Forked())
    monkeypatch.setattr(workers, "judge", _dies)
    named = cases("test_relu", "test_elu", "test_abs", "test_sqrt")
    found = {verdict.case: verdict for verdict in judged(named, 2, 5.0)}
    assert {name: verdict.status for name, verdict in found.items()} == {
        "test_relu": "crashed",
        "test_elu": "crashed",
        "test_abs": "passed",
        "test_sqrt": "passed",
    }
    assert found["test_relu"].reason == f"the process ended with exit status {-signal.SIGSEGV}"
    assert found["test_elu"].reason == "it took longer than 5 s"
