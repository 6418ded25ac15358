from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.errors import NotReady
from worker import inquiry
from worker.sandbox import landlock, restrictions
from worker.sandbox.enter import WALLS
from worker.sandbox.linux import LINUX

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not LINUX, reason="the walls are of Linux")
@pytest.mark.parametrize("gpu", [[], ["gpu"]])
def test_the_walls_are_found_out_by_raising_them(gpu: list[str]) -> None:
    command = [sys.executable, "-P", "-m", "worker.sandbox.restrictions", *gpu]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    standing = json.loads(done.stdout)
    assert ("files" in standing) == (landlock.version() >= 3)
    assert ("signals" in standing) == (landlock.version() >= 6)


def test_what_stands_may_be_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "answer", lambda *_: ["limits", "files"])
    restrictions.demand(["files"], gpu=False)
    restrictions.demand([], gpu=False)
    with pytest.raises(NotReady, match="signals, system_calls") as raised:
        restrictions.demand(["limits", "signals", "system_calls"], gpu=False)
    assert WALLS["signals"] in raised.value.fix
    assert WALLS["system_calls"] in raised.value.fix


@pytest.mark.parametrize("name", ["file", "files_partly", "files;signals"])
def test_a_wall_that_there_is_not_is_refused_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(inquiry, "answer", lambda *_: list(WALLS))
    with pytest.raises(NotReady, match=f"demands {name}") as raised:
        restrictions.demand(["limits", name], gpu=False)
    assert f"there is no wall {name}, but {', '.join(WALLS)}" in raised.value.fix


def test_half_a_wall_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "answer", lambda *_: ["limits", "files_partly"])
    with pytest.raises(NotReady, match="demands files"):
        restrictions.demand(["files"], gpu=False)


def test_walls_that_cannot_be_tried_do_not_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no process can be started")

    monkeypatch.setattr(inquiry, "answer", fail)
    with pytest.raises(NotReady, match="no process can be started"):
        restrictions.demand(["limits"], gpu=True)
