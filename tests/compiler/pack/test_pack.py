from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from compiler.errors import DiskFull, VerifyError
from compiler.ir.machine import Record
from compiler.pack import archive as archives
from compiler.pack.facts import Rejected
from compiler.pack.pack import PackedArtifact

CHART = ("__init__", "drawing", "events", "reading", "schedule", "times", "wording", "words")
MEMBERS = [
    "plan.json",
    "trace.json",
    "graph.json",
    "model.h",
    "loader.py",
    "__main__.py",
    "example.c",
    "records.jsonl",
    "replay.jsonl",
    "plan.svg",
    "report.html",
    *(f"chart/{name}.py" for name in CHART),
    "source/model.c",
    "source/model.h",
    "model.so",
    "weights.bin",
    "manifest.json",
]


class Parts(Protocol):
    program: Any
    plan: Any
    kernels: Any
    records: tuple[Record, ...]
    facts: Any

    def pack(self, path: Path) -> PackedArtifact: ...
    def named(self, *names: str) -> Parts: ...


def manifest_of(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        described: dict[str, Any] = json.loads(archive.read("manifest.json"))
    return described


def mapped_at(path: Path) -> int:
    """Where the weights begin in the archive, read from the local header as mmap's user would."""
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("weights.bin").header_offset
    head = path.read_bytes()[offset : offset + 30]
    return offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")


def test_the_same_parts_give_the_same_bytes_at_any_time_under_any_name(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = parts.pack(tmp_path / "a.tw")
    monkeypatch.setattr("time.time", lambda: 2e9)
    old = os.umask(0o077)
    try:
        second = parts.pack(tmp_path / "another name.tw")
    finally:
        os.umask(old)
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.digest == second.digest == hashlib.sha256(first.path.read_bytes()).hexdigest()
    assert first.bytes == first.path.stat().st_size


def test_the_order_of_records_and_their_repetition_do_not_matter(parts: Any, tmp_path: Path) -> None:
    (record,) = parts.records
    other = replace(record, threads=1)
    one = replace(parts, records=(record, other)).pack(tmp_path / "a.tw")
    two = replace(parts, records=(other, record, other)).pack(tmp_path / "b.tw")
    assert one.digest == two.digest
    with zipfile.ZipFile(one.path) as archive:
        lines = archive.read("records.jsonl").splitlines()
    assert {Record.from_json(json.loads(line)).threads for line in lines} == {1, 2}


def test_a_time_measured_now_and_the_same_from_a_record_give_the_same_bytes(parts: Any, tmp_path: Path) -> None:
    fresh = replace(parts.facts, costs=(replace(parts.facts.costs[0], source="measured"), parts.facts.costs[1]))
    assert replace(parts, facts=fresh).pack(tmp_path / "a.tw").digest == parts.pack(tmp_path / "b.tw").digest


def test_the_predicted_time_is_what_the_scheduler_says_and_that_of_the_timeline_where_it_says_nothing(
    parts: Any, tmp_path: Path
) -> None:
    for number, (said, reported) in enumerate(((9.0, 9.0), (0.0, 4e-6))):
        packed = replace(parts, plan=replace(parts.plan, predicted_s=said)).pack(tmp_path / f"{number}.tw")
        assert packed.manifest["predicted_s"] == pytest.approx(reported)


def test_members_are_these_in_this_order_with_fixed_times_and_permissions(artifact: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        assert archive.namelist() == MEMBERS
        assert archive.testzip() is None
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {member.external_attr >> 16 for member in archive.infolist()} == {0o100644}


def test_weights_are_stored_and_begin_at_a_page(artifact: Path, parts: Parts) -> None:
    begin = mapped_at(artifact)
    assert begin % 4096 == 0
    assert artifact.read_bytes()[begin : begin + 12] == parts.program.weights


@pytest.mark.parametrize("shift", range(4085, 4101))
def test_members_that_are_mapped_begin_at_a_page_whatever_comes_before(tmp_path: Path, shift: int) -> None:
    archives.write_archive(
        tmp_path / "a.tw", {"first": bytes(shift), "weights.bin": b"w"}, mapped=("first", "weights.bin")
    )
    assert mapped_at(tmp_path / "a.tw") % 4096 == 0


def test_members_too_large_for_plain_zip_begin_at_a_page_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_ZIP64_FROM", 1)
    archives.write_archive(tmp_path / "a.tw", {"weights.bin": bytes(5000)}, mapped=("weights.bin",))
    assert mapped_at(tmp_path / "a.tw") % 4096 == 0
    with zipfile.ZipFile(tmp_path / "a.tw") as archive:
        assert archive.read("weights.bin") == bytes(5000)


@pytest.mark.skipif(shutil.which("unzip") is None, reason="no unzip on this machine")
def test_unzip_finds_nothing_to_complain_about(artifact: Path) -> None:
    done = subprocess.run(["unzip", "-t", str(artifact)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No errors detected" in done.stdout


def test_the_manifest_says_what_is_inside(artifact: Path, parts: Parts) -> None:
    reported = manifest_of(artifact)
    assert (reported["format_version"], reported["abi_version"], reported["lanes"], reported["calls"]) == (1, 3, 2, 2)
    assert (reported["arena_bytes"], reported["weight_bytes"]) == (64, 12)
    assert reported["inputs"][0] == {"name": "x", "dtype": "float32", "shape": [2, 3]}
    assert reported["inputs"][1] == {"name": "n", "dtype": "int64", "shape": []}
    assert [port["dtype"] for port in reported["outputs"]] == ["float32", "bool"]
    assert (reported["model_digest"], reported["target"], reported["toolchain"]) == ("ab" * 32, "cpu", "cc 1.0; -O1")
    with zipfile.ZipFile(artifact) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if name != "manifest.json"}
    assert reported["files"] == {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in found.items()
    }


def test_plan_json_tells_calls_tasks_and_storages(artifact: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        plan = json.loads(archive.read("plan.json"))
    assert [(call["family"], call["flops"], call["predicted_from"]) for call in plan["calls"]] == [
        ("Mul", 6, "measured"),
        ("Cast_Add_Greater", 6, "model"),
    ]
    assert plan["tasks"][2]["waits"] == [[1, 1]]
    assert [task["end_s"] for task in plan["tasks"]] == pytest.approx([3e-6, 3e-6, 4e-6])
    assert plan["storages"]["3"] == {"space": "arena", "at": 0, "bytes": 24}


def test_plan_json_numbers_all_plans_in_the_order_of_their_limits(parts: Any, tmp_path: Path) -> None:
    plan, tasks = parts.plan, (replace(parts.plan.tasks[0], last=2), replace(parts.plan.tasks[2], waits=()))
    other = replace(plan, tasks=tasks, scheduler="other", most_handover_s=1e-7)
    path = replace(parts, others=(other,)).pack(tmp_path / "m.tw").path
    with zipfile.ZipFile(path) as archive:
        reported = json.loads(archive.read("plan.json"))
    assert (reported["number"], reported["most_handover_s"], reported["scheduler"]) == (2, None, "sequential")
    (one,) = reported["others"]
    assert (one["number"], one["most_handover_s"], one["scheduler"]) == (1, 1e-7, "other")
    assert [task["last"] for task in one["tasks"]] == [2, 1]
    assert [call["tiles"] for call in one["calls"]] == [2, 1]
    with pytest.raises(VerifyError, match="each must be above the one before"):
        replace(parts, others=(replace(other, most_handover_s=math.inf),)).pack(path)
    with pytest.raises(VerifyError, match="another kernel graph"):
        replace(parts, others=(replace(other, tiles=plan.tiles[:1]),)).pack(path)


def test_a_plan_that_was_not_taken_has_a_file_in_the_form_of_plan_json(parts: Any, tmp_path: Path) -> None:
    plan, tasks = parts.plan, (replace(parts.plan.tasks[0], last=2), replace(parts.plan.tasks[2], waits=()))
    other = replace(plan, tasks=tasks, scheduler="other", predicted_s=8e-6, lanes=1)
    costs = (replace(parts.facts.costs[0], seconds=6e-6), parts.facts.costs[1])
    one = Rejected(3, other, costs, measured=((0.0, 5e-6), (5e-6, 7e-6)))
    path = replace(parts, facts=replace(parts.facts, rejected=(one,))).pack(tmp_path / "m.tw").path
    with zipfile.ZipFile(path) as archive:
        own, reported = (json.loads(archive.read(name)) for name in ("plan.json", "plans/3.json"))
        assert json.loads(archive.read("manifest.json"))["files"].keys() == {*archive.namelist()} - {"manifest.json"}
    assert own["scheduler"] == "sequential"
    assert reported.keys() == own.keys()
    assert (reported["scheduler"], reported["predicted_s"], reported["lanes"]) == ("other", 8e-6, 1)
    assert [call["predicted_s"] for call in reported["calls"]] == [6e-6, costs[1].seconds]
    assert [(task["begin_s"], task["end_s"]) for task in reported["tasks"]] == [(0.0, 6e-6), (6e-6, 7e-6)]
    assert [task["measured_s"] for task in reported["tasks"]] == [[0.0, 5e-6], [5e-6, 7e-6]]
    assert all(task["critical"] for task in reported["tasks"])


def test_launches_of_a_gpu_are_told_where_there_are_any(parts: Any, artifact: Path, tmp_path: Path) -> None:
    on_gpu = replace(parts, program=replace(parts.program, launches=((0, 1),))).pack(tmp_path / "gpu.tw").path
    for path, reported in ((artifact, None), (on_gpu, [[0, 1]])):
        with zipfile.ZipFile(path) as archive:
            assert json.loads(archive.read("plan.json")).get("launches") == reported
            assert ("One CUDA graph with 1 node." in archive.read("report.html").decode()) == bool(reported)


HOSTILE = ("a\"b'c", "</script><script>alert(1)</script>", "new\nline */ #include <x>", "nul\x00 \ud800 \u202e")


def test_names_from_the_model_reach_the_manifest_as_data_and_no_source(parts: Parts, tmp_path: Path) -> None:
    path = parts.named(*HOSTILE).pack(tmp_path / "m.tw").path
    reported = manifest_of(path)
    assert tuple(port["name"] for port in reported["inputs"] + reported["outputs"]) == HOSTILE
    with zipfile.ZipFile(path) as archive:
        raw = archive.read("manifest.json")
        assert raw.isascii()
        assert b"\x00" not in raw
        assert "alert" not in archive.read("example.c").decode()
        assert "alert" not in archive.read("plan.svg").decode()


def test_a_failed_write_leaves_nothing_and_keeps_what_was_there(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.tw"
    path.write_bytes(b"before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match="No space left"):
        parts.pack(path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_parts_that_do_not_fit_each_other_are_refused(parts: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.tw"
    with pytest.raises(VerifyError, match="1 costs"):
        replace(parts, facts=replace(parts.facts, costs=parts.facts.costs[:1])).pack(path)
    with pytest.raises(VerifyError, match=re.escape("lack model.h")):
        replace(parts, program=replace(parts.program, sources={})).pack(path)
    odd = {**parts.program.sources, "../evil.c": ""}
    with pytest.raises(VerifyError, match="cannot be the name"):
        replace(parts, program=replace(parts.program, sources=odd)).pack(path)
    assert not path.exists()


def test_the_example_compiles_links_and_runs(artifact: Path, tmp_path: Path, build: Callable[..., bytes]) -> None:
    folder = tmp_path / "extracted"
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(folder)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = ["gcc", *strict, "-O2", "-o", "example", "example.c", "./model.so", "-Wl,-rpath,$ORIGIN"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(["./example"], cwd=folder, capture_output=True, text=True, check=True)
    assert "output 0: 6 elements" in ran.stdout
    assert "least latency of 100 runs" in ran.stdout
    lost = subprocess.run(["./example", "elsewhere"], cwd=folder, capture_output=True, text=True, check=False)
    assert (lost.returncode, lost.stderr.strip()) == (1, "cannot open elsewhere")
