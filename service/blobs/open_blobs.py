"""The blob store that the settings name."""

from __future__ import annotations

from pydantic import SecretStr

from service.blobs.cache import Cache
from service.blobs.local import LocalBlobs
from service.blobs.s3 import S3Blobs, s3_store
from service.blobs.store import Blobs
from service.config import Settings
from service.reserve import Reserve


def open_blobs(settings: Settings) -> Blobs:
    """A bucket when `blob_url` names one, else the local folder.

    Raises `StorageUnavailable` when a folder cannot be made.
    """
    if not settings.blob_url:
        return LocalBlobs(settings.blob_root, Reserve.of(settings))
    bucket, _, prefix = settings.blob_url.removeprefix("s3://").partition("/")
    store = s3_store(
        bucket,
        prefix.strip("/"),
        region=settings.blob_region,
        endpoint=settings.blob_endpoint,
        access_key_id=settings.blob_access_key_id,
        secret_access_key=_secret(settings.blob_secret_access_key),
        session_token=_secret(settings.blob_session_token),
    )
    return S3Blobs(store, Cache(settings.blob_cache_root, settings.blob_cache_bytes))


def _secret(value: SecretStr | None) -> str:
    return "" if value is None else value.get_secret_value()
