from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compiler.measure.conditions import Conditions, Ticks, between, conditions, disturbances

CORES = """cpu  30 0 30 900 0 0 0 0 0 0
cpu0 10 1 20 400 50 2 3 4 5 6
cpu1 20 0 10 500 0 0 0 0 0 0
intr 5
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A root folder of a machine with two cores."""
    for name, text in {
        "proc/loadavg": "0.50 0.25 0.10 1/99 4242\n",
        "proc/meminfo": "MemTotal: 100 kB\nMemAvailable:   64 kB\n",
        "proc/cpuinfo": "cpu MHz\t: 1000.0\ncpu MHz\t: 1500.0\n",
        "proc/stat": CORES,
        "proc/self/cgroup": "0::/jobs/one\n",
        "sys/fs/cgroup/jobs/one/cpu.stat": "usage_usec 7\nthrottled_usec 1500000\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2600000\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "1300000\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
        "sys/devices/system/cpu/cpufreq/boost": "1\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_everything_that_the_machine_tells_is_read(machine: Path) -> None:
    found = conditions(machine)
    assert found.to_json() == {
        "load_average": [0.5, 0.25, 0.1],
        "available_bytes": 64 * 1024,
        "frequency_hz": [2.6e9, 1.3e9],
        "governor": ["performance", "powersave"],
    }
    assert found.core_ticks == {0: Ticks(busy=36, steal=4, idle=450), 1: Ticks(30, 0, 500)}
    assert (found.cgroup_held_s, found.heat_events) == (1.5, 3)


def test_without_cpufreq_the_processor_tells_its_clock(machine: Path) -> None:
    for path in machine.glob("sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq"):
        path.unlink()
    assert conditions(machine).to_json()["frequency_hz"] == [1.0e9, 1.5e9]


def test_a_machine_that_tells_nothing_leaves_nulls(tmp_path: Path) -> None:
    found = conditions(tmp_path)
    assert found.to_json() == {"load_average": [], "available_bytes": None, "frequency_hz": None, "governor": None}
    reported = between(found, replace(found, at=found.at + 1))
    assert (reported["others_busy"], reported["cores"], reported["cgroup_held_s"], reported["heat_events"]) == (
        None,
        [],
        None,
        None,
    )
    assert disturbances(reported) == []


def later(before: Conditions, *, seconds: float, own: float, cores: dict[int, Ticks]) -> Conditions:
    return replace(before, at=before.at + seconds, own_cpu_s=before.own_cpu_s + own, core_ticks=cores)


def test_what_others_used_is_all_that_this_process_did_not(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    before = conditions(machine)
    after = later(before, seconds=10, own=9, cores={0: Ticks(36 + 900, 4 + 100, 450), 1: Ticks(30 + 400, 0, 500 + 600)})
    reported = between(before, replace(after, cgroup_held_s=1.75, heat_events=5))
    assert reported["cores"] == [{"core": 0, "busy": 0.9, "steal": 0.1}, {"core": 1, "busy": 0.4, "steal": 0.0}]
    assert reported["others_busy"] == 0.2
    assert (reported["cgroup_held_s"], reported["heat_events"]) == (0.25, 2)
    assert len(disturbances(reported)) == 4
    assert "20%" in disturbances(reported)[0]


def test_idle_time_that_is_taken_back_is_none(machine: Path) -> None:
    before = conditions(machine)
    reported = between(
        before, later(before, seconds=0.01, own=0, cores={0: Ticks(36, 4, 440), 1: Ticks(30 + 3, 0, 498)})
    )
    assert reported["cores"] == [{"core": 0, "busy": 0.0, "steal": 0.0}, {"core": 1, "busy": 1.0, "steal": 0.0}]


def test_a_quiet_machine_is_not_complained_of(machine: Path) -> None:
    before = conditions(machine)
    after = later(before, seconds=10, own=10, cores={0: Ticks(36 + 1000, 4, 450), 1: Ticks(30, 0, 1500)})
    assert disturbances(between(before, after)) == []


def test_this_machine_can_be_asked() -> None:
    before = conditions()
    reported = between(before, conditions())
    assert reported["seconds"] >= 0
    assert all(0 <= core["busy"] <= 1 for core in reported["cores"])
