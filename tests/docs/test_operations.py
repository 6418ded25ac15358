from __future__ import annotations

import re

import pytest

from service.__main__ import CHORES
from service.config import Settings
from service.http.admission.connections import STAGES
from service.http.metrics import DESCRIPTIONS
from tests.docs.pages import DOCS, first_cells
from worker.config import WorkerSettings

PAGE = (DOCS / "operations.md").read_text()
SETTINGS = {f"TILEWRIGHT_{name.upper()}": field for name, field in Settings.model_fields.items()}
WORKER_SETTINGS = {f"TILEWRIGHT_{name.upper()}": field for name, field in WorkerSettings.model_fields.items()}


def test_every_setting_has_a_row_and_no_other_has() -> None:
    rows = [cell for cell in first_cells(PAGE) if cell.startswith("TILEWRIGHT_")]
    assert rows == [*SETTINGS, *WORKER_SETTINGS]


@pytest.mark.parametrize("name", [*SETTINGS, *WORKER_SETTINGS])
def test_a_row_states_the_default_where_it_is_a_plain_value(name: str) -> None:
    default = {**SETTINGS, **WORKER_SETTINGS}[name].default
    stated = re.search(rf"^\| `{name}` \| ([^|]+) \|", PAGE, re.MULTILINE)
    assert stated
    reported = stated[1]
    if isinstance(default, int) and not isinstance(default, bool) and default >= 1 << 30:
        assert reported == f"{default >> 30} GiB"
    elif isinstance(default, int) and default >= 1 << 20:
        assert reported == f"{default >> 20} MiB"
    elif isinstance(default, bool):
        assert reported == f"`{str(default).lower()}`"
    elif isinstance(default, int | float):
        assert reported == f"`{default:g}`"
    elif isinstance(default, str) and default:
        assert reported == f"`{default}`"


@pytest.mark.parametrize("chore", [name for name in CHORES if name != "serve"] + ["scrub", "backup", "restore", "key"])
def test_every_chore_of_the_service_is_shown(chore: str) -> None:
    assert f"python -m service {chore}" in PAGE


def test_every_metric_has_a_row() -> None:
    _, _, table = PAGE.partition("\n| metric | tells |\n")
    rows = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()[1:]]
    named = {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(DESCRIPTIONS) | {"http_requests", "http_seconds", "http_connections_broken"}


def test_every_stage_of_a_connection_has_its_row() -> None:
    def seconds(limit: str | float) -> str:
        return f"`TILEWRIGHT_{limit.upper()}`" if isinstance(limit, str) else f"{limit:g}".removeprefix("inf")

    expected = [
        [
            f"`{stage.name}`: {stage.value}",
            "its key" if terms.keyed else "nobody",
            seconds(terms.longest),
            seconds(terms.still),
            "until a key pays" if terms.keyed else "always",
        ]
        for stage, terms in STAGES.items()
    ]
    _, _, table = PAGE.partition("\n| stage: waits for |")
    rows = [line.strip("|").split("|") for line in table.partition("\n\n")[0].splitlines()[2:]]
    assert [[cell.strip() for cell in row] for row in rows] == expected
