from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import SecretStr, ValidationError

from compiler.errors import OptionsError
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


def test_a_file_says_what_the_variable_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a/long and random:key@0123456789\n")
    for name in ("API_KEY", "DATABASE_PASSWORD", "BROKER_PASSWORD", "SIGNING_KEY"):
        monkeypatch.setenv(f"TILEWRIGHT_{name}_FILE", str(secret))
    monkeypatch.setenv("TILEWRIGHT_DATABASE_URL", "postgresql+psycopg://ada@host:5432/db?sslmode=require")
    settings = Settings()
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "a/long and random:key@0123456789"
    quoted = "a%2Flong%20and%20random%3Akey%400123456789"
    assert settings.sqlalchemy_url == f"postgresql+psycopg://ada:{quoted}@host:5432/db?sslmode=require"
    assert sa.make_url(settings.sqlalchemy_url).password == "a/long and random:key@0123456789"
    assert settings.celery_url == f"redis://:{quoted}@127.0.0.1:6379/0"
    assert settings.signing_key_path == secret, "a setting of its own, with the path as its value"
    assert "random" not in repr(settings)


@pytest.mark.parametrize("url", ["redis://:its-own@host:1/0", "redis+socket:///tmp/socket"])
def test_a_url_with_a_password_or_without_a_server_stays_as_it_is(url: str) -> None:
    assert Settings(broker_url=url, broker_password=SecretStr("other")).celery_url == url


def test_a_file_that_is_missing_or_says_it_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_API_KEY_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(OptionsError, match=r"TILEWRIGHT_API_KEY_FILE names .*nowhere: No such file"):
        Settings()
    monkeypatch.setenv("TILEWRIGHT_API_KEY", "a-long-and-random-key-0123456789")
    with pytest.raises(OptionsError, match="both set"):
        Settings()
    monkeypatch.setenv("TILEWRIGHT_API_KEY_FILE", "")
    assert Settings().api_key is not None


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
