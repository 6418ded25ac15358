from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tilewright.fake_server import FakeServer
from tests.tilewright.messages import message
from tilewright.client import Client


@pytest.fixture(autouse=True)
def no_server_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither the environment nor the files of who runs the tests name one."""
    for name in ("TILEWRIGHT_URL", "TILEWRIGHT_API_KEY", "TILEWRIGHT_DATA_DIR", "TILEWRIGHT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home))


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client("http://server.test", "twk_key", transport=server.transport(), pause_s=0.0) as client:
        yield client


@pytest.fixture
def command(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command line against the fake server."""
    from typer.testing import CliRunner

    from tilewright.cli import app, output

    monkeypatch.setattr(
        output,
        "make_client",
        lambda url, key, profile: Client(
            url or "http://server.test", key, profile=profile, transport=server.transport(), pause_s=0.0
        ),
    )
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(message(b"onnx"))
    return path
