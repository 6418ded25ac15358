from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import structlog

from service import logs


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_a_process_that_configures_nothing_logs_to_standard_error() -> None:
    """As one that calls a function of ours and prints what it returns."""
    program = "from service import logs; logs.logger('here').warning('cannot build for aarch64'); print('result')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "result\n"
    assert "cannot build for aarch64" in done.stderr


def test_json_lines_carry_what_was_bound(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json_lines=True)
    with structlog.contextvars.bound_contextvars(request="r1"):
        try:
            raise ValueError("broken")
        except ValueError as error:
            logs.logger("here").error("it broke", job="j1", exc_info=error)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["request"], line["job"], line["module"]) == ("it broke", "r1", "j1", "here")
    assert line["level"] == "error"
    assert "ValueError: broken" in line["exception"]


def test_lines_for_people_are_plain_and_show_no_locals(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json_lines=False)
    secret = "hush"
    try:
        raise ValueError(f"broken {len(secret)}")
    except ValueError as error:
        logs.logger("here").error("it broke", exc_info=error)
    said = capsys.readouterr().err
    assert "it broke" in said
    assert "ValueError: broken 4" in said
    assert "hush" not in said.replace('secret = "hush"', "")


def test_who_writes_stands_on_every_line_of_every_thread(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json_lines=True, worker="w1")
    thread = threading.Thread(target=lambda: logs.logger("here").info("beats", job="j1"))
    thread.start()
    thread.join()
    line = json.loads(capsys.readouterr().err)
    assert (line["worker"], line["job"], line["event"]) == ("w1", "j1", "beats")
