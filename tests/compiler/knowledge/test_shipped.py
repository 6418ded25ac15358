from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.devices.cuda.target import CudaTarget, resolve
from compiler.ir.machine import Record, Setting
from compiler.ir.tile import Level, Tile
from compiler.knowledge.shipped import FOLDER, shipped, starting_points

ELSEWHERE = resolve("cuda:sm_90")
HERE = replace(ELSEWHERE, hardware="cuda:sm_90/here")
SETTING = Setting("cache", "NVRTC 13.0")


def measured(workload: str, hardware: str, target: CudaTarget = ELSEWHERE, seconds: float = 1e-6) -> Record:
    """A kernel's record by another version of NVRTC and of the compiler."""
    tile = Tile("mma", (Level("block", (("m", 64),)),))
    variant = {**tile.to_json(), "weights": "cache", "toolchain": "NVRTC 12.9", "lanes": 1}
    return Record("kernel", workload, "Conv", "", target.name, hardware, variant, 1, *(seconds,) * 3, 9, "0.0.1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two devices of one target and one of another."""
    files = {
        "h200": [measured("a", "cuda:sm_90/h200"), measured("b", "cuda:sm_90/h200")],
        "h100": [measured("a", "cuda:sm_90/h100")],
        "a100": [measured("a", "cuda:sm_80/a100", resolve("cuda:sm_80"))],
    }
    for name, records in files.items():
        lines = [json.dumps(record.to_json()) for record in records]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "README.md").write_text("no record")
    return tmp_path


def test_what_is_shipped_can_be_read() -> None:
    assert FOLDER.is_dir()
    lines = [line for path in FOLDER.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(shipped()) == len(lines)


def test_files_of_records_are_read_by_name_and_line(folder: Path) -> None:
    assert [record.hardware.rpartition("/")[2] for record in shipped(folder)] == ["a100", "h100", "h200", "h200"]


def test_a_cross_compiled_target_adopts_the_hardware_that_most_is_shipped_of(folder: Path) -> None:
    points = starting_points([], ELSEWHERE, SETTING, folder)
    counted = [record for record in points if record.hardware == ELSEWHERE.hardware and SETTING.is_like(record)]
    assert [record.workload for record in counted] == ["a", "b"]
    for record in counted:
        assert record.variant["from"] == {
            "hardware": "cuda:sm_90/h200",
            "toolchain": "NVRTC 12.9",
        }
        assert record.compiler == "0.0.1", "whether its kernel is still the same is not known yet"
        assert Tile.from_json(record.variant) == Tile("mma", (Level("block", (("m", 64),)),))
    assert {record.target for record in points} == {"cuda:sm_90"}


def test_records_of_ones_own_are_adopted_before_those_shipped(folder: Path) -> None:
    own = [measured("a", "cuda:sm_90/mine", seconds=5e-6)]
    points = starting_points(own, ELSEWHERE, SETTING, folder)
    counted = [record for record in points if record.hardware == ELSEWHERE.hardware]
    assert [(record.workload, record.seconds) for record in counted] == [("a", 5e-6)]
    assert points[-1] == own[0]


def test_records_with_constants_in_another_place_stay_hints(folder: Path) -> None:
    points = starting_points([], ELSEWHERE, Setting("memory", "NVRTC 13.0"), folder)
    assert points
    assert all(record.hardware for record in points)


def test_hardware_that_is_here_takes_no_others_measurements_for_its_own(folder: Path) -> None:
    own = [measured("a", HERE.hardware)]
    points = starting_points(own, HERE, SETTING, folder)
    assert [record.hardware for record in points if record.hardware == HERE.hardware] == [HERE.hardware]
    assert points[-1] == own[0]
    same = replace(ELSEWHERE, hardware="cuda:sm_90/h100")
    assert sum(record.hardware == same.hardware for record in starting_points([], same, SETTING, folder)) == 1
