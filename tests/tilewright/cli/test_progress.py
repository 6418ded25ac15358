"""The bar of a job on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tilewright.cli import progress
from tilewright.wire import JobEvent


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 100 columns."""
    text = io.StringIO()
    shown = Console(file=text, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(progress, "console", lambda: shown)
    return text


def test_the_bar_has_the_phase_the_time_that_passed_and_the_time_that_is_left(terminal: io.StringIO) -> None:
    with progress.job_bar(quiet=False) as show:
        show(JobEvent(1, "state", {"state": "RUNNING"}))
        show(JobEvent(2, "phase", {"phase": "tile", "fraction": 0.5}))
        show(JobEvent(3, "notice", {"message": "mind [this]"}))
    said = terminal.getvalue()
    assert "mind [this]" in said
    last = [line for line in said.splitlines() if "tile" in line][-1]
    assert "0:00:00 elapsed, " in last
    assert last.split("elapsed, ")[1].split()[1].startswith("left")


def test_a_quiet_bar_shows_nothing(terminal: io.StringIO) -> None:
    with progress.job_bar(quiet=True) as show:
        show(JobEvent(1, "notice", {"message": "mind this"}))
    assert terminal.getvalue() == ""
