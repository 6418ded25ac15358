from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from worker import config
from worker.config import WorkerSettings
from worker.limits import Limits


def test_the_limit_of_memory_is_of_the_container_where_that_has_less_than_the_machine(tmp_path: Path) -> None:
    (tmp_path / "max").write_text("max\n")
    (tmp_path / "bytes").write_text("1000\n")
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert config._most_of_memory([str(tmp_path / "none"), str(tmp_path / "max")]) == machine * 4 // 5
    assert config._most_of_memory([str(tmp_path / "max"), str(tmp_path / "bytes")]) == 800


def test_every_limit_of_a_job_has_a_setting() -> None:
    given = {f"job_{name}": 1000 + at for at, name in enumerate(Limits().to_json())}
    assert given.keys() <= WorkerSettings.model_fields.keys()
    assert WorkerSettings(**given).limits == Limits(*given.values())  # type: ignore[arg-type]


def test_walls_are_demanded_by_names_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WorkerSettings().require_walls == ()
    monkeypatch.setenv("TILEWRIGHT_REQUIRE_WALLS", "files, signals,system_calls")
    assert WorkerSettings().require_walls == ("files", "signals", "system_calls")


@pytest.mark.parametrize("name", ["file", "files_partly", "files;signals"])
def test_a_wall_that_there_is_not_is_refused_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TILEWRIGHT_REQUIRE_WALLS", name)
    with pytest.raises(ValidationError, match="system_calls"):
        WorkerSettings()
