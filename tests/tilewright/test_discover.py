from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.discover import Server, data_dir, find_server
from tilewright.errors import ServerUnreachable


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TILEWRIGHT_URL", "TILEWRIGHT_API_KEY", "TILEWRIGHT_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_without_a_server_the_error_says_how_to_start_one() -> None:
    with pytest.raises(ServerUnreachable) as caught:
        find_server()
    assert "tilewright up" in caught.value.fix


def test_the_running_up_is_found_through_its_ready_file(tmp_path: Path) -> None:
    data = data_dir()
    assert data == tmp_path / "tilewright"
    data.mkdir()
    (data / "api_key").write_text("twk_local\n")
    (data / "ready.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "key_file": str(data / "api_key")}))
    assert find_server() == Server("http://127.0.0.1:9", "twk_local")


def test_the_environment_goes_before_the_ready_file_and_arguments_before_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_URL", "http://elsewhere")
    monkeypatch.setenv("TILEWRIGHT_API_KEY", "k")
    assert find_server() == Server("http://elsewhere", "k")
    assert find_server("http://here", "mine") == Server("http://here", "mine")


def test_a_damaged_ready_file_counts_as_none() -> None:
    data_dir().mkdir()
    (data_dir() / "ready.json").write_text("[")
    with pytest.raises(ServerUnreachable):
        find_server()
