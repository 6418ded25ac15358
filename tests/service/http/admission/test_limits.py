from __future__ import annotations

import math

import pytest

from service.config import Settings
from service.http.admission.connections import Connections
from service.http.admission.limits import DIVIDED, Lane, crowds, share

LIMITS = {
    "requests_per_s": 100.0,
    "requests_burst": 50,
    "max_queries_per_owner": 8,
    "max_uploads_per_owner": 9,
    "max_preflights_per_owner": 2,
    "max_streams_per_owner": 256,
    "max_downloads_per_owner": 32,
    "max_connections": 4000,
    "max_connections_per_address": 2000,
}


def test_each_of_several_processes_has_its_share_of_every_limit_rounded_up() -> None:
    alone = Settings(**LIMITS)  # type: ignore[arg-type]
    assert share(alone) == alone
    for processes in (2, 3, 256):
        settings = Settings(api_processes=processes, **LIMITS)  # type: ignore[arg-type]
        of_one = share(settings).model_dump()
        assert of_one["requests_per_s"] == 100.0 / processes
        for name in sorted(LIMITS.keys() - {"requests_per_s"}):
            assert of_one[name] == math.ceil(LIMITS[name] / processes), name
        for name in sorted(of_one.keys() - LIMITS.keys()):
            assert of_one[name] == getattr(settings, name), name


def test_every_limit_of_a_process_is_divided() -> None:
    assert LIMITS.keys() == set(DIVIDED)
    counted = [name for name in Settings.model_fields if name.startswith("max_") and name.endswith("_per_owner")]
    of_the_database = {f"max_{what}_per_owner" for what in ("queued", "stored_bytes", "concurrent", "keys")}
    assert set(counted) - of_the_database <= set(DIVIDED)


@pytest.mark.parametrize(
    ("processes", "at_once", "connections", "of_an_address"), [(1, 8, 4000, 2000), (4, 2, 1000, 500)]
)
def test_what_bounds_a_process_is_made_of_its_share(
    processes: int, at_once: int, connections: int, of_an_address: int
) -> None:
    of_one = share(Settings(api_processes=processes))
    assert crowds(of_one)[Lane.QUERY].at_once == at_once
    made = Connections(of_one, descriptors=100_000)
    assert (made.most, made.most_per_address) == (connections, of_an_address)
