"""Every fate once, on both databases; and what a service with a bug does not get past."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.servers import Missing
from tests.torture import clock, faults
from tests.torture.fates import DOOMS, possible
from tests.torture.ground import Kind
from tests.torture.report import Report, torture

pytestmark = pytest.mark.slow

SEED = 20261121
KILLS = 1
"""As few as there can be: every fate is dealt at least once."""
SOON_S = 8.0
"""Patience with a service that is known to be stuck."""

SEEDED = {
    "fence ignored": (
        ["stopped past the lease: child started"],
        {"each_job_ends_once", "nobody_holds_a_job", "records_are_kept_once"},
    ),
    "leases never expire": (["kill: job claimed"], {"each_job_ends_once"}),
    "outcome in two transactions": ([f"kill: {faults.HALF}"], {"each_success_has_one_artifact"}),
    "seconds tallied twice": (["kill: job claimed"], {"each_second_is_charged_once"}),
}
"""By the bug: the fates that bring it to light, and the promises of which it breaks one."""


def run(database: Kind, cards: list[str] | None = None, fault: str = faults.NONE, patience_s: float = 60.0) -> Report:
    print(f"seed {SEED}")
    try:
        return torture(database, SEED, kills=KILLS, cards=cards or (), fault=fault, patience_s=patience_s)
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_whatever_is_killed_each_accepted_job_ends_once_and_whole(database: Kind) -> None:
    report = run(database)
    assert not report.breaches, str(report)
    assert {*possible(database)} == report.struck.keys()
    assert report.ended["SUCCEEDED"] > 0


def test_a_disk_that_was_full_leaves_nothing_behind() -> None:
    report = run("sqlite", ["disk full: artifact", "disk full: upload"])
    assert not report.breaches, str(report)
    assert report.kills == 0
    assert report.answers["507"] == 1
    assert report.attempts["QUEUED"] == 1


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_clock_that_is_set_loses_no_job_and_charges_nobody_for_it(database: Kind) -> None:
    if clock.library() is None:
        pytest.skip(clock.MISSING)
    clocked = [name for name, doom in DOOMS.items() if doom.lane == "clock"]
    # In a process of its own: what is inherited when the first process starts decides which clock there is.
    command = [sys.executable, "-m", "tests.torture", "--database", database, "--seed", str(SEED), "--fates", *clocked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'SUCCEEDED'" in done.stdout


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_disk_that_is_full_for_blobs_database_and_log_costs_nothing(database: Kind) -> None:
    cards = [name for name in DOOMS if "full" in name]
    report = run(database, cards)
    assert not report.breaches, str(report)
    assert report.kills == report.started_again == 0
    assert report.answers["507"] > 0


@pytest.mark.parametrize("fault", SEEDED)
def test_a_service_with_a_bug_breaks_its_promises(fault: str) -> None:
    cards, broken = SEEDED[fault]
    report = run("sqlite", cards, fault, SOON_S)
    assert broken & {breach.partition(":")[0] for breach in report.breaches}, str(report)
