"""`tilewright timeline` on artifacts made for real: the code that draws travels in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tilewright.carried import carried
from tilewright.cli import app
from tilewright.errors import UsageError


@pytest.fixture(scope="module")
def whole(compiled: Callable[..., Any]) -> Path:
    """An artifact of two lanes."""
    path: Path = compiled("tiny_inception", 2, split=True).artifact
    return path


def timeline(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["timeline", *map(str, arguments)])


def test_what_was_measured_is_told_to_people_and_drawn(whole: Path, tmp_path: Path) -> None:
    done = timeline(whole, "--repeats", 3, "-o", tmp_path / "t.svg")
    assert done.exit_code == 0, done.output
    assert ", measured " in done.stdout.splitlines()[0]
    assert "lane 1" in done.stdout
    assert "calls whose measured time differs most" in done.stdout
    assert "t.svg" in done.stderr
    drawn = ElementTree.parse(tmp_path / "t.svg").getroot()
    assert ", measured " in drawn.get("aria-label", "")


def test_what_was_measured_can_be_opened_in_a_trace_viewer(whole: Path, tmp_path: Path) -> None:
    assert timeline(whole, "--repeats", 2, "-o", tmp_path / "t.json").exit_code == 0
    processes = {
        event["args"]["name"]
        for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        if event["name"] == "process_name"
    }
    assert processes == {"predicted", "measured"}


def test_what_was_measured_is_told_to_programs(whole: Path) -> None:
    done = timeline(whole, "--repeats", 2, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    with zipfile.ZipFile(whole) as archive:
        plan = json.loads(archive.read("plan.json"))
    assert (said["repeats"], said["lanes"], said["predicted_s"]) == (2, 2, plan["predicted_s"])
    assert [task["predicted_s"] for task in said["tasks"]] == [[one["begin_s"], one["end_s"]] for one in plan["tasks"]]
    assert all(0 <= begin <= end for begin, end in (task["measured_s"] for task in said["tasks"]))
    assert said["measured_s"] == max(task["measured_s"][1] for task in said["tasks"])


def test_what_the_artifact_draws_of_its_plan_is_what_it_holds(whole: Path, tmp_path: Path) -> None:
    """From plan.json, by the package in the artifact, in a process that has neither the compiler nor the client."""
    with zipfile.ZipFile(whole) as archive:
        archive.extractall(tmp_path)
    program = (
        "import json, sys; sys.path.insert(0, '.'); from chart import read, schedule_svg\n"
        "sys.stdout.buffer.write(schedule_svg(read(json.load(open('plan.json')))).encode())"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (tmp_path / "plan.svg").read_bytes()


def test_an_extracted_folder_will_do(whole: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(whole) as archive:
        archive.extractall(tmp_path / "folder")
    assert timeline(tmp_path / "folder", "--repeats", 1).exit_code == 0


def rewritten(whole: Path, folder: Path, change: Callable[[Path], None]) -> Path:
    """The artifact as a folder in which something was changed, its manifest not."""
    with zipfile.ZipFile(whole) as archive:
        archive.extractall(folder)
    change(folder)
    return folder


def for_a_gpu(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "target": "cuda:sm_90"}))


def without_chart(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {name: one for name, one in manifest["files"].items() if not name.startswith("chart/")}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "files": files}))
    shutil.rmtree(folder / "chart")


@pytest.mark.parametrize(
    ("change", "message", "fix"),
    [
        (for_a_gpu, "is for cuda:sm_90", "see the predicted timeline in its plan.svg"),
        (without_chart, "holds no chart", "compile the model again"),
        (lambda folder: (folder / "plan.json").unlink(), "holds no plan.json", "give a .tw file"),
        (lambda folder: (folder / "chart" / "words.py").write_text("evil()"), "is damaged", "download it again"),
        (lambda folder: (folder / "chart" / "words.py").unlink(), "words.py", "give a .tw file"),
    ],
)
def test_what_cannot_be_traced_or_drawn_is_refused_with_what_to_do(
    whole: Path, tmp_path: Path, change: Callable[[Path], None], message: str, fix: str
) -> None:
    done = timeline(rewritten(whole, tmp_path / "folder", change), "--json")
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert message in error["message"]
    assert fix in error["fix"]


def test_a_package_that_travels_is_imported_once(whole: Path, tmp_path: Path) -> None:
    copy = shutil.copy(whole, tmp_path / "copy.tw")
    assert carried(whole, "chart") is carried(Path(copy), "chart")
    with pytest.raises(UsageError, match="holds no pictures"):
        carried(whole, "pictures")


def test_a_file_that_cannot_be_written_is_an_error(whole: Path, tmp_path: Path) -> None:
    done = timeline(whole, "--repeats", 1, "-o", tmp_path / "none" / "t.svg")
    assert done.exit_code == 2
    assert not (tmp_path / "none").exists()
