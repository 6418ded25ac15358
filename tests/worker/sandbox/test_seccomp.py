"""The filter of system calls, judged without the kernel: its numbers by the headers, its answers by stepping."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess

import pytest

from worker.sandbox import seccomp

_REFUSED = """
    socket connect ptrace process_vm_readv process_vm_writev pidfd_getfd io_uring_setup
    mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr statmount
    listmount unshare setns bpf userfaultfd perf_event_open add_key request_key keyctl open_by_handle_at
    init_module finit_module delete_module kexec_load reboot swapon swapoff settimeofday clock_settime
    chmod fchmodat2 chown lchown fchown fchownat setxattr lsetxattr removexattr lremovexattr truncate
    fchmod fsetxattr fremovexattr setxattrat removexattrat file_setattr utime utimes futimesat utimensat
    name_to_handle_at inotify_add_watch fanotify_init fanotify_mark quotactl quotactl_fd open_tree_attr
    acct syslog personality vhangup sethostname setdomainname adjtimex clock_adjtime iopl ioperm kexec_file_load
    kcmp pidfd_open pidfd_send_signal process_madvise process_mrelease migrate_pages move_pages
    memfd_secret memfd_create sendmsg sendmmsg
    shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_unlink mq_open
"""
REFUSED = frozenset(_REFUSED.split())
OLD = {"chmod", "chown", "lchown", "utime", "utimes", "futimesat", "iopl", "ioperm"}
"""Calls that arm64 never had."""
ONE_TABLE = 424
"""From this number on a call has the same number on every machine."""
EITHER = {"allow", "refuse"}
JUDGED = {
    "clone": EITHER,
    "clone3": {"missing"},
    "flock": {"nothing"},
    "fchmodat": {"nothing"},
    "prlimit64": EITHER,
    "sched_setaffinity": EITHER,
    "sched_setscheduler": EITHER,
    "sched_setparam": EITHER,
    "sched_setattr": EITHER,
    "setpriority": EITHER,
    "ioprio_set": EITHER,
    "mmap": EITHER,
    "ioctl": EITHER,
    "fcntl": EITHER,
}
"""Calls whose arguments are looked at, or that are told to be missing."""
ARGUMENTS = [(0,), (1,), (0x10000000,), (0, 0x40086602), (0, 1026), (0, 0, 0x21)]
"""First, second and fourth: under some of them a call whose arguments are looked at is refused, under others not."""
HEADERS = {
    "x86_64": "#include <asm/unistd_64.h>",
    "aarch64": """
        #define __BITS_PER_LONG 64
        #define __ARCH_WANT_RENAMEAT
        #define __ARCH_WANT_NEW_STAT
        #define __ARCH_WANT_SET_GET_RLIMIT
        #define __ARCH_WANT_TIME32_SYSCALLS
        #define __ARCH_WANT_MEMFD_SECRET
        #define __ARCH_WANT_SYS_CLONE3
        #include <asm-generic/unistd.h>
    """,
}


def numbers_of(machine: str) -> dict[str, int]:
    """System calls by name, as the kernel's headers number them; empty where there are none for this machine."""

    def preprocessed(source: str, *options: str) -> str:
        command = ["cc", "-E", "-P", *options, "-"]
        return subprocess.run(command, input=source, capture_output=True, text=True, check=False).stdout

    names = re.findall(r"#define __NR_(\w+) ", preprocessed(HEADERS[machine], "-dM"))
    text = preprocessed("\n".join([HEADERS[machine], *(f"call {name} __NR_{name}" for name in sorted(names))]))
    return {name: int(number) for name, number in re.findall(r"(?m)^call (\w+) (\d+)$", text)}


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_refuses_what_is_listed_here_by_the_numbers_of_the_kernels_headers(machine: str) -> None:
    numbers = numbers_of(machine)
    if not numbers:
        pytest.skip(f"this machine has no kernel headers of {machine}")
    answers = {
        name: {_carried_out(seccomp.program(machine), machine, number, *given) for given in ARGUMENTS}
        for name, number in numbers.items()
    }
    refused = {name for name, found in answers.items() if found == {"refuse"}}
    newer = {name for name in REFUSED if name not in numbers} - (OLD if machine == "aarch64" else set())
    assert len(numbers) > 250
    assert refused == {*REFUSED} & numbers.keys()
    assert {name: answers[name] for name in JUDGED} == JUDGED
    others = answers.keys() - refused - JUDGED.keys()
    assert all(answers[name] == {"allow"} for name in others)
    # What these headers are too old to know is numbered alike everywhere, and by newer ones when a test runs there.
    assert {*REFUSED} == seccomp._REFUSED.keys() | seccomp._REFUSED_WITHOUT_GPU.keys()
    for name in newer:
        x86, arm = seccomp._REFUSED[name]
        assert x86 == arm is not None, name
        assert arm >= ONE_TABLE, name
        assert arm not in numbers.values(), name


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_answers_each_call_as_it_should(machine: str) -> None:
    """The program, carried out: (system call, its first argument) and what becomes of it."""
    x86 = machine == "x86_64"
    expected = {
        (0 if x86 else 63, 0): "allow",  # read
        (41 if x86 else 198, 0): "refuse",  # socket
        (240 if x86 else 180, 0): "refuse",  # mq_open, the last
        (435, 0): "missing",
        (56 if x86 else 220, 0x10000000): "refuse",  # clone with CLONE_NEWUSER
        (56 if x86 else 220, 0x003D0F00): "allow",  # as a thread is made
        (302 if x86 else 261, 0): "allow",  # prlimit64
        (302 if x86 else 261, 17): "refuse",
        (0x40000000, 0): "refuse",
    }
    assert {call: _carried_out(seccomp.program(machine), machine, *call) for call in expected} == expected
    judged = {
        (203 if x86 else 122, 0): "allow",  # sched_setaffinity
        (203 if x86 else 122, 17): "refuse",
        (141 if x86 else 140, 0, 0): "allow",  # setpriority(PRIO_PROCESS, 0)
        (141 if x86 else 140, 0, 17): "refuse",
        (141 if x86 else 140, 2, 0): "refuse",  # PRIO_USER
        (251 if x86 else 30, 1, 0): "allow",  # ioprio_set(IOPRIO_WHO_PROCESS, 0)
        (251 if x86 else 30, 1, 17): "refuse",
        (251 if x86 else 30, 3, 0): "refuse",  # IOPRIO_WHO_USER
        (9 if x86 else 222, 0, 0, 0x22): "allow",  # mmap(MAP_PRIVATE | MAP_ANONYMOUS)
        (9 if x86 else 222, 0, 0, 0x01): "allow",  # MAP_SHARED, of a file
        (9 if x86 else 222, 0, 0, 0x21): "refuse",
        (9 if x86 else 222, 0, 0, 0x23): "refuse",  # MAP_SHARED_VALIDATE
        (16 if x86 else 29, 0, 0x5401): "allow",  # ioctl(TCGETS)
        (16 if x86 else 29, 0, 0x40086602): "refuse",  # FS_IOC_SETFLAGS
        (16 if x86 else 29, 0, 0x40806685): "refuse",  # FS_IOC_ENABLE_VERITY, the last
        (72 if x86 else 25, 0, 1030): "allow",  # fcntl(F_DUPFD_CLOEXEC)
        (72 if x86 else 25, 0, 1026): "refuse",  # F_NOTIFY
        (72 if x86 else 25, 0, 1024): "refuse",  # F_SETLEASE
        (72 if x86 else 25, 0, 8): "refuse",  # F_SETOWN
        (72 if x86 else 25, 0, 6): "refuse",  # F_SETLK
        (72 if x86 else 25, 0, 38): "refuse",  # F_OFD_SETLKW, the last
    }
    assert {call: _carried_out(seccomp.program(machine), machine, *call) for call in judged} == judged
    with_gpu = seccomp.program(machine, gpu=True)
    assert _carried_out(with_gpu, machine, 9 if x86 else 222, 0, 0, 0x21) == "allow"
    assert _carried_out(with_gpu, machine, 319 if x86 else 279, 0) == "allow"  # memfd_create
    assert _carried_out(with_gpu, machine, 73 if x86 else 32, 0) == "allow"  # flock
    assert _carried_out(with_gpu, machine, 268 if x86 else 53, 0) == "nothing"  # fchmodat
    assert _carried_out(with_gpu, machine, 72 if x86 else 25, 0, 6) == "allow"  # F_SETLK
    assert _carried_out(with_gpu, machine, 72 if x86 else 25, 0, 1026) == "refuse"
    sockets = {
        (41 if x86 else 198, 1, 0o2000005): "allow",  # socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC)
        (41 if x86 else 198, 1, 1): "refuse",  # SOCK_STREAM
        (41 if x86 else 198, 2, 5): "refuse",  # AF_INET
        (42 if x86 else 203, 3, 0): "refuse",  # connect
    }
    assert {call: _carried_out(with_gpu, machine, *call) for call in sockets} == sockets
    assert {call: _carried_out(with_gpu, machine, *call) for call in expected} == expected
    assert _carried_out(seccomp.program(machine), "another", 0, 0) == "kill"


def _carried_out(program: bytes, machine: str, number: int, argument: int, second: int = 0, fourth: int = 0) -> str:
    arch = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(machine, 0)
    data = {0: number, 4: arch, 16: argument, 24: second, 40: fourth}
    ends = {0x7FFF0000: "allow", 0x80000000: "kill", 0x00050000: "nothing", 0x00050001: "refuse", 0x00050026: "missing"}
    lines = list(struct.iter_unpack("=HBBI", program))
    held = at = 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        match code:
            case 0x20:
                held = data[value]
            case 0x54:
                held &= value
            case 0x06:
                return ends[value]
            case _:
                holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
                at += yes if holds else no
