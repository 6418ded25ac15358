"""A copy of the checkout in which mutants are put, one after another, and their tests run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.mutants.mutant import Mutant


class Fate(StrEnum):
    """What became of a mutant."""

    NOTICED = "noticed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    """Which is a way to be noticed: the tests pass in a part of that time."""
    UNJUDGED = "not judged"
    """What failed with it fails without it too."""


class Unfit(Exception):
    """Tests that say nothing of a mutant: they fail without it, or there are none."""


FAILING = re.compile(r"^(?:FAILED|ERROR) (\S+?::.*?|\S+)(?: - .*)?$", re.MULTILINE)
"""A test, or a file of them, in pytest's summary."""
PASSED = 0
"""pytest's exit status; there are others for tests that fail and for files that cannot be imported."""
QUIET = (PASSED, 5)
"""The same, and that of files in which there is no test, or none with the marks."""


@dataclass(frozen=True)
class Tree:
    """A copy that belongs to whoever made it. `timeout_s` is what tests may take, the first of a mutant or the others.

    choice   what pytest is told of which tests are run, and in which order
    passing  tests that are known to pass as long as nothing is changed
    """

    root: Path
    timeout_s: float = 900.0
    choice: tuple[str, ...] = ()
    passing: set[str] = field(default_factory=set)

    @staticmethod
    def copied(checkout: Path, place: Path, timeout_s: float = 900.0, choice: tuple[str, ...] = ()) -> Tree:
        """What git tracks and what it does not ignore, as it is now.

        Raises CalledProcessError outside of a checkout.
        """
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=checkout, capture_output=True, check=True).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (checkout / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(checkout / name, place / name)
        return Tree(place, timeout_s, choice)

    def check(self, tests: Sequence[str]) -> None:
        """Raises Unfit unless the tests pass as long as nothing is changed.

        One that is named is run whatever marks it has: which it has depends on what is beside it.
        """
        if self.passing.issuperset(tests):
            return
        status, said = self._run(tests, () if "::" in tests[0] else self.choice)
        if status != PASSED:
            raise Unfit(f"without any mutant {' '.join(tests)} does not pass, but ends with {status}:\n{said[-3000:]}")
        self.passing.update(tests)

    def fate(self, mutant: Mutant) -> Fate:
        """Puts the mutant in, runs its tests, the first before the others, and takes it out.

        Raises Unfit where those that fail do so without it.
        """
        self._write(mutant.file, mutant.after)
        try:
            status, said = self._run(mutant.tests[:1], self.choice)
            if status in QUIET and mutant.tests[1:]:
                status, said = self._run(mutant.tests[1:], self.choice)
        finally:
            self._write(mutant.file, mutant.before)
        if status in QUIET:
            return Fate.SURVIVED
        failing = FAILING.findall(said)
        # A file that cannot be imported fails as a whole, though only some of its tests may be wanted.
        within = [test for test in mutant.tests if failing and test.startswith(failing[0])]
        self.check(within or failing or mutant.tests)
        return Fate.TIMED_OUT if status is None else Fate.NOTICED

    def _write(self, file: str, text: str) -> None:
        """As if a second later than before.

        Bytecode is known by the size of its source and by the second in which it was written.
        """
        path = self.root / file
        later = int(path.stat().st_mtime) + 1
        path.write_text(text)
        os.utime(path, (later, later))

    def _run(self, tests: Sequence[str], choice: Sequence[str]) -> tuple[int | None, str]:
        """pytest's exit status, None past the time, and what it said; processes that it leaves are ended."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *choice, *tests]
        # The checkout is installed in the environment: the copy must come before it, in processes that tests start as
        # well.
        own = {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "", "OPENBLAS_NUM_THREADS": "1"}
        environment = {**os.environ, **own}
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
