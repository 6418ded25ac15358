from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.config import Settings


def test_everything_defaults_to_one_machine_and_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    settings = Settings()
    assert settings.host == "127.0.0.1"
    assert settings.sqlalchemy_url == "sqlite:////data/tilewright/tilewright.db"
    assert settings.blob_root == Path("/data/tilewright/blobs")
    assert settings.api_key_file == Path("/data/tilewright/api_key")


def test_the_environment_decides_and_empty_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_PORT", "9000")
    monkeypatch.setenv("TILEWRIGHT_DATABASE_URL", "postgresql+psycopg://host/db")
    monkeypatch.setenv("TILEWRIGHT_BLOB_DIR", "/blobs")
    monkeypatch.setenv("TILEWRIGHT_API_KEY", "")
    settings = Settings()
    assert (settings.port, settings.sqlalchemy_url) == (9000, "postgresql+psycopg://host/db")
    assert (settings.blob_root, settings.api_key) == (Path("/blobs"), None)


def test_walls_are_demanded_by_names_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().require_walls == ()
    monkeypatch.setenv("TILEWRIGHT_REQUIRE_WALLS", "files, signals,system_calls")
    assert Settings().require_walls == ("files", "signals", "system_calls")


def test_a_guessable_key_is_refused_and_a_good_one_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_API_KEY", "hunter2")
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("TILEWRIGHT_API_KEY", "a-long-and-random-key-0123456789")
    assert "random" not in repr(Settings())
