"""The client, the command line and an artifact's loader are imported where Linux's modules and calls are missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.pack.joining import loader_source
from tests.compiler.networks import Network
from tests.compiler.test_pipeline_arm import compiled

HIDDEN = """
# Modules of Python itself know where they run.
import json, os, pkgutil, signal, sys
import asyncio, concurrent.futures, ctypes, multiprocessing, subprocess, tempfile, threading
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "curses", "readline"):
    sys.modules[name] = None
for name in (
    "fork", "forkpty", "geteuid", "getuid", "getgid", "getloadavg", "getpgid", "killpg", "memfd_create", "mkfifo",
    "O_CLOEXEC", "O_PATH", "pidfd_open", "posix_fadvise", "register_at_fork", "sched_getaffinity", "sched_setaffinity",
    "setsid", "ST_NOEXEC", "statvfs", "sysconf",
):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGUSR1", "pthread_sigmask", "setitimer", "sigwait"):
    delattr(signal, name)
"""
ALL = """
import tilewright
names = [one.name for one in pkgutil.walk_packages(tilewright.__path__, "tilewright.")]
failed = {}
for name in names:
    try:
        __import__(name)
    except Exception as error:
        failed[name] = repr(error)
print(json.dumps([names, failed]))
"""
MODEL = """
import pathlib, tilewright
from tilewright import local
from tilewright.errors import UsageError
with tilewright.load(sys.argv[1]) as model:
    print(next(iter(model.run(model.random_inputs()).values())).shape)
print(local.own_cores() > 0)
try:
    local.compiled(pathlib.Path(sys.argv[2]))
except UsageError as error:
    print(error, getattr(error, "fix", ""))
"""
RUN = """
import importlib.util, numpy
spec = importlib.util.spec_from_file_location("loader", sys.argv[1])
loader = importlib.util.module_from_spec(spec)
sys.modules["loader"] = loader
spec.loader.exec_module(loader)
try:
    loader.Model(sys.argv[2])
except loader.ArtifactError as error:
    print(error, getattr(error, "fix", ""))
"""


def said(script: str, *arguments: str) -> str:
    """What a script says in a Python without what other systems lack."""
    command = [sys.executable, "-c", HIDDEN + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_what_is_hidden_is_missing() -> None:
    script = "\ntry:\n    import fcntl\nexcept ImportError:\n    print(hasattr(os, 'memfd_create'))\n"
    assert said(script).strip() == "False"


@pytest.mark.skipif(sys.platform != "linux", reason="there is nothing to hide")
def test_every_module_that_a_user_imports_is_imported() -> None:
    names, failed = json.loads(said(ALL))
    assert {"tilewright.client", "tilewright.loading", "tilewright.cli.compile"} <= {*names}
    assert failed == {}


@pytest.mark.skipif(sys.platform != "linux", reason="there is nothing to hide")
def test_an_artifacts_loader_is_imported_and_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "loader.py").write_text(loader_source())
    (tmp_path / "net.tw").write_bytes(b"nothing")
    assert "is not a whole .tw archive" in said(RUN, str(tmp_path / "loader.py"), str(tmp_path / "net.tw"))


@pytest.mark.skipif(sys.platform != "linux", reason="there is nothing to hide")
def test_an_artifact_runs_there_and_compiling_says_what_it_needs(tmp_path: Path) -> None:
    net = Network()
    x = net.node("Relu", [net.input(2, 8)], (2, 8))
    _, artifact = compiled(bytes(net.model([x]).SerializeToString()), tmp_path)
    shape, has_cores, why = said(MODEL, str(artifact), str(tmp_path / "net.onnx")).strip().split("\n")[:3]
    assert (shape, has_cores) == ("(2, 8)", "True")
    assert "a model is compiled on Linux" in why
    assert "--system windows" in why
