from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from tilewright.errors import UsageError
from tilewright.up import broker


def test_the_wheels_server_runs() -> None:
    done = subprocess.run([broker.server_program(), "--version"], capture_output=True, text=True, check=True)
    assert "server" in done.stdout.lower()


def test_the_socket_is_short_private_and_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 200)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(deep))
    path = broker.socket_path(tmp_path / "data")
    assert len(os.fsencode(path)) <= broker.LONGEST_SOCKET_PATH
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert broker.socket_path(tmp_path / "data") == path
    assert broker.socket_path(tmp_path / "other") != path
    path.parent.rmdir()
    broker.socket_path(tmp_path / "other").parent.rmdir()


def test_a_link_in_the_place_of_the_sockets_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = broker.socket_path(tmp_path).parent
    folder.rmdir()
    folder.symlink_to("/")
    try:
        with pytest.raises(UsageError, match="somebody else"):
            broker.socket_path(tmp_path)
    finally:
        folder.unlink()  # it may lie outside of `tmp_path`, whose path is too long for a socket


def test_a_server_of_the_path_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert broker.server_program() == program
    program.unlink()
    with pytest.raises(UsageError, match="no broker"):
        broker.server_program()
