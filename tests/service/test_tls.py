"""Real handshakes, with an authority of the tests' own: API and client, PostgreSQL, Redis."""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
import uvicorn
from pydantic import ValidationError

import service.__main__
from service import logs
from service.config import Settings
from service.db.engine import Database
from service.errors import DatabaseUnavailable, NotReady
from service.http.admission.connections import Connection, Connections
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from service.jobs.scheduling.doorbell import CeleryRing
from tests.servers import (
    Missing,
    Postgres,
    Redis,
    free_port,
    postgres_owner,
    postgres_programs,
    running_postgres,
    running_redis,
)
from tests.service.authority import Authority, Certificate
from tests.service.conftest import RecordingRing
from tests.service.http.answering import answering
from tilewright.client import Client
from tilewright.errors import ServerUnreachable, UsageError
from tilewright.http import CA_FILE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder, "ours")


@pytest.fixture(scope="module")
def other(folder: Path) -> Authority:
    return Authority(folder, "other")


@pytest.fixture(scope="module")
def certified(authority: Authority) -> Certificate:
    return authority.certified("server")


@contextlib.contextmanager
def secured_api(settings: Settings) -> Iterator[int]:
    """The port of the app as `service serve` has it served."""
    port = free_port()
    app = create_app(settings, ring=RecordingRing(), inspector=Inspector(ready=0))
    config = uvicorn.Config(app, host="127.0.0.1", port=port, http=Connection, log_level="critical")
    with answering(config):
        yield port


@pytest.fixture
def secured(tmp_path: Path, migrated: Path, certified: Certificate) -> dict[str, Any]:
    """Settings of an API that answers HTTPS."""
    shutil.copy(migrated, tmp_path / "tilewright.db")
    return {"data_dir": tmp_path, "tls_certificate_file": certified.certificate, "tls_key_file": certified.key}


def test_the_api_answers_https_to_clients_that_trust_its_authority(
    secured: dict[str, Any], authority: Authority, other: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(**secured)
    db = Database.of(settings)
    key = access.make_key(db, "ada", ["read"], "test")
    db.dispose()
    with secured_api(settings) as port:
        url = f"https://127.0.0.1:{port}"
        monkeypatch.setenv(CA_FILE, str(authority.file))
        with Client(url, key) as client:
            assert list(client.jobs()) == []
        monkeypatch.setenv(CA_FILE, str(other.file))
        with (
            Client(url, key, pause_s=0.0) as client,
            pytest.raises(ServerUnreachable, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            list(client.jobs())
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)


def test_a_client_must_show_a_certificate_where_that_is_demanded(
    secured: dict[str, Any], authority: Authority, other: Authority
) -> None:
    with secured_api(Settings(**secured, tls_client_ca_file=authority.file)) as port:
        known = ssl.create_default_context(cafile=str(authority.file))
        stranger = ssl.create_default_context(cafile=str(authority.file))
        for context, signer in ((known, authority), (stranger, other)):
            mine = signer.certified("client")
            context.load_cert_chain(mine.certificate, mine.key)
        for context in (stranger, ssl.create_default_context(cafile=str(authority.file))):
            with pytest.raises(httpx.TransportError):
                httpx.get(f"https://127.0.0.1:{port}/healthz", verify=context, trust_env=False)
        assert httpx.get(f"https://127.0.0.1:{port}/healthz", verify=known, trust_env=False).status_code == 200


def test_serve_leaves_tls_to_the_connections(secured: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in secured.items():
        monkeypatch.setenv(f"TILEWRIGHT_{name.upper()}", str(value))
    given: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda *_, **more: given.update(more))
    before = os.umask(0o022)
    try:
        assert service.__main__.main(["serve"]) == 0
    finally:
        os.umask(before)  # which serving has narrowed: this process has other tests to run
    assert not [name for name in given if name.startswith("ssl_")], "a handshake of uvicorn's is counted by nobody"
    assert given["http"] is Connection
    assert Connections(Settings(), 100).tls is not None


def test_a_certificate_that_cannot_be_used_is_named_before_anything_is_done(
    secured: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**secured, "tls_certificate_file": secured["tls_key_file"]}.items():
        monkeypatch.setenv(f"TILEWRIGHT_{name.upper()}", str(value))
    monkeypatch.setattr(uvicorn, "run", lambda *_, **__: pytest.fail("it is served"))
    monkeypatch.setattr(logs, "configure", lambda **_: None)  # loggers outlive this test's standard error
    before = os.umask(0o022)
    try:
        assert service.__main__.main(["serve"]) == os.EX_CONFIG
    finally:
        os.umask(before)
    assert "TILEWRIGHT_TLS_*" in capsys.readouterr().err


@pytest.mark.parametrize("alone", ["tls_certificate_file", "tls_key_file", "tls_client_ca_file"])
def test_half_a_certificate_is_refused(alone: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="tls_certificate_file and tls_key_file"):
        Settings(**{alone: tmp_path / "it.pem"})  # type: ignore[arg-type]


def test_a_file_of_no_certificates_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CA_FILE, str(tmp_path / "nowhere.pem"))
    with pytest.raises(UsageError, match=r"nowhere\.pem"):
        Client("https://127.0.0.1:1", "k")


def test_postgresql_is_verified_as_the_url_says(authority: Authority, other: Authority, folder: Path) -> None:
    try:
        postgres_programs()
    except Missing as reason:
        pytest.skip(str(reason))
    mine = authority.certified("postgres")
    server = Postgres(port=free_port())
    held = Certificate(server.folder / "server.pem", server.folder / "server-key.pem")
    for source, target in ((mine.certificate, held.certificate), (mine.key, held.key)):
        shutil.copy(source, target)
        os.chown(target, *postgres_owner())
    server.arguments = [*("-c", "ssl=on", "-c", f"ssl_cert_file={held.certificate}", "-c", f"ssl_key_file={held.key}")]
    with running_postgres(server):
        place = f"127.0.0.1:{server.port}/postgres?sslmode=verify-full&sslrootcert="
        user = f"postgresql+psycopg://{server.user}@{place}"
        settings = Settings(database_url=f"{user}{authority.file}", database_password=server.password)  # type: ignore[arg-type]
        db = Database.of(settings)
        with db.read() as session:
            question = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert session.scalar(sa.text(question)) is True
        db.dispose()
        db = Database.of(settings.model_copy(update={"database_url": f"{user}{other.file}"}))
        with pytest.raises(DatabaseUnavailable, match="certificate verify failed"), db.read() as session:
            session.scalar(sa.text("SELECT 1"))
        db.dispose()


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server: the broker of `up` speaks no TLS")
def test_redis_is_verified_as_the_url_says(authority: Authority, other: Authority) -> None:
    mine, port = authority.certified("redis"), free_port()
    names = ("--tls-cert-file", str(mine.certificate), "--tls-key-file", str(mine.key))
    trust = ("--tls-ca-cert-file", str(authority.file), "--tls-auth-clients", "no")
    server = Redis(password="open-sesame")
    server.arguments = ("--requirepass", server.password, "--tls-port", str(port), *names, *trust)
    with running_redis(server):
        place = f"rediss://127.0.0.1:{port}/0?ssl_cert_reqs=required&ssl_ca_certs="
        settings = Settings(broker_url=f"{place}{authority.file}", broker_password="open-sesame")  # type: ignore[arg-type]
        ring = CeleryRing(settings.celery_url)
        ring.check()
        ring("cpu")
        with pytest.raises(NotReady, match="certificate verify failed"):
            CeleryRing(
                f"rediss://:open-sesame@127.0.0.1:{port}/0?ssl_cert_reqs=required&ssl_ca_certs={other.file}"
            ).check()
