from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest

from bench.zoo import build
from service.errors import NotReady
from service.jobs.inspection import inspector
from service.jobs.inspection.inspector import Inspector
from tests.servers import GUARD_S

pytestmark = pytest.mark.processes

PRELUDE = "import json, os, sys, time, signal, subprocess; order = json.loads(sys.stdin.readline() or 'null')\n"


Make = Callable[..., Inspector]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes oracles whose processes run some lines of Python, by default after the order was read; all are closed."""
    made: list[Inspector] = []

    def of(program: str, ready: int = 1, prelude: str = PRELUDE) -> Inspector:
        made.append(Inspector(ready=ready, command=(sys.executable, "-I", "-c", prelude + program)))
        return made[-1]

    yield of
    for one in made:
        one.close()


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children() -> set[int]:
    """Ids of this process's children, zombies included."""
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for tasks in found for pid in tasks.read_text().split()}


def test_an_order_is_answered_and_carries_its_limits(make: Make) -> None:
    asked = make("print(json.dumps({'got': order}), flush=True)")
    answer = asked.ask({"order": "preflight", "model": "/m"}, GUARD_S)
    limits = {"cpu_s": GUARD_S, "memory_bytes": inspector.MEMORY_BYTES}
    assert answer == {"got": {"order": "preflight", "model": "/m", "limits": limits, "walls": []}}


def test_files_are_laid_out_for_an_order_in_its_turn_and_gone_once_it_is_answered(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(inspector, "AT_ONCE", 1)
    monkeypatch.setattr(inspector, "PATIENCE_S", 0.01)
    reported: list[str] = []

    @contextmanager
    def laid_out(name: str) -> Iterator[dict[str, str]]:
        reported.append(f"{name} in")
        (tmp_path / name).write_text(name)
        yield {"model": str(tmp_path / name)}
        reported.append(f"{name} out")

    asked = make("print(json.dumps({'read': open(order['model']).read()}), flush=True)", ready=0)
    asked._turns.acquire()
    assert asked.ask(laid_out("a"), GUARD_S)["problem"]["code"] == inspector.BUSY
    assert reported == []
    asked._turns.release()
    assert asked.ask(laid_out("b"), GUARD_S) == {"read": "b"}
    assert reported == ["b in", "b out"]

    with pytest.raises(FileNotFoundError):
        asked.ask(laid_out("no/such/folder"), GUARD_S)
    assert asked.ask(laid_out("c"), GUARD_S) == {"read": "c"}, "its turn was given back"


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("print(json.dumps({'missing': ['moat'], 'fix': 'dig'}))", "demands moat, .* dig"),
        ("print(json.dumps({'problem': {'message': 'no sand'}}))", "no sand"),
        ("sys.exit(1)", "ended with status 1"),
        ("print('{}')", "demands limits, moat"),
    ],
)
def test_walls_that_are_demanded_and_do_not_stand_are_an_error(make: Make, program: str, says: str) -> None:
    asked = make(program, ready=0)
    asked.demand_walls()  # none is demanded
    asked.walls = ("limits", "moat")
    with pytest.raises(NotReady, match=f"(?s){says}"):
        asked.demand_walls()


def test_walls_that_stand_may_be_demanded_of_the_real_process() -> None:
    Inspector(ready=0, walls=("limits",)).demand_walls()
    with pytest.raises(NotReady, match=r"(?s)demands moat.*there is no wall moat"):
        Inspector(ready=0, walls=("limits", "moat")).demand_walls()


def test_processes_wait_warm_are_used_once_and_replaced(make: Make) -> None:
    asked = make("print(json.dumps({'pid': os.getpid()}), flush=True); time.sleep(600)")
    before = children()
    asked.warm()
    (waiting,) = children() - before
    assert asked.ask({}, GUARD_S) == {"pid": waiting}
    assert not alive(waiting)
    (second,) = children() - before
    assert second != waiting
    os.kill(second, signal.SIGKILL)
    until(lambda: not alive(second))
    third = asked.ask({}, GUARD_S)["pid"]
    assert third not in (waiting, second)
    asked.close()
    assert children() - before == set()


@pytest.mark.parametrize(
    ("program", "code", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "preflight_failed", "died by SIGSEGV without an answer"),
        ("sys.exit(3)", "preflight_failed", "ended with status 3 without an answer"),
        ("print('{', flush=True)", "preflight_failed", "an answer that is not one"),
        ("print('[1]', flush=True)", "preflight_failed", "an answer that is not one"),
        ("print('{\"x\": NaN}', flush=True)", "preflight_failed", "an answer that is not one"),
        ("print('{}', end='', flush=True)", "preflight_failed", "an answer that is not one"),
        ("os.kill(os.getpid(), signal.SIGXCPU)", "time_limit", "too much CPU time"),
    ],
)
def test_a_process_that_a_model_kills_costs_only_its_own_question(
    program: str, code: str, says: str, make: Make
) -> None:
    asked = make(program)
    problem = asked.ask({}, GUARD_S)["problem"]
    assert problem["code"] == code
    assert says in problem["message"]
    assert problem["fix"]


def test_a_process_that_hangs_is_killed_with_all_it_started(make: Make, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "import os, subprocess, time\n"
        "other = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{other.pid}}')\n"
        "time.sleep(600)"
    )
    asked = make(program, prelude="")
    asked.warm()
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    started = [int(pid) for pid in pids.read_text().split()]
    problem = asked.ask({}, 0.5)["problem"]
    assert problem["code"] == "time_limit"
    assert "longer than 1.5 s" in problem["message"]
    until(lambda: not any(map(alive, started)))


def test_an_endless_answer_is_cut_off(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "MAX_ANSWER_BYTES", 1 << 20)
    asked = make("while True: sys.stdout.write('x' * 65536)")
    assert asked.ask({}, GUARD_S)["problem"]["code"] == "preflight_failed"


def test_an_order_longer_than_a_pipe_holds_arrives_whole(make: Make) -> None:
    asked = make("print(json.dumps({'length': len(order['text'])}), flush=True)")
    assert asked.ask({"text": "x" * 3_000_000}, GUARD_S) == {"length": 3_000_000}


def test_questions_are_answered_side_by_side_up_to_a_number(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    asked = make(f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint('{{}}', flush=True)")
    monkeypatch.setattr(asked, "_turns", threading.Semaphore(1))
    first = threading.Thread(target=asked.ask, args=({}, GUARD_S))
    first.start()
    until(lambda: asked._turns._value == 0)
    assert asked.ask({}, 0.2)["problem"]["code"] == "preflight_busy"
    go.touch()
    first.join()
    assert asked.ask({}, GUARD_S) == {}


def test_nothing_of_the_services_settings_reaches_a_process(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_API_KEY", "secret")
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    reported = make("print(json.dumps(dict(os.environ)), flush=True)").ask({}, GUARD_S)
    assert not [name for name in reported if "TILEWRIGHT" in name or "PASSWORD" in name]
    assert reported["OPENBLAS_NUM_THREADS"] == "1"


def test_when_no_process_can_be_started_that_is_the_answer() -> None:
    nothing = Inspector(command=("/nowhere/python",))
    nothing.warm()
    assert nothing.ask({}, 5)["problem"]["code"] == "preflight_failed"


def test_when_the_service_is_killed_the_process_that_waits_ends() -> None:
    program = (
        "import sys, time\n"
        "from service.jobs.inspection.inspector import Inspector\n"
        "one = Inspector(command=(sys.executable, '-I', '-c', 'import sys; sys.stdin.readline()'))\n"
        "one.warm()\n"
        "print(one._warm[0].pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        waiting = int(service.stdout.readline())
        assert alive(waiting)
        service.kill()
    until(lambda: not alive(waiting))


def test_the_real_process_answers_about_a_real_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(build("tiny_cnn"), path)
    asked = Inspector()
    try:
        asked.warm()
        answer = asked.ask({"order": "preflight", "model": str(path), "options": {"threads": 1}}, GUARD_S)
        assert answer["ok"], answer
        text = asked.ask({"order": "source", "text": "", "variant": {}, "target": "cpu"}, GUARD_S)
        assert text["problem"]["code"] == "source_unavailable"
    finally:
        asked.close()
