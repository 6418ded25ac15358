"""Settings of the service and its workers, from environment variables with the prefix `TILEWRIGHT_`."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


def _user_data() -> Path:
    """The XDG data folder of the user, where the command line looks too."""
    home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".local" / "share") / "tilewright"


class Settings(BaseSettings):
    """One frozen object, read once at start; every process of one installation is given the same values."""

    model_config = SettingsConfigDict(
        env_prefix="TILEWRIGHT_", frozen=True, extra="ignore", env_ignore_empty=True, hide_input_in_errors=True
    )

    data_dir: Path = Field(default_factory=_user_data)
    """Folder of the SQLite database, the blobs and the generated API key; made with mode 0700 when missing."""
    database_url: str = ""
    """SQLAlchemy URL; empty: SQLite in `data_dir`."""
    broker_url: str = "redis://127.0.0.1:6379/0"
    """Where doorbells are sent: `redis://...` or `redis+socket:///path`."""
    blob_dir: Path | None = None
    """Folder of model and artifact bytes; None: `blobs` in `data_dir`."""

    host: str = "127.0.0.1"
    port: int = Field(default=8750, ge=0, le=65535)
    """TCP port of the API."""
    graceful_shutdown_s: int = Field(default=5, ge=1)
    """How long open requests and event streams may last after SIGTERM."""
    log_json: bool = False
    """JSON lines instead of text for people."""

    api_key: SecretStr | None = Field(default=None, min_length=20)
    """A further key for the owner `local`, of the operator's choice: long and random, it is kept as a plain SHA-256."""

    max_model_bytes: int = Field(default=2 << 30, gt=0)
    max_queued_per_owner: int = Field(default=100, gt=0)

    lease_s: float = Field(default=30.0, gt=0)
    """How long a claimed job stays with a worker that does not report; workers report every third of it."""
    max_lost_leases: int = Field(default=3, gt=0)
    """A job whose worker vanished this often fails."""
    reconcile_every_s: float = Field(default=1.0, gt=0)
    ring_again_after_s: float = Field(default=10.0, gt=0)
    """A queued job whose doorbell is older than this is announced again."""
    worker_alive_s: float = Field(default=30.0, gt=0)
    """A worker not seen for this long counts as dead."""

    sse_keepalive_s: float = Field(default=15.0, gt=0)
    events_poll_s: float = Field(default=0.1, gt=0)

    @property
    def sqlalchemy_url(self) -> str:
        """The database, with the default filled in."""
        return self.database_url or f"sqlite:///{self.data_dir / 'tilewright.db'}"

    @property
    def blob_root(self) -> Path:
        """The blob folder, with the default filled in."""
        return self.blob_dir or self.data_dir / "blobs"

    @property
    def api_key_file(self) -> Path:
        """File (mode 0600) holding the key that the service made for the owner `local`; the CLI reads it."""
        return self.data_dir / "api_key"
