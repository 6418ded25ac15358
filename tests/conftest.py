"""What holds for every test: fixed seeds, no deadlines, and a visible reason for whatever needs a package index."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# Derandomised, so that a run can be repeated; without deadlines, because a loaded machine is no failure.
settings.register_profile(
    "tilewright", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tilewright")

PROBE_SECONDS = 60


@functools.cache
def package_index_answers() -> bool:
    """Whether pip, as it is configured here, can fetch one small package."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", folder]
        try:
            probe = subprocess.run(
                [*command, "--retries", "0", "iniconfig"], capture_output=True, timeout=PROBE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return probe.returncode == 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a `network` test where no package index answers, except in CI, where that is a failure."""
    if item.get_closest_marker("network") and os.environ.get("CI") != "true" and not package_index_answers():
        pytest.skip("no package index answers here (CI=true runs this test all the same)")
