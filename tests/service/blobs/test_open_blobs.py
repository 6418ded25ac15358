from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.blobs.local import LocalBlobs
from service.blobs.open_blobs import open_blobs
from service.blobs.s3 import S3Blobs
from service.config import Settings


def test_without_a_bucket_blobs_lie_in_the_folder(tmp_path: Path) -> None:
    store = open_blobs(Settings(data_dir=tmp_path, blob_dir=tmp_path / "elsewhere"))
    assert isinstance(store, LocalBlobs)
    assert store.root == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("url", "prefix"),
    [("s3://models", None), ("s3://models/", None), ("s3://models/a/b", "a/b"), ("s3://m.1-x/a/", "a")],
)
def test_the_environment_alone_names_bucket_endpoint_and_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, prefix: str | None
) -> None:
    given = {
        "BLOB_URL": url,
        "BLOB_ENDPOINT": "http://127.0.0.1:9000",
        "BLOB_REGION": "eu-north-1",
        "BLOB_ACCESS_KEY_ID": "id",
        "BLOB_SECRET_ACCESS_KEY": "hush",
        "BLOB_SESSION_TOKEN": "passing",
        "BLOB_CACHE_BYTES": "1000",
        "BLOB_CACHE_DIR": str(tmp_path / "cache"),
    }
    for name, value in given.items():
        monkeypatch.setenv(f"TILEWRIGHT_{name}", value)
    settings = Settings(data_dir=tmp_path)
    assert "hush" not in repr(settings)
    assert "passing" not in repr(settings)
    store = open_blobs(settings)
    assert isinstance(store, S3Blobs)
    config = store.store.config
    assert config["bucket"] == url.split("/")[2]
    assert (config["endpoint"], config["region"]) == ("http://127.0.0.1:9000", "eu-north-1")
    assert (config["secret_access_key"], config["session_token"]) == ("hush", "passing")
    assert (store.store.prefix or None) == prefix
    assert store.cache.root == tmp_path / "cache"


@pytest.mark.parametrize("url", ["s3://", "s3://B", "gs://bucket", "bucket", "s3://bucket/a b", "/blobs"])
def test_an_address_of_another_kind_is_refused_at_start(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValidationError, match="blob_url"):
        Settings(data_dir=tmp_path, blob_url=url)
