from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from worker.limits import BEHIND_OTHERS, LAST_WORDS_S, LOAD_PATIENCE, Limits, lower
from worker.sandbox.linux import LINUX

ROOT = Path(__file__).parents[2]
SPIN = """
import resource
from worker.limits import Limits, hold_process
held = Limits(wall_s={wall_s})
hold_process(held)
soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
assert soft == held.cpu_s
resource.setrlimit(resource.RLIMIT_CPU, (1, hard))
while True: pass
"""


@pytest.mark.skipif(not LINUX, reason="where soft and hard limit are one, Linux sends SIGKILL")
def test_cpu_time_that_runs_out_is_told_by_its_own_signal() -> None:
    done = subprocess.run([sys.executable, "-c", SPIN.format(wall_s=1.0)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGXCPU


def test_a_limit_goes_down_and_never_up() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = f"""
import resource
from worker.limits import lower
lower(resource.RLIMIT_NOFILE, 100, hard=200)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (100, 200)
lower(resource.RLIMIT_NOFILE, 150)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (150, 150)
lower(resource.RLIMIT_NOFILE, {hard}, hard={hard})
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (150, 150)
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    assert callable(lower)


def test_waiting_while_a_model_is_read_is_bounded_too() -> None:
    assert Limits(wall_s=3600.0, load_s=60.0).load_wall_s == 60.0 * LOAD_PATIENCE
    assert Limits(wall_s=100.0, load_s=60.0).load_wall_s == 100.0
    assert 0 < BEHIND_OTHERS < 20
    assert LAST_WORDS_S > 0
