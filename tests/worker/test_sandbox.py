from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from worker import landlock, seccomp
from worker.kernel import LINUX, MACHINE

pytestmark = pytest.mark.skipif(not LINUX, reason="the walls are of Linux")

PROGRAM = """
import errno, json, os, resource, signal, socket, subprocess, sys
from pathlib import Path
from worker import sandbox
from worker.limits import Limits
scratch, secret, model = map(Path, sys.argv[1:4])
spare = os.open("/dev/null", os.O_RDONLY)
parent = os.getppid()
limits = Limits(wall_s=60, memory_bytes=1 << 30, file_bytes=1 << 20)
standing = sandbox.enter(limits, scratch, [model], [])
import numpy
def attempt(action):
    try:
        action()
        return "done"
    except (OSError, MemoryError) as error:
        return errno.errorcode.get(getattr(error, "errno", None) or 0, type(error).__name__)
def compile_c():
    (scratch / "x.c").write_text("int main(void) { return 0; }")
    subprocess.run(["cc", "-o", str(scratch / "x"), str(scratch / "x.c")], check=True)
    subprocess.run([str(scratch / "x")], check=True)
print(json.dumps({
    "standing": standing,
    "spare": attempt(lambda: os.fstat(spare)),
    "model": attempt(lambda: model.read_bytes()),
    "write_model": attempt(lambda: model.write_bytes(b"")),
    "secret": attempt(lambda: secret.read_bytes()),
    "list_secret": attempt(lambda: os.listdir(secret.parent)),
    "secret_of_subprocess": subprocess.run(["cat", str(secret)], capture_output=True).returncode,
    "shadow": attempt(lambda: Path("/etc/shadow").read_bytes()),
    "parent_environment": attempt(lambda: Path(f"/proc/{parent}/environ").read_bytes()),
    "own_status": attempt(lambda: Path("/proc/self/status").read_bytes() + Path("/proc/cpuinfo").read_bytes()),
    "signal_parent": attempt(lambda: os.kill(parent, 0)),
    "tcp": attempt(lambda: socket.socket()),
    "unix": attempt(lambda: socket.socket(socket.AF_UNIX)),
    "socketpair": attempt(lambda: [end.close() for end in socket.socketpair()]),
    "huge_file": attempt(lambda: (scratch / "big").write_bytes(bytes(2 << 20))),
    "huge_array": attempt(lambda: numpy.empty(10**15)),
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "compile": attempt(compile_c),
    "home": attempt(lambda: (scratch / "own").write_text("x")),
}))
"""


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process behind the walls could do."""
    folder = tmp_path_factory.mktemp("sandbox")
    (folder / "scratch").mkdir()
    (folder / "secret").mkdir()
    secret, model = folder / "secret" / "key", folder / "secret" / "model.onnx"
    secret.write_text("key")
    model.write_text("model")
    command = [sys.executable, "-c", PROGRAM, str(folder / "scratch"), str(secret), str(model)]
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TMPDIR": str(folder / "scratch"),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_job_can_do_its_work(inside: dict[str, Any]) -> None:
    names = ("model", "compile", "home", "socketpair", "own_status")
    assert {name: inside[name] for name in names} == dict.fromkeys(names, "done")


def test_limits_hold(inside: dict[str, Any]) -> None:
    assert inside["huge_file"] == "EFBIG"
    assert "MemoryError" in inside["huge_array"]
    assert inside["core"] == 0


def test_descriptors_are_closed(inside: dict[str, Any]) -> None:
    assert inside["spare"] == "EBADF"


@pytest.mark.skipif(landlock.version() < 1, reason="this kernel has no Landlock")
def test_only_named_files_can_be_read_and_none_written(inside: dict[str, Any]) -> None:
    assert "files" in inside["standing"]
    names = ("secret", "list_secret", "shadow", "write_model")
    assert {name: inside[name] for name in names} == dict.fromkeys(names, "EACCES")
    assert inside["secret_of_subprocess"] != 0
    assert inside["parent_environment"] in ("EACCES", "EPERM")


@pytest.mark.skipif(landlock.version() < 6, reason="this kernel cannot keep signals in")
def test_other_processes_cannot_be_signalled(inside: dict[str, Any]) -> None:
    assert inside["signal_parent"] == "EPERM"


@pytest.mark.skipif(MACHINE not in ("x86_64", "aarch64"), reason="no filter for this machine")
def test_there_is_no_network(inside: dict[str, Any]) -> None:
    if "system_calls" not in inside["standing"]:
        pytest.skip("this kernel has no seccomp filters")
    assert inside["tcp"] == "EPERM"
    assert inside["unix"] == "EPERM"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_lands_on_the_last_line(machine: str) -> None:
    code = seccomp.program(machine)
    lines = [code[start : start + 8] for start in range(0, len(code), 8)]
    jumps = [(index, line[2]) for index, line in enumerate(lines) if line[0] in (0x15, 0x35) and index > 1]
    assert {index + 1 + jump for index, jump in jumps} == {len(lines) - 1}
