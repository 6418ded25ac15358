"""Settings of the service and its workers, from environment variables with the prefix `TILEWRIGHT_`."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from compiler.errors import CallerError, OptionsError, TilewrightError
from service.errors import Misconfigured

PREFIX = "TILEWRIGHT_"


def reason(error: TilewrightError | ValidationError) -> str:
    """Why a process cannot begin, for people: settings by the names of their variables, without values."""
    if isinstance(error, TilewrightError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(": ".join([*(f"{PREFIX}{name}".upper() for name in one["loc"]), one["msg"]]) for one in found)


def exit_status(error: TilewrightError | ValidationError) -> int:
    """Of a process that cannot begin: 78 (EX_CONFIG of sysexits.h) where starting it again mends nothing, else 1."""
    return os.EX_CONFIG if isinstance(error, (ValidationError, CallerError, Misconfigured)) else 1


def _user_data() -> Path:
    """The XDG data folder of the user, where the command line looks too."""
    home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".local" / "share") / "tilewright"


class _Files(PydanticBaseSettingsSource):
    """`TILEWRIGHT_API_KEY_FILE` names a file with what `TILEWRIGHT_API_KEY` would say, and so for every setting."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """What the setting's file holds, or None. Raises `OptionsError`."""
        variable = f"{PREFIX}{field_name.upper()}"
        named = os.environ.get(f"{variable}_FILE", "")
        if not named or f"{field_name}_file" in self.settings_cls.model_fields:
            return None, field_name, False
        if os.environ.get(variable):
            raise OptionsError(f"{variable} and {variable}_FILE are both set", fix="set one of them")
        try:
            return Path(named).read_text().strip(), field_name, False
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise OptionsError(f"{variable}_FILE names {named}: {reason}", fix="name a file of this user") from None

    def __call__(self) -> dict[str, Any]:
        """What files say, of the settings that have one."""
        fields = self.settings_cls.model_fields
        found = {name: self.get_field_value(field, name)[0] for name, field in fields.items()}
        return {name: value for name, value in found.items() if value}


class Settings(BaseSettings):
    """One frozen object, read once at start; every process of one installation is given the same values."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True, hide_input_in_errors=True
    )

    data_dir: Path = Field(default_factory=_user_data)
    """Folder of the SQLite database, the blobs and the generated API key; made with mode 0700 when missing."""
    database_url: str = ""
    """SQLAlchemy URL; empty: SQLite in `data_dir`."""
    database_password: SecretStr | None = None
    """Of a URL that has a user and no password."""
    database_connect_s: int = Field(default=5, ge=1)
    """How long a connection to PostgreSQL may take to stand."""
    database_statement_s: float = Field(default=30.0, ge=1)
    """How long PostgreSQL may take for one statement; a server that says nothing is given up five seconds later."""
    database_lock_s: float = Field(default=15.0, gt=0)
    """How much of that a statement waits for others' locks."""
    database_idle_s: float = Field(default=60.0, ge=1)
    """How long PostgreSQL keeps a transaction open in which nothing is asked."""
    broker_url: str = "redis://127.0.0.1:6379/0"
    """Of doorbells: `redis://...`, `rediss://...` (TLS), `redis+socket:///path`; `memory://localhost`: nowhere."""
    broker_password: SecretStr | None = None
    """Of a URL that has none."""
    blob_dir: Path | None = None
    """Folder of model and artifact bytes; None: `blobs` in `data_dir`."""
    blob_url: str = Field(default="", pattern=r"^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?)?$")
    """`s3://bucket/prefix`: bytes are kept in that bucket of an S3-compatible store; empty: in `blob_dir`."""
    blob_endpoint: str = Field(default="", pattern=r"^(https?://.+)?$")
    """Address of the S3-compatible store; empty: AWS. With `http://` the bytes travel in the clear."""
    blob_region: str = "us-east-1"
    blob_access_key_id: str = ""
    """With `blob_secret_access_key`; empty: the variables `AWS_*`, or the role of the machine or container."""
    blob_secret_access_key: SecretStr | None = None
    blob_session_token: SecretStr | None = None
    blob_cache_dir: Path | None = None
    """Folder for what is on its way to or from the S3-compatible store; None: `blob-cache` in `data_dir`."""
    blob_cache_bytes: int = Field(default=20 << 30, ge=0)
    """Fetched blobs are kept up to this size in all; those in use are kept beyond it."""

    reserve_bytes: int = Field(default=64 << 20, ge=0)
    """Kept free on the disks of a SQLite database and of `blob_dir`, at most a twentieth of each, for what deletes when
    they are full; 0: nothing."""

    host: str = "127.0.0.1"
    port: int = Field(default=8750, ge=0, le=65535)
    """TCP port of the API."""
    graceful_shutdown_s: int = Field(default=5, ge=1)
    """How long open requests and event streams may last after SIGTERM."""
    api_processes: int = Field(default=1, ge=1, le=256)
    """API processes that share the port, and the limits from `requests_per_s` to `max_connections_per_address`."""
    metrics: bool = True
    """Whether `GET /metrics` answers, to anybody who can reach the port."""
    log_json: bool = False
    """JSON lines instead of text for people."""

    tls_certificate_file: Path | None = None
    """With `tls_key_file`, both PEM: the API answers HTTPS alone. The certificates that lead to its root follow it."""
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    """PEM: who connects must show a certificate that one of these has signed."""

    api_key: SecretStr | None = Field(default=None, min_length=20)
    """A further key for the owner `local`, of the operator's choice: long and random, it is kept as a plain SHA-256."""

    signing_key_file: Path | None = None
    """The key (ed25519, PEM) that statements about artifacts are signed with; None: `signing_key` in `data_dir`."""

    max_model_bytes: int = Field(default=2 << 30, gt=0)
    max_keys_per_owner: int = Field(default=100, ge=0)
    """Valid keys of one owner; 0: no limit."""
    max_queued_per_owner: int = Field(default=100, gt=0)
    max_stored_bytes_per_owner: int = Field(default=0, ge=0)
    """Models, artifacts, uploads under way and arrays of inferences of one owner; 0: no limit."""
    max_device_seconds_per_month: float = Field(default=0.0, ge=0)
    """What one owner's jobs may have of devices in a calendar month (UTC); 0: no limit."""
    max_concurrent_per_owner: int = Field(default=0, ge=0)
    """Jobs of one owner that run at the same time, on all workers together; 0: no limit."""

    requests_per_s: float = Field(default=2000.0, gt=0)
    """Requests of one key; over `requests_burst` at once they are refused with 429."""
    requests_burst: int = Field(default=4000, ge=1)
    max_queries_per_owner: int = Field(default=8, ge=1)
    """Requests of one owner that ask the database at once; others wait."""
    max_uploads_per_owner: int = Field(default=8, ge=1)
    """Bodies with files that one owner sends at once; one more is refused with 429."""
    max_preflights_per_owner: int = Field(default=2, ge=1)
    max_streams_per_owner: int = Field(default=256, ge=1)
    max_downloads_per_owner: int = Field(default=32, ge=1)

    max_connections: int = Field(default=4000, ge=8)
    """Open connections; over it one that no key pays for is closed for a new one."""
    max_connections_per_address: int = Field(default=2000, ge=4)
    head_s: float = Field(default=10.0, gt=0)
    """How long the head of a request may take to arrive."""
    stalled_s: float = Field(default=30.0, gt=0)
    """A body of which less than 16 KiB arrives in this time is given up, and so is an answer that nobody reads."""
    probes_stand_s: float = Field(default=1.0, ge=0)
    """How long the answers of `/readyz` and `/metrics` stand before the next one is made."""

    require_walls: Annotated[tuple[str, ...], NoDecode] = ()
    """Walls of the sandbox, separated by commas, which must stand around whatever reads a model or runs an artifact: an
    API or a worker that cannot raise them does not start, and a process that does not have them does nothing."""

    lease_s: float = Field(default=30.0, gt=0, le=900)
    """How long a claimed job stays with a worker that does not report; workers report every third of it."""
    max_lost_leases: int = Field(default=3, gt=0)
    """A job whose worker vanished this often fails."""
    reconcile_every_s: float = Field(default=1.0, gt=0)
    ring_again_after_s: float = Field(default=10.0, gt=0)
    """A queued job whose doorbell is older than this is announced again."""
    worker_alive_s: float = Field(default=30.0, gt=0)
    """A worker not seen for this long counts as dead."""

    keep_jobs_days: float = Field(default=0.0, ge=0)
    """An ended job is removed after this time with its artifact, unless a younger job names that; 0: kept for ever."""
    keep_models_days: float = Field(default=0.0, ge=0)
    """A model that no job names any more is removed when it was not used for this long; 0: kept for ever."""
    keep_uploads_hours: float = Field(default=24.0, gt=0)
    """A resumable upload that nothing was added to for this long is removed."""
    keep_inferences_hours: float = Field(default=24.0, gt=0)
    """Inputs and outputs of an inference are kept for this long after its end."""
    keep_audit_days: float = Field(default=90.0, ge=0)
    """Entries of the audit log are removed after this time; 0: kept for ever."""
    gc_grace_s: float = Field(default=3600.0, ge=60)
    """Bytes that nothing refers to are removed once they are this old; a multipart body must arrive in half of it."""
    retention_every_s: float = Field(default=600.0, gt=0)
    scrub_bytes: int = Field(default=1 << 30, ge=0)
    """So much of what is kept is compared with its digests each time, what waited longest first; 0: nothing."""

    webhooks_private: bool = False
    """Whether webhooks may have private addresses and plain HTTP: a key then reaches whatever the API reaches."""
    webhook_s: float = Field(default=10.0, gt=0)
    """What one attempt to tell a webhook may take in all."""
    keep_deliveries_days: float = Field(default=7.0, gt=0)
    """What was sent to webhooks is kept, to be looked at, for this long."""

    sse_keepalive_s: float = Field(default=15.0, gt=0)
    events_poll_s: float = Field(default=0.1, gt=0)

    @field_validator("require_walls", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        return tuple(given.replace(",", " ").split()) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _certified(self) -> Self:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file are set together")
        if self.tls_client_ca_file is not None and self.tls_key_file is None:
            raise ValueError("tls_client_ca_file needs tls_certificate_file and tls_key_file")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given in code, then the environment, then the files that it names."""
        return init_settings, env_settings, _Files(settings_cls)

    @property
    def sqlalchemy_url(self) -> str:
        """The database, with the default and the password filled in."""
        default = f"sqlite:///{self.data_dir / 'tilewright.db'}"
        return _with_password(self.database_url, self.database_password) or default

    @property
    def celery_url(self) -> str:
        """The broker, with the password filled in."""
        return _with_password(self.broker_url, self.broker_password)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What the API shakes hands with; None: it answers HTTP. Raises `OptionsError` for files that are of no use."""
        if self.tls_certificate_file is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.tls_certificate_file, self.tls_key_file)
            if self.tls_client_ca_file is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self.tls_client_ca_file)
        except OSError as error:  # as SSLError is
            raise OptionsError(
                f"the files of TILEWRIGHT_TLS_* cannot be used: {error}",
                fix="name PEM files that this user may read: a certificate, its key, an authority",
            ) from None
        return context

    @property
    def blob_root(self) -> Path:
        """The blob folder, with the default filled in."""
        return self.blob_dir or self.data_dir / "blobs"

    @property
    def blob_cache_root(self) -> Path:
        """The folder of the cache, with the default filled in."""
        return self.blob_cache_dir or self.data_dir / "blob-cache"

    @property
    def signing_key_path(self) -> Path:
        """The key's file, with the default filled in; made when it is first needed and missing."""
        return self.signing_key_file or self.data_dir / "signing_key"

    @property
    def api_key_file(self) -> Path:
        """File (mode 0600) holding the key that the service made for the owner `local`; the CLI reads it."""
        return self.data_dir / "api_key"


def _with_password(url: str, password: SecretStr | None) -> str:
    """The URL of a server with its password, which one with a password of its own keeps; of a file as it is."""
    place = urlsplit(url)
    user, _, host = place.netloc.rpartition("@")
    if password is None or not place.netloc or ":" in user:
        return url
    secret = quote(password.get_secret_value(), safe="")
    return urlunsplit(place._replace(netloc=f"{user}:{secret}@{host}"))
