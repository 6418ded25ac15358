from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.replay.side import at_commit, digest_of, of_working_tree
from tests.bench.replay.artifacts import side
from tilewright.errors import UsageError


def committed(folder: Path) -> Path:
    """A repository with a compiler in it, all committed."""
    side(folder)
    git = ["git", "-C", str(folder), "-c", "user.name=test", "-c", "user.email=test@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    return folder


def test_a_commit_and_the_tree_are_the_same_until_the_tree_changes(tmp_path: Path) -> None:
    root = committed(tmp_path / "repository")
    before = at_commit("HEAD", tmp_path / "before", root)
    assert of_working_tree(tmp_path / "same", root).digest == before.digest
    (root / "compiler" / "new.py").write_text("")
    after = of_working_tree(tmp_path / "after", root)
    assert after.digest != before.digest
    assert (after.tree / "compiler" / "new.py").exists()
    assert not (before.tree / "compiler" / "new.py").exists()
    (root / "compiler" / "new.py").write_text("later")
    assert (after.tree / "compiler" / "new.py").read_text() == "", "the copy stays as it was"


def test_only_the_compiler_counts_and_not_what_python_leaves(tmp_path: Path) -> None:
    root = committed(tmp_path / "repository")
    digest = digest_of(root / "compiler")
    (root / "README.md").write_text("")
    (root / "compiler" / "__pycache__").mkdir()
    (root / "compiler" / "__pycache__" / "x.pyc").write_text("")
    assert of_working_tree(tmp_path / "after", root).digest == digest


def test_a_name_or_content_that_changes_changes_the_digest(tmp_path: Path) -> None:
    package = side(tmp_path / "one").tree / "compiler"
    digests = {digest_of(package)}
    (package / "__init__.py").write_text("1")
    digests.add(digest_of(package))
    (package / "__init__.py").rename(package / "other.py")
    digests.add(digest_of(package))
    assert len(digests) == 3


def test_what_is_no_commit_is_refused(tmp_path: Path) -> None:
    root = committed(tmp_path / "repository")
    for name in ("no_such_branch", "--all"):
        with pytest.raises(UsageError, match="no commit"):
            at_commit(name, tmp_path / "before", root)
