"""A copy of the checkout in which mutants are put, one after another, and their tests run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.mutant import Mutant


class Fate(StrEnum):
    """What became of a mutant."""

    NOTICED = "noticed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    """Which is a way to be noticed: the tests pass in a part of that time."""


class Unfit(Exception):
    """Tests that say nothing of a mutant: they fail without it, or there are none."""


PASSED = 0
"""pytest's exit status; there are others for tests that fail, for files that cannot be imported, and where there are no tests."""


@dataclass(frozen=True)
class Tree:
    """A copy that belongs to whoever made it. `timeout_s` is what tests may take, all of a mutant's together."""

    root: Path
    timeout_s: float = 900.0

    @staticmethod
    def copied(checkout: Path, place: Path, timeout_s: float = 900.0) -> Tree:
        """What git tracks and what it does not ignore, as it is now. Raises CalledProcessError outside of a checkout."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=checkout, capture_output=True, check=True).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (checkout / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(checkout / name, place / name)
        return Tree(place, timeout_s)

    def check(self, tests: Sequence[str]) -> None:
        """Raises Unfit unless the tests pass as long as nothing is changed."""
        status, said = self._run(tests)
        if status != PASSED:
            raise Unfit(f"without any mutant {' '.join(tests)} does not pass:\n{said[-3000:]}")

    def fate(self, mutant: Mutant) -> Fate:
        """Puts the mutant in, runs its tests, which pass without it (`check`), and takes it out."""
        self._write(mutant.file, mutant.after)
        try:
            status, _ = self._run(mutant.tests)
        finally:
            self._write(mutant.file, mutant.before)
        if status is None:
            return Fate.TIMED_OUT
        return Fate.SURVIVED if status == PASSED else Fate.NOTICED

    def _write(self, file: str, text: str) -> None:
        """As if a second later than before: bytecode is known by the size of its source and by the second in which it was written."""
        path = self.root / file
        later = int(path.stat().st_mtime) + 1
        path.write_text(text)
        os.utime(path, (later, later))

    def _run(self, tests: Sequence[str]) -> tuple[int | None, str]:
        """pytest's exit status, None past the time, and what it said; processes that it leaves are ended."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        # The checkout is installed in the environment: the copy must come before it, in processes that tests start as well.
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        running = subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = running.communicate(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            said, _ = running.communicate()
            return None, said
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            raise
        return running.returncode, said
