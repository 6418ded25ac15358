from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from compiler.contract import Event
from worker import limits
from worker.attempt import supervise as supervising
from worker.attempt.supervise import Ending, supervise
from worker.lease.wakeup import Wakeup
from worker.limits import Limits
from worker.processes.frames import write
from worker.processes.group import Group
from worker.processes.usage import Usage

Attend = Callable[..., Ending]


@pytest.fixture
def attend(tmp_path: Path, script: Callable[[str], tuple[str, ...]]) -> Attend:
    """Run a scripted child under limits; `ring` is rung when its first event arrives."""

    def run(
        child: str,
        *,
        ring: Any = None,
        seen: list[Event] | None = None,
        ask_to_finish: bool = False,
        **changed: Any,
    ) -> Ending:
        scratch = tmp_path / "job" / "work"
        scratch.mkdir(parents=True)
        wakeup = Wakeup()
        if ask_to_finish:
            wakeup.ask_to_finish()

        def observe(event: Event) -> None:
            if seen is not None:
                seen.append(event)
            if ring:
                threading.Thread(target=wakeup.ring, args=(ring,)).start()

        spec = {"kind": "spec", "output": str(scratch / "output")}
        group = Group.start(spec, scratch, command=script(child))
        try:
            return supervise(group, Limits(**{"wall_s": 60.0, **changed}), wakeup, observe)
        finally:
            wakeup.close()

    return run


def test_events_arrive_in_order_and_the_report_ends_it(attend: Attend) -> None:
    seen: list[Event] = []
    ending = attend('event("load", 0.1); event("tile", 0.5, "progress", "half"); succeed()', seen=seen)
    assert ending.kind == "report"
    assert ending.report["kernels"] == 3
    assert [(e.kind, e.phase, e.fraction, e.message) for e in seen] == [
        ("phase", "load", 0.1, ""),
        ("progress", "tile", 0.5, "half"),
    ]


class LastWords:
    """A group whose job reports and ends just after its pipe was found silent.

    It leaves a descendant that holds the pipe open.
    """

    def __init__(self) -> None:
        self.frames, self.write_end = os.pipe()
        os.set_blocking(self.frames, False)
        self.has_spoken = False

    @property
    def ended(self) -> bool:
        if not self.has_spoken:
            self.has_spoken = True
            write(self.write_end, {"kind": "report", "report": {"kernels": 3}})
        return True

    def end(self) -> int:
        os.close(self.frames)
        os.close(self.write_end)
        return 0

    def usage(self) -> Usage:
        return Usage()

    def disk_bytes(self) -> int:
        return 0

    def log_tail(self, limit: int = 0) -> str:
        return ""


def test_what_a_job_says_as_it_ends_is_heard() -> None:
    wakeup = Wakeup()
    ending = supervise(cast(Group, LastWords()), Limits(wall_s=60.0), wakeup, lambda event: None)
    wakeup.close()
    assert (ending.kind, ending.report) == ("report", {"kernels": 3})


def test_a_problem_is_handed_on_as_it_is(attend: Attend) -> None:
    problem = {"code": "malformed_model", "fault": "caller", "message": "truncated", "fix": "send it whole"}
    assert attend(f'send(kind="problem", problem={problem!r})').problem == problem


def test_a_segfault_is_a_crash_with_signal_phase_and_last_words(attend: Attend) -> None:
    ending = attend('print("last words", flush=True); event("fuse", 0.2); os.kill(os.getpid(), signal.SIGSEGV)')
    assert ending.kind == "problem"
    assert ending.problem["code"] == "compiler_crashed"
    assert ending.problem["fault"] == "ours"
    assert ending.problem["fix"]
    assert ending.problem["details"] == {"phase": "fuse", "signal": "SIGSEGV", "log_tail": "last words\n"}


def test_leaving_without_a_result_is_a_crash(attend: Attend) -> None:
    ending = attend("sys.exit(3)")
    assert ending.problem["code"] == "compiler_crashed"
    assert ending.problem["details"]["exit_status"] == 3


def test_a_report_followed_by_a_crash_does_not_count(attend: Attend) -> None:
    assert attend("succeed(); os.abort()").problem["details"]["signal"] == "SIGABRT"


def test_an_endless_job_meets_the_wall_clock_and_its_problem_says_where_it_was(
    attend: Attend, limits_count_in: Callable[[str], None]
) -> None:
    limits_count_in("agree")
    ending = attend('event("load", 0.0); event("agree", 0.9)\nwhile True: pass', wall_s=1.0)
    assert ending.problem["code"] == "time_limit"
    assert ending.problem["details"] == {"limit_s": 1.0, "phase": "agree"}
    assert "in phase agree" in ending.problem["message"]


def test_a_model_that_keeps_the_parser_busy_is_given_up_early(
    attend: Attend, monkeypatch: pytest.MonkeyPatch, limits_count_in: Callable[[str], None]
) -> None:
    limits_count_in("load")
    monkeypatch.setattr(limits, "LOAD_PATIENCE", 1000)
    ending = attend('event("load", 0.0)\nwhile True: pass', load_s=0.5)
    assert ending.problem["details"] == {"limit_s": 0.5, "phase": "load"}
    assert "0.5 s of CPU" in ending.problem["message"]


def test_the_time_of_every_process_counts_as_loading_also_when_it_has_ended(
    attend: Attend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOAD_PATIENCE", 1000)
    child = """
event("load", 0.0)
while True: subprocess.run([sys.executable, "-S", "-c", "for _ in range(10**6): pass"])
"""
    assert "1 s of CPU" in attend(child, load_s=1.0).problem["message"]


def test_a_model_that_makes_the_parser_wait_for_ever_is_given_up(
    attend: Attend, limits_count_in: Callable[[str], None]
) -> None:
    limits_count_in("load")
    ending = attend('event("load", 0.0); time.sleep(600)', load_s=0.4)
    assert ending.problem["details"] == {"limit_s": 0.4, "phase": "load"}
    assert "limit of 2 s" in ending.problem["message"]


def test_a_job_that_is_to_finish_and_does_not_is_ended(attend: Attend) -> None:
    ending = attend('event("load", 0.0); event("agree", 0.9)\nwhile True: pass', ask_to_finish=True, finish_s=0.5)
    assert (ending.problem["code"], ending.problem["details"]) == ("time_limit", {"limit_s": 0.5, "phase": "agree"})
    assert "asked to finish" in ending.problem["message"]


def test_cpu_time_that_runs_out_is_a_time_limit(attend: Attend) -> None:
    assert attend("os.kill(os.getpid(), signal.SIGXCPU); time.sleep(9)").problem["code"] == "time_limit"


def test_a_kill_from_outside_is_nobodys_memory(attend: Attend) -> None:
    ending = attend('event("load", 0.0); event("tile", 0.5); os.kill(os.getpid(), signal.SIGKILL); time.sleep(9)')
    assert (ending.problem["code"], ending.problem["fault"]) == ("job_killed", "machine")
    assert ending.problem["details"] == {"phase": "tile"}


def test_deleted_files_that_are_still_open_are_part_of_what_a_job_wrote(attend: Attend) -> None:
    child = """
kept = []
for number in range(8):
    kept.append(open("gone", "wb", buffering=0))
    os.unlink("gone")
    kept[-1].write(os.urandom(1 << 20))
time.sleep(600)
"""
    assert attend(child, disk_bytes=4 << 20, wall_s=30.0).problem["code"] == "disk_limit"


def test_what_a_job_writes_is_limited_in_all(attend: Attend) -> None:
    child = """
os.mkdir("deep")
for number in range(5): open(f"deep/{number}", "wb").write(os.urandom(1 << 20))
time.sleep(600)
"""
    ending = attend(child, disk_bytes=4 << 20)
    assert (ending.problem["code"], ending.problem["fault"]) == ("disk_limit", "machine")
    assert ending.problem["details"] == {"limit_bytes": 4 << 20, "phase": ""}


def test_a_file_that_grows_beyond_its_limit_is_told_apart_from_a_full_disk(attend: Attend) -> None:
    ending = attend(
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGXFSZ); time.sleep(9)"
    )
    assert ending.problem["code"] == "disk_limit"


def test_resident_memory_is_summed_over_all_processes(attend: Attend) -> None:
    child = """
if os.fork() == 0 or os.fork() == 0:
    os.close(out)
held = bytearray(os.urandom(1)) * (100 << 20)
time.sleep(600)
"""
    ending = attend(child, memory_bytes=250 << 20)
    assert ending.problem["code"] == "memory_limit"
    assert ending.problem["fault"] == "machine"


def test_a_fork_bomb_meets_the_limit_of_processes(attend: Attend) -> None:
    child = "for _ in range(30):\n    if os.fork() == 0: time.sleep(600)\ntime.sleep(600)"
    assert attend(child, processes=20).problem["code"] == "process_limit"


@pytest.mark.parametrize("reason", ["cancel", "stop", "lost"])
def test_the_bell_ends_it(attend: Attend, reason: str) -> None:
    ending = attend('event("tile", 0.5); time.sleep(600)', ring=reason)
    assert ending == Ending(reason)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "garbage",
    [
        'os.write(out, b"\\xff" * 64)',
        'os.write(out, b"\\0\\0\\0\\x02no")',
        'send(kind="surprise")',
        'send(kind="event", event={"kind": "phase"})',
        'event("load", float("1e999"))',
        'send(kind="event", event=[1])',
        'send(kind="report", report=[])',
        'send(kind="problem", problem={"code": 1})',
        "succeed(); succeed()",
        'os.write(out, b"\\0\\0\\1\\0half a frame")',
    ],
)
def test_garbage_on_the_pipe_is_a_crash(attend: Attend, garbage: str) -> None:
    ending = attend(f"{garbage}\nos._exit(0)")
    assert ending.problem["code"] == "compiler_crashed"
    assert "not a message" in ending.problem["message"]


@pytest.mark.parametrize(
    ("kind", "size", "is_taken"),
    [
        ("piece", supervising.MAX_PIECE - 40, True),
        ("piece", supervising.MAX_PIECE, False),
        ("notice", supervising.MAX_PIECE - 40, False),
    ],
)
def test_a_piece_has_more_data_than_other_events_and_not_without_end(
    attend: Attend, kind: str, size: int, is_taken: bool
) -> None:
    seen: list[Event] = []
    ending = attend(f'event("run", 0.0, "{kind}", data={{"elements": "A" * {size}}})\nsucceed()', seen=seen)
    assert (ending.kind == "report", len(seen)) == (is_taken, is_taken)


def test_pieces_of_one_job_are_limited_in_all(attend: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "MAX_PIECES", 250)
    seen: list[Event] = []
    ending = attend('for at in range(9): event("run", 0.0, "piece", data={"elements": "A" * 80})\nsucceed()', seen=seen)
    assert ending.problem["code"] == "compiler_crashed"
    assert len(seen) == 2


def test_a_child_that_closes_its_pipe_without_a_word_does_not_hang_the_worker(attend: Attend) -> None:
    ending = attend("os.close(out); time.sleep(600)")
    assert ending.kind == "problem"


@pytest.mark.parametrize("standing", ["5", "{}", "[5]", "None"])
def test_walls_that_are_no_list_of_names_are_garbled(attend: Attend, standing: str) -> None:
    assert attend(f'send(kind="sandbox", standing={standing}); succeed()').problem["code"] == "compiler_crashed"


def test_walls_do_not_stand_because_a_model_makes_its_process_say_so(attend: Attend) -> None:
    ending = attend('event("load", 0.1); send(kind="sandbox", standing=["files"]); succeed()')
    assert (ending.problem["code"], ending.standing) == ("compiler_crashed", ())


def test_a_number_that_no_float_holds_is_garbled(attend: Attend) -> None:
    assert attend('event("load", 10**400); succeed()').problem["code"] == "compiler_crashed"
