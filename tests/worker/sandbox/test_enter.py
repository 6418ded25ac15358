from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cuda_double.double import build_runtime, compiler_there
from worker.sandbox import enter, landlock, linux
from worker.sandbox.linux import LINUX

pytestmark = pytest.mark.skipif(not LINUX, reason="the walls are of Linux")

PROGRAM = '''
import ctypes, errno, fcntl, json, mmap, os, resource, signal, socket, subprocess, sys, threading
from pathlib import Path
from worker.sandbox import enter
from worker.limits import Limits
scratch, secret, model = map(Path, sys.argv[1:4])
spare = os.open("/dev/null", os.O_RDONLY)
parent = os.getppid()
limits = Limits(wall_s=60, memory_bytes=1 << 30, file_bytes=1 << 20)
standing = enter.enter(limits, scratch, [model], [])
import numpy
def attempt(action):
    try:
        action()
        return "done"
    except (OSError, MemoryError) as error:
        return errno.errorcode.get(getattr(error, "errno", None) or 0, type(error).__name__)
def call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    if libc.syscall(*map(ctypes.c_long, (number, *arguments))) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def new_user_namespace(number):
    if (child := libc_clone(number)) == 0:
        os._exit(0)
def libc_clone(number):
    found = ctypes.CDLL(None, use_errno=True).syscall(number, ctypes.c_ulong(0x10000000 | signal.SIGCHLD), 0, 0, 0, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return found
def thread():
    worker = threading.Thread(target=int)
    worker.start()
    worker.join()
CAPABILITIES = """
import ctypes
def capabilities():
    found = (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capget((ctypes.c_uint32 * 2)(0x20080522, 0), found)
    return found[0] | found[1] | found[3] << 32 | found[4] << 32
"""
exec(CAPABILITIES)
spare_left = attempt(lambda: os.fstat(spare))
given = os.open(model, os.O_RDONLY)
def threads_choose_cores():
    refused = []
    def choose():
        try:
            os.sched_setaffinity(0, os.sched_getaffinity(0))
        except OSError as error:
            refused.append(error)
    worker = threading.Thread(target=choose)
    worker.start()
    worker.join()
    if refused:
        raise refused[0]
def shared_file():
    with (scratch / "mapped").open("w+b") as file:
        file.truncate(4096)
        mmap.mmap(file.fileno(), 4096).close()
NETS = ("self", "thread-self", f"self/task/{os.getpid()}", str(os.getpid()), "1", str(parent))
def sent_descriptor():
    ends = socket.socketpair()
    socket.send_fds(ends[0], [b"x"], [given])
x86 = os.uname().machine == "x86_64"
def compile_c():
    (scratch / "x.c").write_text("int seven(void) { return 7; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(scratch / "x.so"), str(scratch / "x.c")], check=True)
    assert ctypes.CDLL(str(scratch / "x.so")).seven() == 7
print(json.dumps({
    "standing": standing,
    "spare": spare_left,
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
    "array_within": attempt(lambda: numpy.empty(resource.getrlimit(resource.RLIMIT_AS)[0] - (4 << 30), numpy.uint8)),
    "array_beyond": attempt(lambda: numpy.empty(resource.getrlimit(resource.RLIMIT_AS)[0] + 1, numpy.uint8)),
    "addresses": resource.getrlimit(resource.RLIMIT_AS)[0],
    "mode_of_secret": attempt(lambda: os.chmod(secret, 0o777)),
    "owner_of_secret": attempt(lambda: os.chown(secret, os.getuid(), os.getgid())),
    "attribute_of_secret": attempt(lambda: os.setxattr(secret, "user.x", b"1")),
    "truncated_secret": attempt(lambda: os.truncate(secret, 0)),
    "limit_of_parent": attempt(lambda: resource.prlimit(parent, resource.RLIMIT_CORE)),
    "own_limit": attempt(lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))),
    "shared_memory": attempt(lambda: call(29 if x86 else 194, 0, 4096, 0o1600)),
    "mode_by_its_path": [
        os.stat("/usr").st_mode,
        ctypes.CDLL(None).fchmodat(-100, b"/usr", 0o777, 0),
        os.stat("/usr").st_mode,
    ],
    "mode_of_input": attempt(lambda: os.fchmod(given, 0o777)),
    "times_of_input": attempt(lambda: os.utime(given, (1, 1))),
    "times_of_secret": attempt(lambda: os.utime(secret, (1, 1))),
    "attribute_of_input": attempt(lambda: os.setxattr(given, "user.x", b"1")),
    "flags_of_input": attempt(lambda: fcntl.ioctl(given, 0x40086602, bytes(8))),
    "watched_secret": attempt(lambda: call(254 if x86 else 27, os.open("/dev/null", 0), 0, 0)),
    "cores_of_parent": attempt(lambda: os.sched_setaffinity(parent, os.sched_getaffinity(0))),
    "own_cores": attempt(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
    "cores_of_own_threads": attempt(lambda: threads_choose_cores()),
    "policy_of_parent": attempt(lambda: os.sched_setscheduler(parent, os.SCHED_BATCH, os.sched_param(0))),
    "priority_of_parent": attempt(lambda: os.setpriority(os.PRIO_PROCESS, parent, 19)),
    "priority_of_user": attempt(lambda: os.setpriority(os.PRIO_USER, 0, 19)),
    "own_priority": attempt(lambda: os.nice(1)),
    "handle_of_parent": attempt(lambda: os.close(os.pidfd_open(parent))),
    "memory_file": attempt(lambda: os.close(os.memfd_create("x"))),
    "shared_pages": attempt(lambda: mmap.mmap(-1, 4096)),
    "own_pages": attempt(lambda: mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)),
    "shared_file": attempt(lambda: shared_file()),
    "opt": attempt(lambda: os.listdir("/opt")),
    **{f"net_{name}": attempt(lambda: Path(f"/proc/{name}/net/tcp").read_bytes()) for name in NETS},
    "net": attempt(lambda: Path("/proc/net/tcp").read_bytes()),
    "net_folder": attempt(lambda: os.listdir("/proc/self/net")),
    "net_settings": attempt(lambda: os.listdir("/proc/sys/net")),
    "mounts": attempt(lambda: Path("/proc/self/mountinfo").read_bytes()),
    "listed_mounts": attempt(lambda: call(458, 0, 0, 0, 0)),
    "told_mount": attempt(lambda: call(457, 0, 0, 0, 0)),
    "sys_net": attempt(lambda: os.listdir("/sys/class/net")),
    "sys_block": attempt(lambda: os.listdir("/sys/block")),
    "sys": attempt(lambda: os.listdir("/sys")),
    "cores_of_machine": attempt(lambda: Path("/sys/devices/system/cpu/online").read_bytes()),
    "delay_of_thread": attempt(lambda: Path("/proc/thread-self/schedstat").read_bytes()),
    "notified": attempt(lambda: fcntl.fcntl(os.open("/usr", os.O_RDONLY), fcntl.F_NOTIFY, 4)),
    "lease": attempt(lambda: fcntl.fcntl(given, fcntl.F_SETLEASE, fcntl.F_UNLCK)),
    "owner_of_signals": attempt(lambda: fcntl.fcntl(given, fcntl.F_SETOWN, parent)),
    "flock_of_system": attempt(lambda: fcntl.flock(os.open("/usr", os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)),
    "flock_of_input": attempt(lambda: fcntl.flock(given, fcntl.LOCK_EX | fcntl.LOCK_NB)),
    "lock_of_input": attempt(lambda: fcntl.lockf(given, fcntl.LOCK_SH | fcntl.LOCK_NB)),
    "sent_descriptor": attempt(lambda: sent_descriptor()),
    "capabilities": capabilities(),
    "capabilities_of_subprocess": subprocess.run(
        [sys.executable, "-c", CAPABILITIES + "exit(capabilities() & ~4 != 0)"]
    ).returncode,
    "user": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
    "user_of_subprocess": int(subprocess.run(["id", "-u"], capture_output=True, text=True).stdout),
    "owner_of_scratch": os.stat(scratch).st_uid,
    "new_user_namespace": attempt(lambda: new_user_namespace(56 if x86 else 220)),
    "clone3": attempt(lambda: call(435, 0, 0)),
    "thread": attempt(thread),
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "compile": attempt(compile_c),
    "home": attempt(lambda: (scratch / "own").write_text("x")),
}))
'''


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
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "TMPDIR": str(folder / "scratch"),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_job_can_do_its_work(inside: dict[str, Any]) -> None:
    names = ("model", "compile", "home", "socketpair", "own_status", "own_limit", "thread")
    also = ("own_cores", "cores_of_own_threads", "own_priority", "own_pages", "shared_file", "cores_of_machine")
    known = ("delay_of_thread",) if Path("/proc/thread-self/schedstat").exists() else ()
    expected = dict.fromkeys((*names, *also, *known), "done")
    assert {name: inside[name] for name in expected} == expected


def test_limits_hold(inside: dict[str, Any]) -> None:
    assert inside["huge_file"] == "EFBIG"
    assert inside["addresses"] == 18 << 30  # twice the memory, and 16 GiB
    assert inside["array_within"] == "done"
    assert "MemoryError" in inside["array_beyond"]
    assert inside["core"] == 0


def test_descriptors_are_closed(inside: dict[str, Any]) -> None:
    assert inside["spare"] == "EBADF"


@pytest.mark.skipif(landlock.version() < 1, reason="this kernel has no Landlock")
def test_only_named_files_can_be_read_and_none_written(inside: dict[str, Any]) -> None:
    assert "files" in inside["standing"]
    names = ("secret", "list_secret", "shadow", "write_model", "opt")
    assert {name: inside[name] for name in names} == dict.fromkeys(names, "EACCES")
    assert inside["secret_of_subprocess"] != 0
    assert inside["parent_environment"] in ("EACCES", "EPERM")


@pytest.mark.skipif(landlock.version() < 1, reason="this kernel has no Landlock")
def test_nothing_is_seen_of_the_hosts_network_mounts_and_devices(inside: dict[str, Any]) -> None:
    hidden = ("net_folder", "net_settings", "mounts", "sys_net", "sys_block", "sys")
    seen = {name: inside[name] for name in inside if name.startswith("net") or name in hidden}
    assert len(seen) > len(hidden)
    assert {name: said for name, said in seen.items() if said not in ("EACCES", "EPERM")} == {}


@pytest.mark.skipif(landlock.version() < 6, reason="this kernel cannot keep signals in")
def test_other_processes_cannot_be_signalled(inside: dict[str, Any]) -> None:
    assert inside["signal_parent"] == "EPERM"


NAMING = """
import ctypes, threading
def name_a_thread():
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    refused = ctypes.CDLL(None).pthread_setname_np(ctypes.c_ulong(thread.ident), b"cuda")
    ended.set()
    return refused
"""
GPU_PROGRAM = (
    """
import ctypes, errno, json, os, resource, socket, subprocess, sys, threading
from pathlib import Path
from worker.sandbox import enter
from worker.limits import Limits
scratch, gpu = Path(sys.argv[1]), sys.argv[2] == "gpu"
os.geteuid = {"user": lambda: 1000, "root": lambda: 0}[sys.argv[3]]
if os.geteuid():
    number = 126 if os.uname().machine == "x86_64" else 91  # capset: none
    if ctypes.CDLL(None).syscall(number, (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()):
        raise OSError("capabilities cannot be given up")
neighbour = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
enter._GPU_WRITTEN = ("full",)  # what stands for /dev/nvidia0
standing = enter.enter(Limits(wall_s=60, memory_bytes=1 << 30), scratch, [], [neighbour.stdin.fileno()], gpu=gpu)
from compiler.devices.cuda.measure.apart import BenchApart, Lost
from compiler.devices.cuda.measure.driver import gpu_here, refusal
def attempt(action):
    try:
        action()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
def as_cuda_does():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.bind(b"\\0cuda-uvmfd-test")
        made.listen()
def connected():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.connect(b"\\0cuda-uvmfd-other")
exec(sys.argv[4])
bench = BenchApart()
try:
    clock = bench.clock()
    measuring = "comes up"
except Lost as reason:
    measuring = str(reason)
bench.close()
print(json.dumps({
    "standing": standing,
    "device": attempt(lambda: os.close(os.open("/dev/full", os.O_RDWR))),
    "other_device": attempt(lambda: os.close(os.open("/dev/tty", os.O_RDWR))),
    "addresses": resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY,
    "socket_of_cuda": attempt(as_cuda_does),
    "connection": attempt(connected),
    "stream": attempt(lambda: socket.socket(socket.AF_UNIX)),
    "tcp": attempt(lambda: socket.socket()),
    "named": name_a_thread() == 0,
    "named_by_subprocess": subprocess.run([sys.executable, "-c", """
    """sys.argv[4] + "exit(name_a_thread())"]).returncode == 0,
    "environment_of_neighbour": attempt(lambda: Path(f"/proc/{neighbour.pid}/environ").read_bytes()),
    "memory_of_neighbour": attempt(lambda: os.close(os.open(f"/proc/{neighbour.pid}/mem", os.O_RDWR))),
    "setting_of_kernel": attempt(lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))),
    "refusal": refusal(),
    "measuring": measuring,
}))
"""
)


@pytest.mark.skipif(landlock.version() < 1, reason="this kernel has no Landlock")
@pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")
@pytest.mark.parametrize(("gpu", "who"), [(True, "user"), (True, "root"), (False, "root")])
def test_a_job_with_a_gpu_reaches_it_and_a_process_that_measures_there(tmp_path: Path, gpu: bool, who: str) -> None:
    (tmp_path / "scratch").mkdir()
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "LD_LIBRARY_PATH": str(build_runtime().parent),
    }
    command = [sys.executable, "-c", GPU_PROGRAM, str(tmp_path / "scratch"), "gpu" if gpu else "cpu", who, NAMING]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    inside = json.loads(done.stdout)
    assert (inside["device"], inside["addresses"]) == (("done", True) if gpu else ("EACCES", False))
    assert inside["other_device"] != "done"
    assert inside["environment_of_neighbour"] in ("EACCES", "EPERM")
    assert inside["memory_of_neighbour"] in ("EACCES", "EPERM")
    assert inside["named"] == gpu
    assert inside["named_by_subprocess"] == (gpu and who == "user")
    if who == "root":
        assert inside["setting_of_kernel"] == "EACCES"
    if "system_calls" in inside["standing"]:
        assert inside["socket_of_cuda"] == ("done" if gpu else "EPERM")
        assert (inside["connection"], inside["stream"], inside["tcp"]) == ("EPERM", "EPERM", "EPERM")
    if gpu:
        assert (inside["refusal"], inside["measuring"]) == ("", "comes up")
    else:
        assert "no NVIDIA driver" in inside["refusal"]


def test_the_device_files_of_gpus_are_found(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "null", "sda"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    names = [path.name for path in enter.gpu_devices(tmp_path)]
    assert names == ["nvidia-caps", "nvidia-uvm", "nvidia0", "nvidiactl"]


def test_folders_that_jobs_can_read_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "installed"
    monkeypatch.setenv("PATH", f"/usr/bin:{installed}")
    (tmp_path / "link").symlink_to(installed)
    folders = [installed / "data", tmp_path / "link" / "blobs", tmp_path / "data", Path("/usr/tilewright")]
    assert enter.exposed(folders) == [folders[0], folders[1], folders[3]]
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert enter.exposed(folders) == [folders[0], folders[1], folders[3]]
    assert enter.exposed(folders, gpu=True) == folders


def test_of_opt_only_compilers_and_what_the_linker_searches_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opt, linker = tmp_path / "opt", tmp_path / "conf"
    for program in (opt / "llvm" / "bin" / "clang", opt / "bin" / "gcc", tmp_path / "elsewhere" / "bin" / "cc"):
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    linker.mkdir()
    (linker / "cuda.conf").write_text(f"{opt}/cuda/lib64\n/usr/lib/x\n")
    monkeypatch.setenv("PATH", f"{opt / 'llvm' / 'bin'}:{opt / 'bin'}:{tmp_path / 'elsewhere' / 'bin'}")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    parts = {opt / part for part in ("bin", "lib", "lib64", "libexec", "include")}
    assert {*enter._parts_of_opt(opt, linker)} == parts | {opt / "llvm", opt / "cuda" / "lib64"}
    monkeypatch.setenv("PATH", "/nowhere")
    assert enter._parts_of_opt(opt, tmp_path / "none") == []


@pytest.fixture
def filtered(inside: dict[str, Any]) -> dict[str, Any]:
    """The same, where system calls are filtered."""
    if "system_calls" not in inside["standing"]:
        pytest.skip("this kernel has no seccomp filters, or no filter is known for this machine")
    return inside


def test_there_is_no_network(filtered: dict[str, Any]) -> None:
    assert filtered["tcp"] == "EPERM"
    assert filtered["unix"] == "EPERM"


def test_the_kernel_lists_no_mounts_of_the_host(filtered: dict[str, Any]) -> None:
    assert (filtered["listed_mounts"], filtered["told_mount"]) == ("EPERM", "EPERM")


def test_files_cannot_be_changed_that_cannot_be_opened_or_only_to_be_read(filtered: dict[str, Any]) -> None:
    names = ["owner_of_secret", "attribute_of_secret", "truncated_secret", "times_of_secret"]
    names += ["mode_of_secret"] if platform.machine() == "x86_64" else []  # elsewhere it is that of `mode_by_its_path`
    read = ("mode_of_input", "times_of_input", "attribute_of_input", "flags_of_input", "watched_secret")
    assert {name: filtered[name] for name in (*names, *read)} == dict.fromkeys((*names, *read), "EPERM")
    before, _, after = filtered["mode_by_its_path"]
    assert before == after != before | 0o777


def test_there_is_no_new_namespace_and_no_way_to_other_processes(filtered: dict[str, Any]) -> None:
    names = ("new_user_namespace", "limit_of_parent", "shared_memory", "cores_of_parent", "policy_of_parent")
    also = ("priority_of_parent", "priority_of_user", "handle_of_parent")
    assert {name: filtered[name] for name in (*names, *also)} == dict.fromkeys((*names, *also), "EPERM")
    assert filtered["clone3"] == "ENOSYS"


def test_files_of_others_are_neither_locked_nor_watched_and_descriptors_stay_in_sight(filtered: dict[str, Any]) -> None:
    names = ("notified", "lease", "owner_of_signals", "lock_of_input")
    assert (filtered["flock_of_system"], filtered["flock_of_input"]) == ("done", "done")  # in vain
    assert {name: filtered[name] for name in (*names, "sent_descriptor")} == dict.fromkeys(
        (*names, "sent_descriptor"), "EPERM"
    )


def test_no_memory_is_taken_that_no_process_is_seen_to_hold(filtered: dict[str, Any]) -> None:
    assert (filtered["memory_file"], filtered["shared_pages"]) == ("EPERM", "EPERM")


def test_root_gives_up_what_sets_it_apart_but_for_reading(inside: dict[str, Any]) -> None:
    assert "capabilities" in inside["standing"]
    assert inside["capabilities"] in (0, 1 << 2)
    assert inside["capabilities_of_subprocess"] == 0


@pytest.mark.skipif(os.geteuid() != 0 or not linux.is_mapped(enter.USERS), reason="only root becomes another user")
def test_the_job_of_a_worker_of_root_has_a_user_of_its_own(inside: dict[str, Any]) -> None:
    """Who may neither signal the worker, whatever the version of Landlock, nor another job's processes."""
    assert "user" in inside["standing"]
    user = inside["owner_of_scratch"]
    assert user > enter.USERS
    assert inside["user"] == [user] * 6
    assert inside["user_of_subprocess"] == user
    assert inside["home"] == inside["compile"] == inside["model"] == "done"


def test_a_compiler_in_a_closed_folder_keeps_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who could not start it: gcc asks by access(2), which knows no capabilities."""
    assert enter._compilers_are_open()
    compiler = tmp_path / "bin" / "cc-of-root"
    compiler.parent.mkdir(mode=0o700)
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert not enter._compilers_are_open()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_user_that_means_nobody_here_is_not_become(tmp_path: Path) -> None:
    """Beyond the last number of a 32-bit user id: no process and no folder changes hands."""
    assert not linux.is_mapped(2**32 - 1)
    assert not linux.become(2**32 - 1, tmp_path)
    assert (os.getresuid(), tmp_path.stat().st_uid) == ((0, 0, 0), 0)


@pytest.mark.skipif(os.geteuid() != 0 or not linux.is_mapped(enter.USERS), reason="only root becomes another user")
def test_who_dies_with_its_parent_does_so_as_another_user_too() -> None:
    """The kernel forgets the signal of a parent's death when a process changes its user."""
    code = """
import os, signal, sys, time
from worker.sandbox import linux
ready, told = os.pipe()
if (child := os.fork()) == 0:
    linux.die_with_parent(os.getppid())
    assert linux.become(int(sys.argv[1]), None)
    os.write(told, b"x")
    time.sleep(600)
os.read(ready, 1)
print(child, flush=True)
"""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", code, str(enter.USERS + 1)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    for _ in range(6000):
        if not _lives(int(done.stdout)):
            return
        time.sleep(0.01)
    raise AssertionError("it outlived its parent")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("version", "walls"),
    [
        (0, ()),
        (1, ("files_partly",)),
        (2, ("files_partly",)),
        (3, ("files",)),
        (5, ("files",)),
        (6, ("files", "signals")),
    ],
)
def test_what_stands_is_told_by_the_version_of_landlock(version: int, walls: tuple[str, ...]) -> None:
    assert landlock.walls(version) == walls
    assert set(walls) <= {*enter.WALLS, "files_partly"}


def test_the_walls_that_stand_are_those_that_can_be_demanded(inside: dict[str, Any]) -> None:
    if landlock.version() >= 6 and "system_calls" in inside["standing"]:
        without = () if linux.is_mapped(enter.USERS) and os.geteuid() == 0 else ("user",)
        assert tuple(inside["standing"]) == tuple(name for name in enter.WALLS if name not in without)
    assert set(inside["standing"]) <= {*enter.WALLS, "files_partly"}
