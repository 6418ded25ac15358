"""Servers of `tilewright up` are found by other shells while they run, and waited for while they start."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright import discover, running
from tilewright.discover import Server, find_server
from tilewright.errors import ServerUnreachable
from tilewright.running import Running


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def server(data: Path, pid: int = 0, since: float = 1.0, ready: bool = True) -> Running:
    """One whose process is this one, unless another is named; its key is the name of its folder."""
    data.mkdir(exist_ok=True)
    (data / "api_key").write_text(data.name + "\n")
    pid = pid or os.getpid()
    begun = running.begun_at(pid)
    assert begun is not None
    return Running(f"http://{data.name}", str(data / "api_key"), str(data), pid, begun, since, ready)


def test_a_server_is_found_from_its_registration_to_its_end(tmp_path: Path) -> None:
    with running.registered(server(tmp_path / "one")):
        assert find_server() == Server("http://one", "one")
        assert find_server(key="mine") == Server("http://one", "mine")
    with pytest.raises(ServerUnreachable):
        find_server()


def test_the_newest_that_is_alive_is_used_and_the_others_are_named(
    tmp_path: Path, other: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    old, new = server(tmp_path / "old", since=1.0), server(tmp_path / "new", since=2.0)
    newest = server(tmp_path / "newest", other.pid, since=3.0)
    with running.registered(new), running.registered(newest), running.registered(old):
        assert find_server().url == "http://newest"
        assert "http://new (data in " in caplog.text
        other.kill()
        other.wait()
        assert find_server().url == "http://new"
        caplog.clear()
    with running.registered(old):
        assert find_server().url == "http://old"
        assert caplog.text == ""
        assert len([*running.folder().iterdir()]) == 1, "what ended is removed by the next one"


def test_a_process_with_the_id_of_one_that_ended_is_no_server(tmp_path: Path) -> None:
    one = server(tmp_path / "one")
    with running.registered(replace(one, begun=one.begun + 1)), pytest.raises(ServerUnreachable):
        find_server()


def test_a_data_folder_chooses_among_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running.registered(server(tmp_path / "one")), running.registered(server(tmp_path / "two", since=2.0)):
        monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(tmp_path / "one"))
        assert find_server().url == "http://one"
        monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(tmp_path / "none"))
        with pytest.raises(ServerUnreachable):
            find_server()


def test_a_server_that_starts_is_waited_for_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = threading.Event()

    def sleep(seconds: float) -> None:
        waited.set()
        threading.Event().wait(0.001)

    monkeypatch.setattr(time, "sleep", sleep)
    starting = server(tmp_path / "one", ready=False)
    with running.registered(starting):

        def announce() -> None:
            assert waited.wait(60)
            running.announce(starting)

        thread = threading.Thread(target=announce)
        thread.start()
        assert find_server() == Server("http://one", "one")
        thread.join()
    assert caplog.record_tuples == [
        (
            "tilewright",
            logging.WARNING,
            f"the server at http://one (pid {os.getpid()}) is starting, and waited for; Ctrl-C stops waiting",
        )
    ]


def test_a_server_that_ends_while_it_starts_is_not_waited_for(
    tmp_path: Path, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        other.send_signal(signal.SIGKILL)
        other.wait()

    monkeypatch.setattr(time, "sleep", sleep)
    with (
        running.registered(server(tmp_path / "one", other.pid, ready=False)),
        pytest.raises(ServerUnreachable, match="ended while it started") as caught,
    ):
        find_server()
    assert str(tmp_path / "one" / "logs") in caught.value.fix


def test_waiting_has_an_end_and_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running.registered(server(tmp_path / "one", ready=False)):
        monkeypatch.setattr(discover, "START_S", 0.0)
        with pytest.raises(ServerUnreachable, match="is not ready after 0 s"):
            find_server()
        monkeypatch.setattr(discover, "START_S", 60.0)
        monkeypatch.setattr(time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            find_server()


def interrupt(seconds: float) -> None:
    raise KeyboardInterrupt


def test_what_is_no_registration_counts_for_nothing(tmp_path: Path) -> None:
    with running.registered(server(tmp_path / "one")):
        for name, text in (("a", "["), ("b", "{}"), ("c", "3")):
            (running.folder() / f"{name}.json").write_text(text)
        assert [one.url for one in running.alive()] == ["http://one"]


def test_a_key_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    one = server(tmp_path / "one")
    (tmp_path / "one" / "api_key").unlink()
    with running.registered(one), pytest.raises(ServerUnreachable, match="the key of the server at http://one"):
        find_server()


def test_where_there_is_no_proc_a_signal_asks_and_where_no_signal_can_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, other: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    assert running.begun_at(other.pid) == 0
    other.kill()
    other.wait()
    assert running.begun_at(other.pid) is None
    with monkeypatch.context() as patched:
        patched.setattr(os, "name", "nt")
        assert running.begun_at(os.getpid()) is None


def test_the_banner_names_a_command_that_finds_the_server(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.up import run

    one = server(tmp_path / "one")

    def up(data: Path, port: int, ready_file: Path | None, announce: Callable[[run.Ready], None], say: Any) -> None:
        announce(run.Ready(one.url, Path(one.key_file), data, 1))

    monkeypatch.setattr(run, "up", up)
    with running.registered(one):
        assert "  tilewright compile model.onnx\n" in command("up").stdout
        monkeypatch.setenv("TILEWRIGHT_URL", "http://elsewhere")
        told = f'  tilewright compile model.onnx --url http://one --key "$(cat {one.key_file})"\n'
        assert told in command("up").stdout
