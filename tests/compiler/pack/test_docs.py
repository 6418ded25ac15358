"""What docs/artifact.md shows is true of an artifact."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "artifact.md").read_text()


def fenced(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_page_names_every_member_and_no_other(artifact: Path) -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    reported = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    where_there_are_others = {"plans/N.json", "state.h"}
    with zipfile.ZipFile(artifact) as archive:
        names = {re.sub(r"^plans/\d+", "plans/N", name) for name in archive.namelist()}
    members = {name if name.startswith("plans/") else re.sub(r"/.*", "/", name) for name in names}
    assert reported == members | where_there_are_others


def test_the_manifest_on_the_page_has_the_fields_of_a_manifest_in_their_order(artifact: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        assert list(json.loads(fenced("json"))) == list(json.loads(archive.read("manifest.json")))


def test_the_c_program_on_the_page_compiles_without_a_warning(artifact: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        archive.extract("model.h", tmp_path)
    (tmp_path / "page.c").write_text(fenced("c"))
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", "page.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
