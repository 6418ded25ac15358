from __future__ import annotations

import os
from pathlib import Path

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
